"""`cubridge export SESSION DIR`: the accepted kernel as a package that needs nothing of ours."""

from __future__ import annotations

import argparse
from pathlib import Path

from cubridge_tui.console import show, show_json
from cubridge_tui.headless import add_json, add_store


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="a session's id, or the beginning of one")
    parser.add_argument("folder", help="where to write it; its name is the name to import")
    parser.add_argument(
        "--layout", choices=("package", "hub"), default="package",
        help="a package that builds itself (default), or a source for kernel-builder and the hub",
    )  # fmt: skip
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.service.executed.opened import work_of
    from engine.service.session.package_export import export_session
    from engine.service.session.workbench import Bench
    from sessions.store import Store

    store = Store.open(args.store)
    session = store.load(args.session)
    with Bench(store) as bench:
        work = work_of(bench, session)
        folder = export_session(work, Path(args.folder), args.layout)
        level = work.state.accepted_level
    if args.json:
        files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
        show_json(
            {"session": session.id, "folder": str(folder), "level": level.value, "files": files}
        )
    else:
        show(f"{folder}  {level.value}")
    return 0
