"""The order of a block's warps: runs in which one of them is late all the time, each in its turn.

A kernel of several warps that agree by barriers can hang, or read too early, in orders that random
ones hardly meet: a warp that is late for a phase of a barrier waits for it for ever. The lengths
give every kernel several blocks of rows and enough tiles of keys that a stage is filled again while
some rows still pass tiles over.

Runs in the torch child only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.cuir.execute import Schedule, run_program
from engine.cuir.findings import Finding
from engine.gates.deck import Case
from engine.gates.judge import NUMERIC, Failure, Report, Subject, _is_element, _op
from engine.spec.inputs import violated
from engine.transfer.binding import SLOTS
from engine.transfer.fill import fill_arguments
from engine.transfer.workspace import launch_constants

CASE = Case(1, 1, 1, 400, 400, modes=("exact",))
SEED = 1
# A late warp leaves rows unwritten and arrivals unmatched: these say why.
FIRST = ("wrong_phase", "deadlock")
Draw = Callable[[Subject, Case, int], tuple[dict[str, Any], dict[str, int]]]


def starved(
    subject: Subject, draw: Draw, report: Report
) -> tuple[Failure | None, list[dict[str, Any]]]:
    """The first failure (or None), and a row for the runs; no row where the spec takes no such
    lengths. `draw` makes the inputs and the sizes of a case."""
    fixed = {"D": subject.head_dim, "Dv": subject.head_dim}
    heads = ((1, 1), (2, 1), (2, 2), (4, 2), (8, 2))
    cases = (replace(CASE, Hq=hq, Hkv=hkv) for hq, hkv in heads)
    case = next((c for c in cases if violated(subject.recipe, c.sizes | fixed) is None), None)
    if case is None:
        return None, []
    inputs, sizes = draw(subject, case, SEED)
    given = {
        n: t.to(torch.float64) if isinstance(t, Tensor) and _is_element(subject.recipe, n) else t
        for n, t in inputs.items()
    }
    known = {**launch_constants(subject.module, subject.binding), **sizes}
    filled = fill_arguments(
        subject.binding, given, known, torch.float64, torch.float64, SLOTS
    ).fields
    row: dict[str, Any] = {"case": str(case), "mode": "a late warp", "warps": 0}
    late, warps = 0, 1
    while late < warps:
        report(f"warp {late + 1} late: {case}")
        outcome = run_program(subject.module, filled, "exact", Schedule(starve=late))
        late, warps = late + 1, outcome.coverage.parts
        row["warps"] = late
        found = [f for f in outcome.findings if f.kind not in NUMERIC]
        if found:
            why = min(found, key=_rank)
            reason = f"{why.kind} when one warp is late: {why.message}"
            return Failure(reason, op=_op(why.path)), [row]
        if outcome.status != "ran":
            reason = outcome.reason or outcome.status
            return Failure(reason, op=_op(outcome.stopped_at or ())), [row]
    return None, [row]


def _rank(finding: Finding) -> int:
    return FIRST.index(finding.kind) if finding.kind in FIRST else len(FIRST)
