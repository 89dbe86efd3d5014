"""What a target would take, for who decides on its hunks.

Always for one card and one shape, so that all of them can be compared: the card that the kernel's
arch is of, `LENGTH` rows. TFLOP/s count the pairs that the spec keeps, never those that are only
visited: a target that visits more tiles is slower, not busier.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.cost.card import Card, card_of_arch
from engine.cost.model import Prediction, predict
from engine.cost.plan import constants
from engine.cost.report import bound_words
from engine.cost.timeline.block import timeline
from engine.cost.timeline.events import Timeline
from engine.cuir.arch import arch_name
from engine.cuir.nodes import Module
from engine.errors import InputError
from engine.service.views.costing import Cost, Where
from engine.service.views.keep_map import KeepMap
from engine.service.views.session_cost import arguments
from engine.spec.recipes.recipe import Recipe
from engine.worker.problems.problem_sizes import Case
from engine.worker.problems.timed_shapes import cases_of, label

LENGTH = 8192
ROWS = 32  # query rows, evenly apart, whose kept keys are counted


@dataclass(frozen=True, slots=True)
class Setting:
    """What every prediction of a session is for. `examples` says that the mask reads inputs, for
    which example values stand."""

    card: Card
    case: Case
    shape: str
    kept: float
    examples: bool

    @property
    def where(self) -> Where:
        """The same in words."""
        card = self.card
        return Where(card.title, card.name.upper(), self.shape, self.kept, self.examples)


def setting_of(module: Module, recipe: Recipe | None) -> Setting:
    """The card and shape for a kernel, and the share of pairs that the recipe keeps.

    Raises:
        InputError: the cost model knows no card of the kernel's arch.
    """
    arch = arch_name(module)
    card = card_of_arch(arch)
    if card is None:
        raise InputError(f"the cost model has no card of the arch {arch or 'that is not given'}")
    width = int(constants(module).get("D", 128))
    case = cases_of({"lengths": [LENGTH], "shapes": None}, width)[0]
    kept, examples = kept_share(recipe, case) if recipe is not None else (1.0, False)
    shape = label({**case.sizes, "D": width, "Dv": width})
    return Setting(card, case, shape, kept, examples)


def kept_share(recipe: Recipe, case: Case) -> tuple[float, bool]:
    """The share of pairs that a mask keeps, counted at `ROWS` rows of the first batch and head; and
    whether it reads inputs, which then have example values (`engine.service.views.keep_map`)."""
    sizes = {**case.sizes, "D": 128, "Dv": 128}
    drawn = KeepMap(recipe, None, None, sizes)
    rows = [(2 * n + 1) * case.Nq // (2 * ROWS) for n in range(ROWS)]
    kept = sum(drawn.wanted(i, j) for i in rows for j in range(case.Nk))
    return max(kept, 1) / (len(rows) * case.Nk), bool(drawn.tables)


def prediction_of(module: Module, setting: Setting) -> Prediction:
    """What the cost model says of a module. Raises `CuBridgeError` where it cannot follow it."""
    sizes = arguments(setting.case, module)
    return predict(module, sizes, setting.card, flops=_flops(module, setting))


def _flops(module: Module, setting: Setting) -> float:
    """Of the kept pairs."""
    case, numbers = setting.case, constants(module)
    widths = [float(numbers.get("D", 128)), float(numbers.get("DV", numbers.get("D", 128)))]
    return setting.kept * 2 * sum(widths) * case.B * case.Hq * case.Nq * case.Nk


def timeline_of(module: Module, setting: Setting) -> Timeline:
    """A block of the module over time. Raises `CuBridgeError` where the model cannot follow it."""
    return timeline(module, arguments(setting.case, module), setting.card, _flops(module, setting))


def cost_of(module: Module, setting: Setting) -> Cost:
    """A prediction in the four figures that are shown."""
    found = prediction_of(module, setting)
    visited = found.visited_flops / found.flops
    return Cost(found.microseconds, found.tflops, visited, bound_words(found))
