"""G1 or G2 of one module, and by what part of the gate it fell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.cuir.nodes import Module
from engine.gates.g1_g2.arch_choices import judged_choice, other_choices
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.judge import judged
from engine.gates.runs.subject import Subject
from engine.gates.runs.warp_starvation import starved
from engine.gates.schedules.schedule_goals import Proofs
from engine.lower.spelling.legal import legal
from engine.prove.solver import Proven
from engine.spec.recipes.recipe import Recipe
from engine.transfer.rules import apply, plan


@dataclass(frozen=True, slots=True)
class Found:
    """By what a module fell ("" where nothing did), why, and what is proven of it."""

    by: str
    why: str
    held: Proofs

    @property
    def proven(self) -> str:
        """How many goals are proven of which parts."""
        parts = Counter(p.about for p in self.held.proofs if isinstance(p.answer, Proven))
        return ", ".join(f"{about}: {n}" for about, n in parts.items())

    def is_proven(self, about: str) -> bool:
        """Whether each goal about one part is proven for all sizes."""
        goals = [p for p in self.held.proofs if p.about == about]
        sampled = any(s.about == about for s in self.held.sampled)
        return bool(goals) and not sampled and all(isinstance(p.answer, Proven) for p in goals)


def target(base: Module, recipe: Recipe, spec: Path) -> Subject:
    """What the rules make of a lifted module for a spec, as G2 judges it."""
    planned = plan(base, recipe)
    trail = [base, *(module for _, module in apply(base, planned.steps))]
    return Subject(legal(trail[-1]), recipe, planned.binding, spec, {})


def passed(subject: Subject, archs: Sequence[str]) -> Found:
    """The subject through the whole gate, with what its launcher chooses on each of these archs."""
    failure, rows, _, held, _ = judged(subject, _silent, BY_RECIPE)
    if failure is not None:
        by = "a proof" if held.failure is not None else "a run" if rows else "a check"
        return Found(by, failure.reason, held)
    failure, _ = starved(BY_RECIPE, subject, _silent)
    if failure is not None:
        return Found("a late warp", failure.reason, held)
    for name, module, _ in other_choices(subject.module, archs):
        failure, _, _ = judged_choice(BY_RECIPE, replace(subject, module=module), _silent)
        if failure is not None:
            return Found("another arch", f"on {name}: {failure.reason}", held)
    return Found("", "", held)


def _silent(_: str) -> None:
    """Nobody watches."""
