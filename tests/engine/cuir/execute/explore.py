"""Runs a program under many schedules.

First each part is starved once: it goes on only where no other can. Then every schedule that
departs at most once from "the first part that can go on goes on" (delay-bounded scheduling, Emmi,
Qadeer and Rakamaric 2011), which finds most ordering bugs, but not a part that is always late. The
vector clocks find an unordered access in any one of them; exploration is for what depends on
the order itself: phases, arrivals, deadlocks, and which block claims which work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.cuir.execute import Finding, Limits, Outcome, Schedule, run_program
from engine.cuir.execute.state.values import Tensor
from engine.cuir.nodes import Module

PARTS = 2


@dataclass(frozen=True, slots=True)
class Exploration:
    """How many schedules ran, to the first with findings. `exhausted`: all that there are did."""

    runs: int
    exhausted: bool
    findings: tuple[Finding, ...] = ()
    schedule: Schedule | None = None


def explore(
    module: Module, inputs: Mapping[str, Tensor | int | float], *,
    budget: int, limits: Limits | None = None,
) -> Exploration:  # fmt: skip
    """At most `budget` runs in exact mode."""
    outcomes: list[Outcome] = []
    for schedule in _schedules(outcomes):
        if len(outcomes) == budget:
            return Exploration(budget, exhausted=False)
        outcomes.append(run_program(module, inputs, "exact", schedule, limits))
        if not outcomes[-1].clean:
            return Exploration(len(outcomes), False, outcomes[-1].findings, schedule)
    return Exploration(len(outcomes), exhausted=True)


def _schedules(outcomes: list[Outcome]) -> Iterator[Schedule]:
    """Taking turns, each part starved, then the systematic ones; `outcomes` of those before."""
    yield Schedule(0, PARTS)
    for part in range(outcomes[0].coverage.parts):
        yield Schedule(0, PARTS, starve=part)
    yield Schedule(0, PARTS, {})
    for position, options in enumerate(outcomes[-1].coverage.decisions):
        for other in range(1, options):
            yield Schedule(0, PARTS, {position: other})
