"""`cubridge lower SESSION`: write the accepted target back into the source, and judge G3."""

from __future__ import annotations

import argparse

from cubridge_tui.console import say, show_json, show_source
from cubridge_tui.headless import adapting, add_agent, add_json, add_store, left_overridden

FAILED = 1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="a session's id, or the beginning of one")
    parser.add_argument("--out", help="write the lowered source to this file")
    add_agent(parser)
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from engine.service.session.disk_inputs import check_kernel, check_spec
    from engine.types import Gate

    with adapting(args, args.session) as work:
        check_spec(work)
        check_kernel(work)
        lowering = work.lower()
        verdict = left_overridden(work, Gate.G3, args) or work.judge_lowered(lowering)
        say(f"lowered   {verdict.gate} {verdict.kind}  {verdict.reason}")
        if args.out:
            Path(args.out).write_bytes(lowering.source)
        if args.json:
            show_json(
                {
                    "session": work.session.id,
                    "verdict": verdict.to_json(),
                    "changed_lines": lowering.changed_lines,
                    "total_lines": lowering.total_lines,
                }
            )
        elif not args.out:
            show_source(lowering.source.decode("utf-8", "replace").rstrip("\n"))
    return FAILED if verdict.stops else 0
