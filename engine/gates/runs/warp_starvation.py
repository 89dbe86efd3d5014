"""The order of a block's warps: runs in which one of them is late all the time, each in its turn.

A kernel of several warps that agree by barriers can hang, or read too early, in orders that random
ones hardly meet: a warp that is late for a phase of a barrier waits for it for ever. The lengths
give every kernel several blocks of rows and enough tiles of keys that a stage is filled again while
some rows still pass tiles over; where the spec allows no such lengths, the longest that it allows.

Runs in the torch child only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from torch import Tensor

from engine.cuir.execute.compiled.program import Schedule
from engine.cuir.execute.schedules.run import Outcome
from engine.cuir.findings import Finding
from engine.cuir.static.facts import Facts
from engine.gates.deck import Case
from engine.gates.runs.case_run import NUMERIC, Row, Way, outputs_of, run_module, workspace_of
from engine.gates.runs.subject import Failure, Report, Subject, op_text
from engine.transfer.match import find_attention

LENGTHS = (400, 320, 256, 192, 128, 64, 32, 16)
HEADS = ((1, 1), (2, 1), (2, 2), (4, 2), (8, 2))
SEED = 1
# A late warp leaves rows unwritten and arrivals unmatched: these say why.
FIRST = ("wrong_phase", "deadlock")
TRIED = 24  # cases that the spec allows, until one at which it runs
NONE = "no run has a late warp: the spec takes none of the sizes tried"


def starved(way: Way, subject: Subject, report: Report) -> tuple[Failure | None, list[Row]]:
    """The first failure (or None), and a row for the runs; no row where the spec takes none of the
    lengths."""
    sized = dict.fromkeys(map(subject.at_fixed, _cases()))
    tried = list(islice((c for c in sized if subject.allows(c)), TRIED))
    for case in tried:
        inputs, sizes = way.draw(subject, case, SEED)
        compare = way.compared(subject, case, inputs)
        if not isinstance(compare, str):
            break
    else:  # a spec without a recipe may run at none of them
        return None, []
    row: Row = {"case": str(case), "mode": "a late warp", "warps": 0}
    late, warps, before = 0, 1, 0
    left: Tensor | None = None
    while late < warps:
        report(f"warp {late + 1} late: {case}")
        # Another warp of each block is late; blocks that plan no lists keep their numbers so.
        schedule = Schedule(starve=late + before)
        outcome = run_module(subject, case, inputs, sizes, "exact", schedule, left)
        late, warps = late + 1, outcome.coverage.parts
        if late == Schedule().parts and _plans_by_block(subject):
            left, before = workspace_of(subject, outcome), _blocks_before(outcome)
        row["warps"] = late
        found = [f for f in outcome.findings if f.kind not in NUMERIC]
        if found:
            why = min(found, key=_rank)
            reason = f"{why.kind} when one warp is late: {why.message}"
            return Failure(reason, op=op_text(why.path)), [row]
        if outcome.status != "ran":
            reason = outcome.reason or outcome.status
            return Failure(reason, op=op_text(outcome.stopped_at or ())), [row]
        failure, numbers = compare(outputs_of(subject, outcome))
        row |= numbers
        if failure is not None:
            reason = f"{failure.reason}; this run has warp {late} late"
            return Failure(reason, failure.op, failure.counterexample), [row]
    return None, [row]


def _plans_by_block(subject: Subject) -> bool:
    """Whether all kernels but the attention itself are of `Schedule.parts` warps here, so that as
    many runs have had each of them late."""
    if subject.binding.workspace is None:
        return False
    facts, attention = Facts(subject.module), find_attention(subject.module).kernel
    others = (f.name for f in subject.module.functions if f.kind == "kernel")
    return not any(facts.by_warpgroups(name) for name in others if name != attention)


def _blocks_before(outcome: Outcome) -> int:
    """The blocks of all launches but the last."""
    return sum(math.prod(grid) for _, grid in outcome.coverage.launches[:-1])


def _cases() -> Iterator[Case]:
    """Square ones first, from the longest on; then few rows, then few keys. As many multiprocessors
    as heads: a block takes the pieces of work of about a head in turn, and others run beside it."""
    for shape in (lambda n: (n, n), lambda n: (1, n), lambda n: (n, 1)):
        for length in LENGTHS:
            for hq, hkv in HEADS:
                rows, keys = shape(length)
                yield Case(1, hq, hkv, rows, keys, modes=("exact",), processors=hq)


def _rank(finding: Finding) -> int:
    return FIRST.index(finding.kind) if finding.kind in FIRST else len(FIRST)
