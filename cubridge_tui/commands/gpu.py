"""`cubridge gpu pack|import|show`: jobs that are carried by hand, and what they found."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cubridge_tui.commands.verify import add_contents, times_of
from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import actor, add_json, add_store, how_to_run, writing

if TYPE_CHECKING:
    from sessions.state import SessionState

FAILED, NOT_RUN = 1, 3


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="pack|import|show")
    pack = actions.add_parser("pack", help="write a session's job to a folder or a .tar")
    pack.add_argument("session", help="a session's id, or the beginning of one")
    pack.add_argument(
        "dir", type=Path, metavar="DIR", help="a new folder, or a file ending in .tar"
    )
    add_contents(pack)
    take = actions.add_parser("import", help="record a job's result as the session's G4")
    take.add_argument("session", help="a session's id, or the beginning of one")
    take.add_argument("result", type=Path, metavar="RESULT", help="the JSON file that run.py wrote")
    look = actions.add_parser("show", help="what a result says, without recording it")
    look.add_argument("result", type=Path, metavar="RESULT", help="the JSON file that run.py wrote")
    for action in (pack, take):
        add_store(action)
    for action in (pack, take, look):
        add_json(action)


def run(args: argparse.Namespace) -> int:
    return {"pack": _pack, "import": _import, "show": _show}[args.action](args)


def _pack(args: argparse.Namespace) -> int:
    from engine.gpu.job import hashes_of, pack
    from engine.service.executed.opened import work_of
    from engine.service.session.gpu_verdict import contents_of
    from engine.service.session.workbench import Bench
    from sessions.store import Store

    store = Store.open(args.store)
    with Bench(store) as bench:
        session = store.load(args.session)
        contents = contents_of(work_of(bench, session), args.only, times_of(args))
        target = pack(contents, args.dir)
    if args.json:
        show_json({"session": session.id, "job": str(target), "hashes": hashes_of(contents)})
        return 0
    show(str(target))
    for line in _not_passed(session.state):
        say(line)
    say(f"carry it to where a GPU, torch and nvcc are, and there: {how_to_run(target)}")
    say(f"then: cubridge gpu import {session.id} result.json")
    return 0


def _not_passed(state: SessionState) -> Iterator[str]:
    """What makes a GPU's time worth nothing: a target that the gates before have not passed."""
    from engine.types import Gate, VerdictKind

    for gate in (Gate.G1, Gate.G2, Gate.G3):
        verdict = state.verdict(gate)
        kind = VerdictKind.NOT_RUN if verdict is None else verdict.kind
        if kind not in (VerdictKind.PASS, VerdictKind.OVERRIDDEN):
            yield f"note: {gate} {kind}: a GPU's pass raises no level before {gate} passes"
    undecided = sum(
        state.decision(p.id, h.id) is None for p in state.proposals[-1:] for h in p.hunks
    )
    if undecided:
        yield f"note: {undecided} hunks are undecided, and none of them is in this kernel"


def _import(args: argparse.Namespace) -> int:
    from engine.service.executed.opened import adaptation_of
    from engine.service.session.gpu_verdict import verdict_from
    from engine.service.session.workbench import Bench
    from engine.types import VerdictKind
    from engine.types.trust import beside, rests_on
    from sessions.store import Store

    store = Store.open(args.store)
    with Bench(store) as bench, writing(store, args.session) as writer:
        work = adaptation_of(bench, writer, actor())
        verdict = work.give(verdict_from(work, args.result))
        level, trust = work.state.level, rests_on(work.state.verdicts)
        session = writer.id
    say(f"verified  {verdict.gate} {verdict.kind}  {verdict.reason}")
    if args.json:
        show_json({
            "session": session, "level": level.value, "rests_on": trust,
            "verdict": verdict.to_json(),
        })  # fmt: skip
    else:
        show(f"{session}  {level}{beside(trust)}")
    if verdict.kind is VerdictKind.FAIL:
        return FAILED
    return 0 if verdict.kind is VerdictKind.PASS else NOT_RUN


def _show(args: argparse.Namespace) -> int:
    from engine.gpu.result import read_results, report, verdict_of

    results = read_results(args.result)
    kinds = [verdict_of(result)[0] for result in results]
    if args.json:
        show_json(
            {
                "results": [
                    {
                        "name": result["name"],
                        "verdict": verdict_of(result)[0],
                        "reason": verdict_of(result)[1],
                        "device": result["device"],
                        "hashes": result["hashes"],
                        "checks": result["checks"],
                        "self_test": result["self_test"],
                        "times": result["times"],
                    }
                    for result in results
                ]
            }
        )
    else:
        for result in results:
            for line in report(result):
                show(line)
    if "fail" in kinds:
        return FAILED
    return NOT_RUN if "not_run" in kinds else 0
