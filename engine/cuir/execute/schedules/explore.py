"""Runs a program under many schedules.

First each part is starved once: it goes on only where no other can. Then, for small pipelines,
every schedule that departs at most `delays` times from "the first part that can go on goes on"
(delay-bounded scheduling, Emmi, Qadeer and Rakamaric 2011), which finds most ordering bugs with one
or two departures, but not a part that is late all the time. What the budget leaves goes to random
schedules. The vector clocks find an unordered access in any one of them; exploration is for what
depends on the order itself: phases, arrivals, deadlocks, and which block claims which work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from engine.cuir.execute.compiled.program import Limits, Schedule
from engine.cuir.execute.schedules.run import Outcome, run_program
from engine.cuir.execute.state.values import Tensor
from engine.cuir.findings import Finding
from engine.cuir.nodes import Module
from engine.cuir.scalar import Mode


@dataclass(frozen=True, slots=True)
class Exploration:
    """How many schedules ran, and what they found.

    `exhausted`: every schedule with at most `delays` departures was among them. `schedule` is the
    first that met a finding, or None. `outcome` is that run's, or the first run's.
    """

    runs: int
    exhausted: bool
    delays: int
    findings: tuple[Finding, ...]
    schedule: Schedule | None
    outcome: Outcome


def explore(
    module: Module,
    inputs: Mapping[str, Tensor | int | float],
    mode: Mode = "exact",
    *,
    budget: int = 200,
    delays: int = 1,
    parts: int = 2,
    limits: Limits | None = None,
    stop_at_finding: bool = True,
) -> Exploration:
    """At most `budget` runs of `module`: taking turns first, then with each part starved, then
    systematic, then random."""
    found: dict[tuple[str, tuple[str | int, ...]], Finding] = {}
    bad: tuple[Schedule, Outcome] | None = None

    def run(schedule: Schedule) -> Outcome:
        nonlocal bad
        outcome = run_program(module, inputs, mode, schedule, limits)
        for finding in outcome.findings:
            found.setdefault((finding.kind, finding.path), finding)
        if bad is None and not outcome.clean:
            bad = (schedule, outcome)
        return outcome

    first = run(Schedule(0, parts))
    runs = 1
    for starved in range(first.coverage.parts):
        if runs == budget or (bad and stop_at_finding):
            break
        run(Schedule(0, parts, starve=starved))
        runs += 1
    queue: deque[dict[int, int]] = deque([{}])
    while queue and runs < budget and not (bad and stop_at_finding):
        choices = queue.popleft()
        outcome = run(Schedule(0, parts, choices))
        runs += 1
        if len(choices) < delays:
            after = max(choices, default=-1)
            for position, options in enumerate(outcome.coverage.decisions):
                if position > after:
                    queue.extend({**choices, position: other} for other in range(1, options))
    exhausted = not queue
    seed = 1
    while runs < budget and not exhausted and not (bad and stop_at_finding):
        run(Schedule(seed, parts))
        seed += 1
        runs += 1
    return Exploration(
        runs, exhausted, delays, tuple(found.values()), bad[0] if bad else None,
        bad[1] if bad else first,
    )  # fmt: skip
