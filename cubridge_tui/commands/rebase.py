"""`cubridge rebase SESSION [NEW.cu]`: a session onto a new version of its kernel."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cubridge_tui.commands.adapt import Stages, lower_and_judge
from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import actor, add_json, add_store, narrator, writing

if TYPE_CHECKING:
    from engine.service.session.adaptation import Adaptation
    from engine.service.upkeep.newer import Rebase

FAILED = 1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="a session's id, or the beginning of one")
    parser.add_argument(
        "kernel", nargs="?",
        help="the new version: a CUDA source, a package's folder, or a bundled kernel's name "
        "(default: the session's own kernel, as it is on the disk now)",
    )  # fmt: skip
    parser.add_argument(
        "--accept", action="store_true", help="accept at the level the verdicts earn"
    )
    parser.add_argument("--quiet", action="store_true", help="no narration")
    parser.epilog = (
        "Hunks whose ops are those that were decided on stay decided; the others wait for you in "
        "the app, and the exit code is 1."
    )
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.service.executed.opened import adaptation_of
    from engine.service.session.workbench import Bench
    from engine.service.upkeep.newer import is_same, newer_kernel
    from engine.service.upkeep.rebase import plan_rebase, record_rebase
    from sessions.store import Store

    store = Store.open(args.store)
    with (
        Bench(store, progress=narrator(args.quiet)) as bench,
        writing(store, args.session) as writer,
    ):
        newer = newer_kernel(writer.state, args.kernel)
        stages = Stages()
        if is_same(writer.state, newer):
            work = adaptation_of(bench, writer, actor(), newer.package)
            judged = _is_judged(work)
            rest = ": nothing to do" if judged and not args.accept else ""
            say(f"{writer.id} has this version of its kernel already{rest}")
            code = 0 if judged else _judge(work, stages)
            if args.accept and code == 0 and not _accept(work):
                say(f"  fix: `cubridge --session {writer.id}`: s goes on to the next gate")
                code = FAILED
            return _finish(work, None, stages, code, args)
        # The session's own package may be gone from the disk: its text is in the session.
        work = adaptation_of(bench, writer, actor(), newer.package)
        made = plan_rebase(work, newer)
        work = record_rebase(work, made)
        for line in made.lines():
            say(line)
        code = _judge(work, stages)
        if args.accept and code == 0:
            _accept(work)
        return _finish(work, made, stages, code, args)


def _is_judged(work: Adaptation) -> bool:
    """Whether the gates have a say on this version; not where a rebase onto it was cut short, or
    asked."""
    from engine.types import Level, VerdictKind

    failed = any(verdict.kind is VerdictKind.FAIL for verdict in work.state.verdicts)
    return failed or work.state.level is not Level.NONE


def _judge(work: Adaptation, stages: Stages) -> int:
    """The gates again, as far as the decisions go."""
    verdict = work.judge_lifted()
    stages.gate("lifted", verdict)
    if verdict.stops:
        return FAILED
    if not work.edits:
        return 0
    asked = sum(decision is None for _, _, decision in work.hunks())
    if asked:
        say(f"{asked} hunk{'s wait' if asked > 1 else ' waits'} for a decision")
        say(f"  fix: `cubridge --session {work.session.id}`: a accepts, x rejects, s goes on")
        return FAILED
    verdict = work.judge_target()
    stages.gate("target", verdict)
    if verdict.stops:
        return FAILED
    if not lower_and_judge(work, stages, None):
        return FAILED
    stages.gate("verified", work.skip_gpu())
    return 0


def _accept(work: Adaptation) -> bool:
    """Whether what the session holds is accepted now."""
    from engine.types import Level

    if work.state.level is Level.NONE:
        say("not accepted: " + ", ".join(f"{v.gate} {v.kind}" for v in work.state.verdicts))
        return False
    if not work.state.acceptance_is_current:
        say(f"accepted, {work.accept().level}")
    return True


def _finish(
    work: Adaptation, made: Rebase | None, stages: Stages, code: int, args: argparse.Namespace
) -> int:
    session, state, hunks = work.session.id, work.state, work.hunks()
    if not args.json:
        show(f"{session}  {state.level}")
        return code
    show_json(
        {
            "session": session,
            "level": state.level.value,
            "accepted": state.acceptance is not None and state.acceptance_is_current,
            "changes": dict(made.changes) if made is not None else {},
            "renamed": made.renamed if made is not None else 0,
            "hunks": len(hunks),
            "asked": [
                {"hunk": f"{p.id}/{h.id}", "title": h.title} for p, h, said in hunks if said is None
            ],
            "stages": stages.rows,
        }
    )
    return code
