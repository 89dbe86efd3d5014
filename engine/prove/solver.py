"""The solver: a claim about whole numbers is proven, refuted by a smallest witness, or unknown.

Proven means something only where the assumptions can hold and the claim could have failed. So each
goal brings a false twin, the claim with a seeded fault: a goal is proven only after its assumptions
are satisfied by an example and its twin is refuted.

Budgets are z3's own steps (rlimit), never seconds, and each goal is solved in a context of its own:
the same goal gets the same answer on a fast machine and a slow one, whatever was asked before.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import z3

VERSION = f"z3 {z3.get_version_string()}"
# z3's smt.arith.solver and random seed. The older solver is the quicker one; products need the
# newer one, whose luck differs by seed: several short tries decide more than a long one.
SETTINGS = ((2, 0), (6, 0), (2, 3), (6, 1), (2, 2), (6, 2))
BUDGET = 700_000  # z3's steps for one question to one of them: half a second
STEP = 300_000  # and for one step towards a smaller witness

# z3 comes without types.
Condition: TypeAlias = Any  # z3.BoolRef
Whole: TypeAlias = Any  # z3.ArithRef
Model: TypeAlias = Any
Setting = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Proven:
    """It holds at every legal size. `solver` is the setting that proved it."""

    solver: str
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Witness:
    """Values at which it fails (or, where a point was looked for, is so). `minimal`: whether the
    solver showed that none is smaller, in the order that the goal gives."""

    values: Mapping[str, int]
    minimal: bool = True
    seconds: float = field(default=0.0, compare=False)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values.items())


@dataclass(frozen=True, slots=True)
class Unknown:
    """The solver did not decide it within its budget, or the goal could prove nothing."""

    reason: str
    seconds: float = field(default=0.0, compare=False)


Answer = Proven | Witness | Unknown


@dataclass(frozen=True, slots=True)
class Goal:
    """`given` implies `claim`, for all values of the names in both.

    `twin` is the claim with a seeded fault: it must be refuted. A witness gives the values of
    `shown` by name, and is the smallest by `smallest`, term after term (each is at
    least 0 under `given`).
    """

    name: str
    given: tuple[Condition, ...]
    claim: Condition
    twin: Condition
    shown: Mapping[str, Whole]
    smallest: tuple[Whole, ...] = ()


def prove(goal: Goal, budget: int = BUDGET) -> Answer:
    """Whether the claim holds wherever its assumptions do.

    The answer of the same goal is kept: it would be the same again, `seconds` aside.
    """
    stated = _alike((*goal.given, goal.claim, goal.twin), goal.shown, goal.smallest)
    return _proved(_Stated(goal, stated), budget)


@dataclass(frozen=True, slots=True)
class _Stated:
    goal: Goal = field(compare=False)
    alike: tuple[tuple[Any, ...], ...]


def _alike(
    conditions: Sequence[Condition], shown: Mapping[str, Whole], smallest: Sequence[Whole]
) -> tuple[tuple[Any, ...], ...]:
    """What two questions have in common that ask the same. A context keeps one term of each kind
    for as long as anybody holds it, as who keeps an answer does: its number says which it is."""
    terms = (conditions, tuple(shown.values()), smallest)
    return tuple(shown), *(tuple((term.ctx, term.get_id()) for term in kind) for kind in terms)


@lru_cache(maxsize=1024)
def _proved(stated: _Stated, budget: int) -> Answer:
    begin, goal = time.monotonic(), stated.goal

    def seconds() -> float:
        return time.monotonic() - begin

    context = z3.Context()
    refuted = (*goal.given, z3.Not(goal.claim))
    wrong = _find(refuted, goal.shown, goal.smallest, budget, context)
    if isinstance(wrong, Unknown) and z3.is_and(goal.claim):
        parts = [replace(goal, claim=part) for part in goal.claim.children()]
        answers = [prove(part, budget) for part in parts]
        wrong = next((a for a in answers if not isinstance(a, Proven)), answers[0])
    if not isinstance(wrong, Proven):
        return wrong
    # What refutes the twin satisfies the assumptions: they are asked about where nothing does.
    if not isinstance(_find((*goal.given, z3.Not(goal.twin)), {}, (), budget, context), Witness):
        can_hold = isinstance(_find(goal.given, {}, (), budget, context), Witness)
        fault = "its false twin is not refuted"
        return Unknown(fault if can_hold else "no legal size satisfies its assumptions", seconds())
    return Proven(wrong.solver, seconds())


def find(
    conditions: Sequence[Condition],
    shown: Mapping[str, Whole],
    smallest: Sequence[Whole] = (),
    budget: int = BUDGET,
) -> Answer:
    """The smallest values that satisfy the conditions; proven: that there are none. The answer is
    kept, as that of `prove`."""
    asked = _Asked((tuple(conditions), shown, tuple(smallest)), _alike(conditions, shown, smallest))
    return _found_once(asked, budget)


@dataclass(frozen=True, slots=True)
class _Asked:
    terms: tuple[tuple[Condition, ...], Mapping[str, Whole], tuple[Whole, ...]] = field(
        compare=False
    )
    alike: tuple[tuple[Any, ...], ...]


@lru_cache(maxsize=1024)
def _found_once(asked: _Asked, budget: int) -> Answer:
    return _find(*asked.terms, budget, z3.Context())


def _find(
    conditions: Sequence[Condition],
    shown: Mapping[str, Whole],
    smallest: Sequence[Whole],
    budget: int,
    context: Any,
) -> Answer:
    """`find` in the context of the other questions of its goal: a new one costs more than most
    questions."""
    begin = time.monotonic()
    asked = [c.translate(context) for c in conditions]
    names = {name: term.translate(context) for name, term in shown.items()}
    sizes = [term.translate(context) for term in smallest]
    reason = ""
    for setting in SETTINGS:
        solver = _solver(context, setting, budget, asked)
        result = solver.check()
        if result == z3.unsat:
            name = f"{VERSION}, arith.solver {setting[0]}, seed {setting[1]}"
            return Proven(name, time.monotonic() - begin)
        if result == z3.sat:
            model, minimal = _smaller(context, setting, asked, sizes, solver.model())
            values = {name: _value(model, term) for name, term in names.items()}
            return Witness(values, minimal, time.monotonic() - begin)
        reason = solver.reason_unknown()
    spent = "canceled" in reason or "resource limit" in reason
    return Unknown("the solver's budget is spent" if spent else reason, time.monotonic() - begin)


def _smaller(
    context: Any, setting: Setting, asked: list[Condition], sizes: list[Whole],
    model: Model,
) -> tuple[Model, bool]:  # fmt: skip
    """The model that is the smallest by one term after another, and whether all smaller ones were
    ruled out. Witnesses are mostly small: the search goes up from 0 in growing steps."""
    minimal, held = True, list(asked)
    for size in sizes:
        low, high, step = -1, _value(model, size), 1  # none is at `low` or below
        while low + 1 < high:
            middle = min(low + step, (low + high) // 2)
            solver = _solver(context, setting, STEP, [*held, size <= middle])
            result = solver.check()
            if result == z3.sat:
                model = solver.model()
                high = _value(model, size)
            else:
                minimal = minimal and result == z3.unsat
                low, step = middle, 4 * step
        held.append(size == high)
    return model, minimal


def _solver(context: Any, setting: Setting, budget: int, conditions: Sequence[Condition]) -> Any:
    solver = z3.Solver(ctx=context)
    solver.set("arith.solver", setting[0])
    solver.set("random_seed", setting[1])
    solver.set("rlimit", budget)
    solver.add(*conditions)
    return solver


def _value(model: Model, term: Whole) -> int:
    value = model.eval(term, model_completion=True)
    return int(z3.is_true(value) if z3.is_bool(value) else value.as_long())
