"""`cubridge replay SESSION [--html FILE | --check]`: the history, as one reads it or as a page that
stands alone; and whether it can be made again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import add_json, add_store, narrator
from cubridge_tui.model.steps import step_words
from cubridge_tui.model.story import story

if TYPE_CHECKING:
    from sessions.session import Session
    from sessions.store import Store

FAILED = 1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="a session's id, or the beginning of one")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="do the work again and compare hashes")
    what.add_argument(
        "--html", metavar="FILE",
        help="write one page that needs nothing else: texts side by side, hunks, verdicts, history",
    )  # fmt: skip
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from sessions.replay import steps
    from sessions.store import Store

    store = Store.open(args.store)
    session = store.load(args.session)
    for notice in session.notices:
        say(notice)
    if args.html is not None:
        return _page(store, session, args)
    if not args.check:
        history = list(steps(session.events))
        if args.json:
            lines = [s.told(step_words(s.words)) for s in history]
            show_json({"session": session.id, "steps": lines})
            return 0
        for line in story(history):
            show(line)
        return 0
    from engine.service.upkeep.recheck import recheck

    rows = recheck(session, narrator(args.json))
    first = next((row for row in rows if not row.same), None)
    if args.json:
        show_json(
            {
                "session": session.id,
                "same": first is None,
                "first_difference": first.name if first else None,
                "checks": [
                    {"name": r.name, "same": r.same, "was": r.was, "now": r.now, "untold": r.untold}
                    for r in rows
                ],
            }
        )
    else:
        for row in rows:
            untold = f"  ({row.untold})" if row.untold else ""
            show(f"{row.word:<7}  {row.name}{untold}")
        if first is not None:
            say(f"first difference: {first.name}: was {first.was}, now {first.now}")
    return FAILED if first is not None else 0


def _page(store: Store, session: Session, args: argparse.Namespace) -> int:
    from cubridge_tui.model.builder import Builder
    from cubridge_tui.model.page_pictures import write_page
    from engine.service.executed.opened import work_of
    from engine.service.session.workbench import Bench

    snap = Builder(work_of(Bench(store), session)).snapshot()
    path = Path(args.html)
    said = write_page(path, snap, session.events)
    if args.json:
        show_json({"session": session.id, "page": str(path), "bytes": path.stat().st_size})
    else:
        say(said)
    return 0
