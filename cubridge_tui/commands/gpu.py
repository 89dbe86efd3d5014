"""`cubridge gpu pack|import|show`: jobs that are carried by hand, and what they found."""

from __future__ import annotations

import argparse
from pathlib import Path

from cubridge_tui.commands.verify import add_contents, times_of
from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import actor, add_json, add_store, how_to_run, not_passed, writing

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
    for line in not_passed(session.state):
        say(line)
    say(f"carry it to where a GPU, torch and nvcc are, and there: {how_to_run(target)}")
    say(f"then: cubridge gpu import {session.id} result.json")
    return 0


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
