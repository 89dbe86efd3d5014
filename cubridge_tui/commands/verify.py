"""`cubridge verify SESSION`: run G4 on a GPU, here or elsewhere, or pack the job that does."""

from __future__ import annotations

import argparse
from pathlib import Path

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import (
    actor,
    add_json,
    add_store,
    how_to_run,
    narrator,
    not_passed,
    writing,
)

FAILED, NOT_RUN = 1, 3


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="a session's id, or the beginning of one")
    parser.add_argument("--pack", metavar="DIR", type=Path, help="only write the job there")
    add_runner(parser)
    add_contents(parser)
    parser.add_argument("--no-bench", action="store_true", help="verify, and time nothing")
    parser.add_argument(
        "--self-test", action="store_true", help="also show that broken kernels are rejected"
    )
    add_store(parser)
    add_json(parser)


def add_runner(parser: argparse.ArgumentParser) -> None:
    """Where the GPU is."""
    parser.add_argument(
        "--runner",
        choices=["local", "ssh", "command", "ray"],
        default="local",
        help="default: local",
    )
    parser.add_argument(
        "--host",
        help="the ssh runner's machine (default: $CUBRIDGE_GPU_HOST), or the address of the ray "
        "runner's cluster (default: $RAY_ADDRESS, else the cluster that this machine is part of)",
    )
    parser.add_argument("--python", help="the Python with torch that runs the job")
    parser.add_argument(
        "--command",
        help="the command runner's line, such as 'srun --gres=gpu:1 python3 {job}/run.py --out "
        "{out} {options}' (default: $CUBRIDGE_GPU_COMMAND)",
    )


def add_contents(parser: argparse.ArgumentParser) -> None:
    """What goes into the job."""
    from engine.worker.orchestration.job_options import shape
    from engine.worker.problems.problem_sizes import FORM

    parser.add_argument(
        "--only",
        nargs="+",
        metavar="KEY",
        default=[],
        help="specialisations to take, such as bf16_128 (default: all)",
    )
    parser.add_argument(
        "--lengths", nargs="+", type=int, metavar="N", help="sequence lengths to time"
    )
    parser.add_argument("--shapes", nargs="+", type=shape, metavar="SHAPE", help=f"or: {FORM}")


def times_of(args: argparse.Namespace) -> dict[str, object]:
    out: dict[str, object] = {"lengths": args.lengths} if args.lengths else {}
    return out | ({"shapes": args.shapes} if args.shapes else {})


def run(args: argparse.Namespace) -> int:
    from engine.gpu.job import pack
    from engine.gpu.runners import choose_runner
    from engine.service.executed.opened import adaptation_of, work_of
    from engine.service.session.gpu_verdict import contents_of, job_folder, verdict_from
    from engine.service.session.workbench import Bench
    from engine.types import VerdictKind
    from engine.types.trust import beside, rests_on
    from sessions.store import Store, check_writable

    store = Store.open(args.store)
    tell = narrator(args.json)
    with Bench(store, progress=tell) as bench:
        session = store.load(args.session)
        contents = contents_of(work_of(bench, session), args.only, times_of(args))
        if args.pack is not None:
            folder = pack(contents, args.pack)
            if args.json:
                show_json({"session": session.id, "job": str(folder), "verdict": None})
            else:
                show(str(folder))
                for line in not_passed(session.state):
                    say(line)
                say(f"carry it to where a GPU, torch and nvcc are, and there: {how_to_run(folder)}")
                say(f"then: cubridge gpu import {session.id} result.json")
            return 0
        check_writable(store)
        runner = choose_runner(
            args.runner, host=args.host, python=args.python, command=args.command
        )
        job = pack(contents, job_folder(contents))
        options = [
            *(["--no-bench"] if args.no_bench else []),
            *(["--self-test"] if args.self_test else []),
        ]
        result = runner.run(job, options, bench.cancel, tell)
        with writing(store, session.id) as writer:
            work = adaptation_of(bench, writer, actor())
            verdict = work.give(verdict_from(work, result))
        say(f"verified  {verdict.gate} {verdict.kind}  {verdict.reason}")
        state = store.load(session.id).state
        trust = rests_on(state.verdicts)
        if args.json:
            show_json(
                {
                    "session": session.id,
                    "job": str(job),
                    "result": str(result),
                    "verdict": verdict.to_json(),
                    "level": state.level.value,
                    "rests_on": trust,
                }
            )
        else:
            show(f"{session.id}  {state.level}{beside(trust)}")
    if verdict.kind is VerdictKind.FAIL:
        return FAILED
    return 0 if verdict.kind is VerdictKind.PASS else NOT_RUN
