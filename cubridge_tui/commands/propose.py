"""`cubridge propose SESSION [FILE]`: a proposal of the rules, of a person or of an agent.

Nothing is decided by it: the hunks wait for the person.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import adapting, add_agent, add_json, add_store

if TYPE_CHECKING:
    from engine.types import Proposal

FAILED = 1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="a session's id, or the beginning of one")
    parser.add_argument(
        "file", nargs="?",
        help="a whole target as a .cuir file; with --agent an edit in a model's form; - reads "
        "standard input (without: the rules propose)",
    )  # fmt: skip
    add_agent(parser)
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.service.models.agent import check_ready, propose_by_agent
    from engine.service.writers.person import propose_by_person

    text = None if args.file is None else _text(args.file)
    found: dict[str, Any] = {}
    proposal: Proposal | None
    with adapting(args, args.session) as work:
        check_ready(work, anew=text is None)
        if text is None:
            proposal = work.propose_by_rules()
        elif args.agent is None:
            proposal = propose_by_person(work, text)
        else:
            offered = propose_by_agent(work, text)
            attempt = offered.attempt
            found = {"reached": attempt.reached.word, "reason": attempt.reason,
                     "counterexample": attempt.outcome.details.get("counterexample")}  # fmt: skip
            proposal = offered.proposal
        hunks = [] if proposal is None else proposal.hunks
        name = None if proposal is None else proposal.id
        rows = [{"hunk": h.id, "title": h.title, "reason": h.reason} for h in hunks]
        if args.json:
            show_json({"session": work.session.id, "proposal": name, "hunks": rows, **found})
        else:
            for row in rows:
                show(f"{name}/{row['hunk']}  {row['title']}")
        if name is None:
            say(f"not proposed ({found['reached']}): {found['reason']}")
            return FAILED
        say(f"{name}: {len(rows)} hunks wait for the person's decision")
    return 0


def _text(file: str) -> str:
    from engine.files import read_text

    if file == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return read_text(Path(file), "give a file, or - for standard input")
