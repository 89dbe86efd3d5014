"""`cubridge status [FOLDER]`: a repository's accepted kernels: which are stale, what to type."""

from __future__ import annotations

import argparse
from pathlib import Path

from cubridge_tui.console import say, show, show_json, typeable
from cubridge_tui.headless import add_json, add_store

STALE = 1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", nargs="?", default=".", type=Path,
        help="a repository, or a folder of one (default: the current one)",
    )  # fmt: skip
    parser.epilog = "Exit code 1 where a kernel is stale, or its level is not the one it claims."
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.service.upkeep.staleness import Judges, accepted_kernels, repository_of, status_of
    from sessions.store import Store

    top = repository_of(args.folder)
    judges = Judges(Store.open(args.store))
    found = [status_of(folder, judges) for folder in accepted_kernels(top)]
    if args.json:
        rows = [
            {"folder": str(k.folder), "level": "" if k.level is None else k.level.value,
             "session": k.session, "stale": dict(k.stale),
             "unknown": dict(k.unknown), "steps": list(k.steps)}
            for k in found
        ]  # fmt: skip
        show_json({"repository": str(top), "kernels": rows})
        return STALE if any(k.stale for k in found) else 0
    if not found:
        say(f"no accepted kernels in {top}: `cubridge export SESSION FOLDER` writes one")
    for kernel in found:
        words = "STALE" if kernel.stale else "not all compared" if kernel.unknown else "current"
        found_at = str(kernel.folder.relative_to(top))
        show(
            "  ".join(
                [found_at, kernel.level.value, words] if kernel.level else [found_at, "unknown"]
            )
        )
        for what, why in kernel.stale.items():
            show(f"  {what}: {why}")
        for what, why in kernel.unknown.items():
            show(f"  {what} not compared: {why}")
        for step in kernel.steps:
            show(f"  type: {typeable(step)}")
    return STALE if any(k.stale for k in found) else 0
