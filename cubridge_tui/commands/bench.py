"""`cubridge bench SESSION|KERNEL|RESULT.json`: a kernel's times beside the best rivals."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubridge_tui.commands.verify import add_contents, add_runner, times_of
from cubridge_tui.console import show, show_json
from cubridge_tui.headless import add_json, add_store, narrator, neither

if TYPE_CHECKING:
    from engine.gpu.job import Contents
    from engine.service.session.workbench import Bench

FAILED, NOT_RUN = 1, 3


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", help="a session, a bundled kernel's name, or a result that is there already"
    )
    parser.add_argument("--pack", metavar="DIR", type=Path, help="only write the job there")
    add_runner(parser)
    add_contents(parser)
    parser.add_argument("--samples", type=int, help="timed calls per contestant (default: 30)")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="bars as .svg")
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.gpu.job import pack
    from engine.gpu.predicted import resources_of, with_predictions
    from engine.gpu.result import read_results, table, verdict_of
    from engine.gpu.runners import choose_runner
    from engine.service.session.gpu_verdict import job_folder
    from engine.service.session.workbench import Bench
    from sessions.store import Store

    if args.what.endswith(".json"):
        path = Path(args.what)
    else:
        tell = narrator(args.json)
        with Bench(Store.open(args.store), progress=tell) as bench:
            contents = _contents(bench, args)
            if args.pack is not None:
                folder = pack(contents, args.pack)
                if args.json:
                    show_json({"job": str(folder)})
                else:
                    show(str(folder))
                return 0
            runner = choose_runner(
                args.runner, host=args.host, python=args.python, command=args.command
            )
            job = pack(contents, job_folder(contents))
            # The kernel is verified first: a wrong one is never timed.
            options = ["--samples", str(args.samples)] if args.samples else []
            path = runner.run(job, options, bench.cancel, tell)
    results = [with_predictions(result) for result in read_results(path)]
    if args.json:
        show_json(
            {
                "results": [
                    {
                        "name": r["name"],
                        "verdict": verdict_of(r)[0],
                        "device": r["device"],
                        "method": r["method"],
                        "times": r["times"],
                        "registers": resources_of(r)[0],
                        "spilled_bytes": resources_of(r)[1],
                    }
                    for r in results
                ]
            }
        )
    else:
        for result in results:
            show(f"{result['name']}: {verdict_of(result)[0]}")
            for line in table(result):
                show(line)
    if args.plot is not None:
        _plot(results, args.plot)
    if any(verdict_of(r)[0] == "fail" for r in results):
        return FAILED
    return 0 if any(r["times"] for r in results) else NOT_RUN


def _plot(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The times as bars in a picture file."""
    from engine.errors import InputError
    from engine.gpu.bench_bars import groups_of, notes_of
    from engine.report.bars import bars
    from engine.report.picture import svg

    title = ", ".join(dict.fromkeys(str(r["name"]) for r in results))
    groups = [g for r in results for g in groups_of(r["times"], r["device"], f"{r['name']}  ")]
    notes = notes_of(results[0]["device"], str(results[0]["method"]))
    if path.suffix != ".svg":
        raise InputError(f"{path} is no picture file", fix="name one that ends in .svg")
    try:
        path.write_text(svg(bars(title, groups, notes)), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} was not written: {error.strerror}") from None


def _contents(bench: Bench, args: argparse.Namespace) -> Contents:
    from engine.errors import StoreError
    from engine.resources import list_kernels
    from engine.service.executed.opened import work_of
    from engine.service.session.gpu_verdict import contents_of, contents_of_kernel
    from engine.service.session.workbench import find_kernel

    if args.what in list_kernels() or "/" in args.what:
        package = find_kernel(args.what)
        return contents_of_kernel(bench, package, None, args.only, times_of(args))
    try:
        session = bench.store.load(args.what)
    except StoreError as error:
        raise neither(args.what, error) from None
    return contents_of(work_of(bench, session), args.only, times_of(args))
