"""G1 and G2 for every arch that a kernel is built for: what its launcher chooses there as well.

A launcher that asks how much shared memory a block may have takes other tiles on another arch. The
deck is run with the tiles of the session's arch; each other choice is run on a few small cases, so
that a literal in a name's place (`* 128` for `* BM`) does not pass where it happens to be right.

Runs in the torch child only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from engine.cuir.nodes import Module, Str
from engine.cuir.parser import parse_module
from engine.cuir.static.host_constants import host_constants
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import UNKNOWN, Case, Tiles, sections
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.by_spec import BY_SPEC
from engine.gates.g1_g2.judge import judge_json
from engine.gates.runs.case_run import Row, Way, run_deck
from engine.gates.runs.deck_cases import bent
from engine.gates.runs.subject import Failure, Report, Subject, as_declared, at_sight
from engine.gates.schedules.schedule_goals import Proofs, proofs_of
from engine.spec import recipe_from_json
from engine.transfer.binding import Binding


def judge_choices(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """`judge_json`, and where that passes what the launcher chooses on the other `archs`."""
    subject = _subject(payload)
    verdict = judge_json(payload, report)
    if not verdict["ok"]:
        return verdict
    with subject.function:
        return _elsewhere(payload, report, subject, verdict)


def _elsewhere(
    payload: dict[str, Any], report: Report, subject: Subject, verdict: dict[str, Any]
) -> dict[str, Any]:
    way = BY_SPEC if payload["recipe"] is None else BY_RECIPE
    for name, module, chosen in other_choices(subject.module, payload.get("archs") or ()):
        there = partial(_told_on, name, report)
        failure, rows, held = judged_choice(way, replace(subject, module=module), there)
        details = verdict["details"]
        details["runs"] += [row | {"arch": name} for row in rows]
        for kind, found in held.to_json().items():
            details[kind] = [*details.get(kind, ()), *(one | {"arch": name} for one in found)]
        if failure is not None:
            words = ", ".join(f"{n} {v}" for n, v in chosen.items())
            reason = f"{failure.reason}; this is on {name}, where the launcher chooses {words}"
            return verdict | {"ok": False, "reason": reason, "details": details | failure.details()}
    return verdict


def _told_on(name: str, report: Report, text: str) -> None:
    report(f"on {name}, {text}")


def other_choices(
    module: Module, archs: Sequence[str]
) -> Iterator[tuple[str, Module, Mapping[str, int]]]:
    """The module on each arch whose launcher chooses as on none before it, with the numbers that
    are other ones than on the module's own arch."""
    first = host_constants(module)
    seen = [first]
    for name in archs:
        there = replace(
            module, spec=tuple((k, Str(name) if k == "arch" else v) for k, v in module.spec)
        )
        found = host_constants(there)
        if found not in seen:
            seen.append(found)
            yield name, there, {n: v for n, v in found.items() if first.get(n) != v}


def _subject(payload: Mapping[str, Any]) -> Subject:
    spec, options, recipe = Path(payload["spec"]), payload.get("options") or {}, payload["recipe"]
    return Subject(
        parse_module(payload["module"], "target.cuir"),
        as_declared(spec, options) if recipe is None else recipe_from_json(recipe),
        Binding.from_json(payload["binding"]),
        spec,
        options,
    )


def judged_choice(
    way: Way, subject: Subject, report: Report
) -> tuple[Failure | None, list[Row], Proofs]:
    """One choice of tiles on a few small cases: its first failure, its runs and what is proven."""
    failure, held = at_sight(subject), Proofs()
    if failure is None:
        held = proofs_of(subject)
        failure = held.failure
    if failure is not None:
        return failure, [], held
    cases = (bent(subject, case) for case in _cases(tiles_of(subject.module)))
    deck = [*(c for c in cases if c is not None), *held.more]
    return *run_deck(way, subject, deck, report), held


def _cases(tiles: Tiles | None) -> tuple[Case, ...]:
    """Three blocks of rows, three tiles of keys, the last ones short; one of each; more heads than
    a section has."""
    at = tiles or UNKNOWN
    return (
        Case(1, 2, 1, 2 * at.rows + 3, 2 * at.keys + 5, turn=0, slots=1),
        Case(2, 2, 2, 7, 5, modes=("exact",), turn=0),
        *sections(at),
    )
