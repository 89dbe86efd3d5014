"""`cubridge replay SESSION [--check]`: the history, and whether it can be made again."""

from __future__ import annotations

import argparse

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import add_json, add_store, narrator
from cubridge_tui.model.steps import step_words

FAILED = 1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="a session's id, or the beginning of one")
    parser.add_argument("--check", action="store_true", help="do the work again and compare hashes")
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from sessions.replay import steps
    from sessions.store import Store

    store = Store.open(args.store)
    session = store.load(args.session)
    for notice in session.notices:
        say(notice)
    if not args.check:
        lines = [s.told(step_words(s.words)) for s in steps(session.events)]
        if args.json:
            show_json({"session": session.id, "steps": lines})
            return 0
        for line in lines:
            show(line)
        return 0
    from engine.service.recheck import recheck

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
            show(f"{'same   ' if row.same else 'DIFFERS'}  {row.name}{untold}")
        if first is not None:
            say(f"first difference: {first.name}: was {first.was}, now {first.now}")
    return FAILED if first is not None else 0
