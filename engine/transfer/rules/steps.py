"""What a rule gives: a step with its reason, and the plan of all steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.cuir.nodes import Module
from engine.transfer.binding import Binding


@dataclass(frozen=True, slots=True)
class Step:
    """One rule at work: what it changes and why, in words."""

    title: str
    reason: str
    clause: str  # kind of the recipe's clause
    apply: Callable[[Module], Module]


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps in order, and how the target's arguments are filled."""

    steps: tuple[Step, ...]
    binding: Binding
