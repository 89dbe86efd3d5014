"""G1 and G2 on the CPU: run a module in both modes and compare it with the spec itself.

Both are asked for in JSON, and answered with a verdict in JSON.

Runs in the torch child only.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.cuir.parser import parse_module
from engine.cuir.static.legal_sizes import USUAL, LegalSizes
from engine.gates.analysis.size_comparisons import affordable, thresholds, unmet
from engine.gates.deck import Case, beyond
from engine.gates.diagnosis.counterexample import explained
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.by_spec import BY_SPEC, COMPARED, written
from engine.gates.reachability.untested_branches import other_sides
from engine.gates.runs.branch_coverage import Watch
from engine.gates.runs.case_run import Row, Way, run_deck
from engine.gates.runs.deck_cases import constants_of, unlisted
from engine.gates.runs.subject import Failure, Report, Subject, as_declared, at_sight
from engine.gates.runs.warp_starvation import NONE, starved
from engine.gates.schedules.schedule_coverage import Reached, reached
from engine.gates.schedules.schedule_goals import Proofs, proofs_of
from engine.gates.schedules.tile_visits import visits
from engine.spec import recipe_from_json
from engine.transfer.binding import Binding


def judge_json(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Module, recipe, binding, spec, options -> ok, reason, details, seconds.

    A recipe of None means that none could be read: the spec's own function judges alone. `base` is
    the module before the edit, where a model or a person made it: each condition that is new since
    must come out both ways. A failure is told with the weights of a wrong row, and with pictures.
    """
    begin = time.monotonic()
    spec, options = Path(payload["spec"]), payload.get("options") or {}
    read = payload["recipe"] is not None
    module, base = parse_module(payload["module"], "target.cuir"), payload.get("base")
    watch = None if base is None else Watch.of(parse_module(base, "base.cuir"), module)
    subject = Subject(
        module,
        recipe_from_json(payload["recipe"]) if read else as_declared(spec, options),
        Binding.from_json(payload["binding"]),
        spec,
        options,
        watch,
        sizes=LegalSizes(payload.get("sizes") or USUAL.most),
    )
    with subject.function:
        return _told(subject, report, BY_RECIPE if read else BY_SPEC, payload, begin)


def _told(
    subject: Subject, report: Report, way: Way, payload: dict[str, Any], begin: float
) -> dict[str, Any]:
    read, module = way is BY_RECIPE, subject.module
    failure, rows, deck, held, kinds = judged(subject, report, way)
    compared = sum("skipped" not in row and row.get("rows") != 0 for row in rows)
    late: list[Row] = []
    if failure is None:
        failure, late = starved(way, subject, report)
    details: dict[str, Any] = {"runs": [*rows, *late], **held.to_json(), **kinds.to_json()}
    if failure is not None:
        details |= failure.details()
        if details["runs"]:
            report("looking at the weights of a wrong row")
            details |= explained(way, subject, deck, details["runs"][-1], failure, read)
        return _verdict(False, failure.reason, details, begin)
    reason = f"{compared} runs equal the spec"
    if not read:
        reason += f" ({COMPARED})"
    tiles = visits(subject, deck)
    if tiles is not None:
        details["tiles"] = tiles.to_json()
    names = constants_of(subject) if read else written(subject)
    words = (
        beyond(names),
        unmet(thresholds(module), deck),
        unlisted(subject, deck) if read else "",
        "" if late else NONE,
        tiles.words() if tiles is not None else "",
        held.words(),
        kinds.words(),
        "" if subject.watch is None else subject.watch.words(),
    )
    return _verdict(True, "; ".join((reason, *filter(None, words))), details, begin)


def judge(
    subject: Subject, report: Report, way: Way = BY_RECIPE
) -> tuple[Failure | None, list[Row]]:
    """The first failure of the deck, and of what it left untested (or None); what every run
    measured."""
    failure, rows, *_ = judged(subject, report, way)
    return failure, rows


def judged(
    subject: Subject, report: Report, way: Way
) -> tuple[Failure | None, list[Row], list[Case], Proofs, Reached]:
    """`judge`, all the cases, what was proven, and what the runs do not bring about."""
    held, kinds = Proofs(), Reached()
    failure = at_sight(subject)
    if failure is not None:
        return failure, [], [], held, kinds
    deck = way.deck(subject)
    if not any(c.Nq and c.Nk and "exact" in c.modes for c in deck):
        failure = Failure("no case of the deck fits the sizes that the spec allows")
        return failure, [], deck, held, kinds
    report("proving what is said of all sizes")
    held = proofs_of(subject)
    if held.failure is not None and held.case is not None:
        failure, rows = _shown(way, subject, held.failure, held.case, report)
        return failure, rows, [held.case], held, kinds
    deck += held.more
    kinds = reached(subject, deck)
    deck += kinds.cases
    failure, rows = run_deck(way, subject, deck, report)
    failure = failure or way.lacking(rows)
    if failure is None:
        failure, more, deck = other_sides(way, subject, deck, report)
        rows = [*rows, *more]
    return failure, rows, deck, held, kinds


def _shown(
    way: Way, subject: Subject, failure: Failure, case: Case, report: Report
) -> tuple[Failure, list[Row]]:
    """A fault that was found without a run, with what a run at its sizes shows."""
    if not (subject.allows(case) and affordable(case)):
        return replace(failure, reason=f"{failure.reason}; no run of that size can be afforded"), []
    found, rows = run_deck(way, subject, [case], report)
    if found is None:
        return replace(failure, reason=f"{failure.reason}; a run there equals the spec"), rows
    reason = f"{failure.reason}; a run there shows it: {found.reason}"
    return Failure(reason, failure.op or found.op, failure.counterexample), rows


def _verdict(ok: bool, reason: str, details: dict[str, Any], begin: float) -> dict[str, Any]:
    return {
        "ok": ok, "reason": reason, "details": details, "seconds": time.monotonic() - begin,
    }  # fmt: skip
