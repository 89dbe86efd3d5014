"""What a target would take, for who decides on its hunks: G3's own prediction, as it is shown."""

from __future__ import annotations

from engine.cost.model import bound_words
from engine.cost.timeline.block import timeline
from engine.cost.timeline.events import Timeline
from engine.cuir.nodes import Module
from engine.gates.g3_source.speed import Setting, arguments, kept_flops, prediction_of
from engine.service.views.costing import Cost, Where


def where_of(setting: Setting) -> Where:
    """The setting in words."""
    card = setting.card
    return Where(card.title, card.name.upper(), setting.shape, setting.kept, setting.examples)


def timeline_of(module: Module, setting: Setting) -> Timeline:
    """A block of the module over time. Raises `CuBridgeError` where the model cannot follow it."""
    flops = kept_flops(module, setting)
    return timeline(module, arguments(setting.case, module, setting.numbers), setting.card, flops)


def cost_of(module: Module, setting: Setting) -> Cost:
    """A prediction in the four figures that are shown."""
    found = prediction_of(module, setting)
    visited = found.visited_flops / found.flops
    return Cost(found.microseconds, found.tflops, visited, bound_words(found))
