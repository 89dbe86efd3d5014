"""`cubridge sessions list|show|rename|delete|restore`: what is in the store, and what it is called.

A deleted session is put aside, not destroyed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import add_json, add_store, writing
from cubridge_tui.model.steps import step_words

if TYPE_CHECKING:
    from sessions.listing import SessionSummary
    from sessions.store import Store


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["list", "show", "rename", "delete", "restore"])
    parser.add_argument(
        "session", nargs="?",
        help="a session's id, or the beginning of one (restore without one: those that can be)",
    )  # fmt: skip
    parser.add_argument("title", nargs="?", help="rename: its new title; the id stays")
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.errors import InputError
    from sessions.store import Store

    store = Store.open(args.store)
    if (args.title is not None) != (args.action == "rename"):
        fix = "cubridge sessions rename SESSION TITLE gives a session another title"
        raise InputError("a title goes with rename, and rename with a title", fix=fix)
    if args.action == "list" and args.session:
        fix = f"cubridge sessions show {args.session[:40]}, or sessions list alone"
        raise InputError("sessions list takes no session: it lists all", fix=fix)
    if args.action == "list":
        return _list(store.sessions(), store, args)
    if args.action == "restore" and not args.session:
        return _list(store.deleted(), store, args)
    if not args.session:
        raise InputError("which session?", fix="cubridge sessions list shows them")
    if args.action == "show":
        return _show(store, args)
    return _change(store, args)


def _change(store: Store, args: argparse.Namespace) -> int:
    """Rename, delete or restore a session."""
    from cubridge_tui.headless import actor
    from engine.errors import InputError
    from sessions.events import TitleSet
    from sessions.ids import title_problem

    if args.action == "rename":
        if problem := title_problem(args.title):
            raise InputError(problem, fix="give it other words")
        with writing(store, args.session, brief=True) as writer:
            writer.append([TitleSet(args.title)], actor=actor())
            session, said = writer.id, "renamed"
    elif args.action == "delete":
        session = store.delete(args.session)
        said = f"deleted; cubridge sessions restore {session} brings it back"
    else:
        session, said = store.restore(args.session), "restored"
    if args.json:
        show_json({"session": session, "done": args.action})
    else:
        say(f"{session}: {said}")
    return 0


def _list(found: list[SessionSummary], store: Store, args: argparse.Namespace) -> int:
    from sessions.ids import slug_of
    from sessions.replay import quoted

    if args.json:
        rows = [
            {"session": s.id, "title": s.title, "kernel": s.kernel, "spec": s.spec,
             "level": s.level.value, "accepted": s.accepted.value if s.accepted else None,
             "stage": s.stage, "last_step": step_words(s.last_step), "events": s.events,
             "updated": s.updated, "damaged": s.damaged}
            for s in found
        ]  # fmt: skip
        show_json({"store": str(store.path), "sessions": rows})
        return 0
    width = max((len(s.id) for s in found), default=0)
    for s in found:
        mark = "  DAMAGED" if s.damaged else ""
        when = s.updated[:16].replace("T", " ")
        renamed = "" if s.id.startswith(slug_of(s.title)) else f"  {quoted(s.title)}"
        step = step_words(s.last_step)
        show(f"{s.id:<{width}}  {s.level.value:<13} {when}  {step}{renamed}{mark}")
    if not found:
        kind = "deleted " * (args.action == "restore")
        say(f"no {kind}sessions in {store.path}")
    return 0


def _show(store: Store, args: argparse.Namespace) -> int:
    from cubridge_tui.model.next_step import owed
    from engine.types.trust import beside, rests_on

    session = store.load(args.session)
    state = session.state
    created = state.created
    for notice in session.notices:
        say(notice)
    verdicts = [v.to_json() for v in state.verdicts]
    hunks = [
        {"proposal": p.id, "hunk": h.id, "title": h.title, "origin": h.origin.value,
         "decision": d.kind.value if (d := state.decision(p.id, h.id)) else None,
         "comment": said.text if (said := state.comment(p.id, h.id)) else None}
        for p in state.proposals
        for h in p.hunks
    ]  # fmt: skip
    if args.json:
        show_json(
            {
                "session": session.id,
                "title": state.title,
                "kernel": created.kernel if created else None,
                "spec": created.spec if created else None,
                "stage": state.furthest.value if state.furthest else None,
                "level": state.level.value,
                "rests_on": rests_on(state.verdicts),
                "accepted": state.accepted_level.value if state.acceptance else None,
                "verdicts": verdicts,
                "hunks": hunks,
                "artifacts": dict(state.hashes),
                "events": state.count,
                "next": owed(state).words,
            }
        )
        return 0
    show(f"{session.id}  {state.title}")
    show(
        f"  level {state.level}{beside(rests_on(state.verdicts))}"
        + (f", accepted as {state.accepted_level}" if state.acceptance else "")
    )
    for verdict in state.verdicts:
        show(f"  {verdict.gate} {verdict.kind:<10} {verdict.reason}")
    for row in hunks:
        show(
            f"  {row['proposal']}/{row['hunk']}  {row['decision'] or 'undecided':<9} {row['title']}"
        )
    for name, sha in sorted(state.hashes.items()):
        show(f"  {sha[:12]}  {name}")
    return 0
