"""What the headless commands share: options, the actor's name, progress on standard error."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubridge_tui.console import say
from engine.errors import InputError, StoreError, nearest

if TYPE_CHECKING:
    import argparse

    from engine.service.session.adaptation import Adaptation
    from engine.types import Gate, Verdict
    from sessions.session import Session
    from sessions.state import SessionState
    from sessions.store import Store
    from sessions.writer import Writer


GATE_FAILED, GATE_MISSING = 1, 3  # exit codes
WAIT_SECONDS = 5.0  # for the writer of a session to end
BRIEF_SECONDS = 30.0  # for an app to lend its place, which it does not while it is at work


def add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", help="where sessions are kept (default: $CUBRIDGE_STORE, else XDG)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def add_specialisation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--arch", help="the arch to build for, e.g. sm_80 (default: the kernel's first)"
    )
    parser.add_argument(
        "--dtype", choices=["f16", "bf16"], help="the element type shown and judged"
    )
    parser.add_argument("--head-dim", type=head_dim, help="the head size shown and judged")


def head_dim(text: str) -> int:
    """A head size as it is typed."""
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        from argparse import ArgumentTypeError  # not for the app, whose first frame would wait

        raise ArgumentTypeError(f"{text!r} is no head size: give a number, such as 128")
    return int(text)


def specialisation(args: argparse.Namespace) -> dict[str, str]:
    """The launch template's bindings that the person named."""
    out: dict[str, str] = {}
    if args.dtype:
        out["T"] = args.dtype
    if args.head_dim:
        out["D"] = str(args.head_dim)
    return out


def spec_options(pairs: list[str] | None) -> Mapping[str, Any]:
    """`--set window=64` pairs: numbers and booleans as Python writes them, else text."""
    import ast

    out: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"--set {pair}: not NAME=VALUE", fix="for example --set window=64")
        if name in out:
            raise InputError(f"--set: {name} is given twice", fix="leave one of them out")
        try:
            out[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            out[name] = value
    return out


@contextmanager
def writing(store: Store, session: str, *, brief: bool = False) -> Iterator[Writer]:
    """The session open for writing; where it cannot be, that is said before any work is done.

    `brief`: the app that has it open, if one has, is in nobody's way but while something is saved.
    """
    from engine.errors import StoreError
    from sessions.store import check_writable

    if store.exists():
        check_writable(store)
    wait = BRIEF_SECONDS if brief else WAIT_SECONDS
    with store.writer(session, wait=wait, brief=brief) as writer:
        if writer.read_only is not None:
            raise StoreError(
                f"{writer.id} is open read-only: {writer.read_only}",
                fix="close the other one, or fork the session",
            )
        yield writer


@contextmanager
def adapting(args: argparse.Namespace, session: str) -> Iterator[Adaptation]:
    """A session open briefly (see `writing`), for the person or the agent that `args` name."""
    from engine.service.executed.opened import adaptation_of
    from engine.service.session.workbench import Bench
    from sessions.store import Store

    store = Store.open(args.store)
    with (
        Bench(store, progress=narrator(args.json)) as bench,
        writing(store, session, brief=True) as writer,
    ):
        yield adaptation_of(bench, writer, actor_of(args))


def session_named(store: Store, name: str, others: Collection[str]) -> Session | None:
    """The session that a name or the beginning of one means; None where it is one of `others`, or
    no session's."""
    from sessions.ids import is_session_id

    if name in others or not is_session_id(name):
        return None
    try:
        found = store.find(name)
    except StoreError:
        return None
    return store.load(found)


def neither(name: str, error: StoreError) -> InputError:
    """The error for a name that should be a session's or a bundled kernel's and is none."""
    from engine.resources import list_kernels

    near = nearest(name, list_kernels())
    lists = "`cubridge sessions list` and `cubridge kernels list` show what there is"
    fix = f"do you mean {near}? Else {lists}" if near else lists
    if not near and error.fix and error.fix.startswith("do you mean"):
        fix = error.fix
    return InputError(f"{name} is no session and no bundled kernel ({error.message})", fix=fix)


def actor() -> str:
    """Who acts, in the event log: the login name."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return os.environ.get("USER") or "person"


def add_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--agent", metavar="NAME",
        help="an agent does this, which calls itself so; the history names it as its own claim",
    )  # fmt: skip


def actor_of(args: argparse.Namespace) -> str:
    """Who acts: the person, or the agent that was named."""
    from engine.service.models.agent import agent_actor

    return actor() if args.agent is None else agent_actor(args.agent)


def left_overridden(work: Adaptation, gate: Gate, args: argparse.Namespace) -> Verdict | None:
    """The person's override of a gate on what the session holds now, which no agent judges away."""
    from dataclasses import replace

    from engine.types import VerdictKind

    verdict = work.state.verdict(gate)
    if args.agent is None or verdict is None or verdict.kind is not VerdictKind.OVERRIDDEN:
        return None
    return replace(verdict, reason=f"{verdict.reason} (left as {verdict.by} overrode it)")


_CASE = re.compile(r"\bcase \d+( of \d+)?: ")


def narrator(quiet: bool) -> Callable[[str], None]:
    """Progress lines on standard error, or none: how many cases a gate runs, not each of them."""

    def tell(text: str) -> None:
        if not quiet and not _CASE.search(text):
            say(f"  {text}")

    return tell


def how_to_run(job: Path) -> str:
    """What is typed where a packed job was carried to, beside the job."""
    unpack = f"tar xf {shlex.quote(job.name)} && " if job.suffix == ".tar" else ""
    folder = job.stem if unpack else job.name
    return f"{unpack}python3 {shlex.quote(f'{folder}/run.py')} --out result.json"


def not_passed(state: SessionState) -> Iterator[str]:
    """What makes a GPU's time worth nothing: a target that the gates before have not passed."""
    from engine.types import Gate, VerdictKind

    for gate in (Gate.G1, Gate.G2, Gate.G3):
        verdict = state.verdict(gate)
        kind = VerdictKind.NOT_RUN if verdict is None else verdict.kind
        if kind not in (VerdictKind.PASS, VerdictKind.OVERRIDDEN):
            yield f"note: {gate} {kind}: a GPU's pass raises no level before {gate} passes"
    undecided = sum(
        state.decision(p.id, h.id) is None for p in state.proposals[-1:] for h in p.hunks
    )
    if undecided:
        yield f"note: {undecided} hunks are undecided, and none of them is in this kernel"
