"""`cubridge adapt`: one adaptation from source to an accepted kernel, without the app."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import (
    GATE_FAILED,
    GATE_MISSING,
    actor,
    add_json,
    add_specialisation,
    add_store,
    narrator,
    spec_options,
    specialisation,
    writing,
)  # fmt: skip
from cubridge_tui.headless_llm import ModelRun, add_model, asks_a_model, refuse_model_options

if TYPE_CHECKING:
    from engine.service.session.adaptation import Adaptation
    from engine.types import Proposal, Verdict


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kernel", required=True, help="a bundled kernel's name, or a package's folder"
    )
    parser.add_argument("--spec", required=True, help="a bundled spec's name, or a Python file")
    parser.add_argument("--transfer", choices=["rules", "llm"], default="rules")
    parser.add_argument(
        "--accept", action="store_true", help="accept at the level the verdicts earn"
    )
    parser.add_argument("--require", choices=["G4"], help="exit 3 unless this gate passed")
    parser.add_argument("--title", help="the session's title")
    parser.add_argument(
        "--set", action="append", metavar="NAME=VALUE", help="a parameter of the spec"
    )
    parser.add_argument("--export", metavar="DIR", help="with --accept: write the package there")
    parser.add_argument("--quiet", action="store_true", help="no narration")
    add_model(parser)
    add_specialisation(parser)
    parser.add_argument(
        "--only", action="store_true",
        help="build the specialisation that is shown and judged, and no other",
    )  # fmt: skip
    parser.epilog = (
        "G3 builds every specialisation that the kernel declares. A head size that it may have "
        "beside those is built with them where --head-dim names it, for the one --dtype."
    )
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.errors import InputError
    from engine.package.export import check_place
    from engine.service.executed.opened import adaptation_of
    from engine.service.session.adaptation import start
    from engine.service.session.session_options import choose_options
    from engine.service.session.workbench import Bench, find_kernel, find_spec
    from engine.spec.python.spec_file import read_source
    from sessions.store import Store, check_writable

    package = find_kernel(args.kernel)
    spec = find_spec(args.spec)
    given = spec_options(args.set)
    if given:
        read_source(spec, given)  # a parameter that the spec has not is said before any work
    options = choose_options(package, args.arch, specialisation(args), given, args.only, spec)
    model = None
    if asks_a_model(args):
        model = ModelRun(args)
    else:
        refuse_model_options(args)
    if args.export is not None:
        if not args.accept:
            raise InputError("--export writes the accepted kernel's package", fix="add --accept")
        check_place(Path(args.export))
    store = Store.open(args.store)
    check_writable(store)
    with Bench(store, progress=narrator(args.quiet)) as bench:
        bench.child.start()
        session = start(bench, package, spec, options, actor(), args.title)
        say(f"session {session}")
        with writing(store, session) as writer:
            work = adaptation_of(bench, writer, actor(), package)
            stages = Stages()
            code = _walk(work, stages, args, model)
            return _finish(work, stages, args, code, model)


class Stages:
    """What every stage gave, as the JSON shows it."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(
        self, name: str, gate: str | None, verdict: str | None, reason: str, seconds: float
    ) -> None:
        row = {
            "name": name,
            "gate": gate,
            "verdict": verdict,
            "reason": reason,
            "seconds": round(seconds, 3),
        }
        self.rows.append(row)
        word = f"{gate} {verdict}" if gate else "done"
        say(f"{name:<9} {word:<12} {reason}")

    def gate(self, name: str, verdict: Verdict) -> None:
        self.add(name, verdict.gate.value, verdict.kind.value, verdict.reason, verdict.seconds)


def _walk(
    work: Adaptation, stages: Stages, args: argparse.Namespace, model: ModelRun | None
) -> int:
    from engine.errors import TransferError

    begin = time.monotonic()
    stages.add(
        "source",
        None,
        None,
        f"{work.package.name}, {len(work.package.source)} bytes",
        time.monotonic() - begin,
    )
    if model is not None and args.lift == "llm":
        begin = time.monotonic()
        through, words = model.give_meanings(work)
        stages.add("meanings", None, None, words, time.monotonic() - begin)
        if not through:
            return GATE_FAILED
    begin = time.monotonic()
    try:
        work.refuse_early()
    except TransferError as error:
        stages.add("target", "G2", "not_run", str(error), time.monotonic() - begin)
        return GATE_FAILED
    verdict = work.lift()
    stages.gate("lifted", verdict)
    if verdict.stops:
        return GATE_FAILED
    if model is not None and args.transfer == "llm":
        begin = time.monotonic()
        result = model.transfer(work)
        if result.proposal is None:
            last = result.attempts[-1].reason if result.attempts else "no answer came"
            reason = f"no answer became a target: {last}"
            stages.add("target", "G2", "not_run", reason, time.monotonic() - begin)
            return GATE_FAILED
        proposal = result.proposal
    else:
        begin = time.monotonic()
        try:
            proposal = work.propose_by_rules()
        except TransferError as error:
            stages.add("target", "G2", "not_run", str(error), time.monotonic() - begin)
            return GATE_FAILED
    writer = model if args.lower == "llm" else None
    while not _judge_target_and_text(work, stages, proposal, writer):
        smaller = work.propose_smaller_tile() if args.transfer == "rules" else None
        if smaller is None:
            return GATE_FAILED
        proposal = smaller
    verdict = work.skip_gpu()
    stages.gate("verified", verdict)
    return 0


def _judge_target_and_text(
    work: Adaptation, stages: Stages, proposal: Proposal, model: ModelRun | None
) -> bool:
    """Whether a proposal with all its hunks goes through G2 and G3."""
    work.accept_all(proposal)
    verdict = work.judge_target()
    stages.gate("target", verdict)
    return not verdict.stops and lower_and_judge(work, stages, model)


def lower_and_judge(work: Adaptation, stages: Stages, model: ModelRun | None) -> bool:
    """Lowers by the templates; what they cannot write, or write wrong, a model may write."""
    from engine.errors import LowerError
    from engine.types import VerdictKind

    begin = time.monotonic()
    try:
        verdict = work.judge_lowered(work.lower())
    except LowerError as error:
        why = str(error)
        work.cannot_lower(error)
        stages.add("lowered", "G3", "not_run", why, time.monotonic() - begin)
    else:
        stages.gate("lowered", verdict)
        if verdict.unfinished:
            return False
        if verdict.kind is not VerdictKind.FAIL:
            return True
        if verdict.too_slow:  # no other lowering makes the target faster
            return False
        why = verdict.reason
    if model is None:
        return False
    begin = time.monotonic()
    missing = model.lower(work, why)
    if missing:
        reason = f"no answer became a lowering: {missing}"
        stages.add("lowered", "G3", "not_run", reason, time.monotonic() - begin)
        return False
    verdict = work.judge_lowered(work.make_lowering())
    stages.gate("lowered", verdict)
    return not verdict.stops


def _finish(
    work: Adaptation,
    stages: Stages,
    args: argparse.Namespace,
    code: int,
    model: ModelRun | None,
) -> int:
    from engine.types import Gate, Level, VerdictKind

    state = work.state
    level = state.level
    passed = {v.gate.value for v in state.verdicts if v.kind is VerdictKind.PASS}
    missing = args.require if args.require and args.require not in passed else None
    if args.accept and code == 0 and not missing:
        if level is Level.NONE:
            say("not accepted: " + ", ".join(f"{v.gate} {v.kind}" for v in state.verdicts))
            if (g3 := state.verdict(Gate.G3)) is not None and g3.kind is VerdictKind.NOT_RUN:
                say(
                    "  fix: `cubridge doctor` says what is missing and what to type; then the same "
                    "command again"
                )
        else:
            level = work.accept().level
            say(f"accepted, {level}")
            if args.export:
                from engine.service.session.package_export import export_session

                say(f"package written to {export_session(work, Path(args.export))}")
    elif (g3 := state.verdict(Gate.G3)) is not None and g3.kind is VerdictKind.FAIL:
        override = (
            f"`cubridge --session {work.writer.id}`: O there accepts it as overridden, in your "
            "name and with a reason"
        )
        if args.accept and g3.too_slow:
            say(f"not accepted: the target is too slow\n  fix: {override}")
        elif fix := g3.details.get("fix"):
            say(f"  fix: {fix}; or {override}")
    artifacts = {
        name: sha
        for name, sha in work.state.hashes.items()
        if "/" in name or name in ("kernel", "spec")
    }
    result = {
        "session": work.writer.id,
        "level": level.value,
        "accepted": state.acceptance is not None or work.state.acceptance is not None,
        "stages": stages.rows,
        "artifacts": artifacts,
        "attempts": [] if model is None else model.attempts,
    }
    if args.json:
        show_json(result)
    else:
        show(f"{work.writer.id}  {level.value}")
    if code == 0 and missing:
        fix = f"cubridge verify {work.writer.id}"
        say(f"cubridge: {missing} was required and did not pass\n  fix: {fix}")
        return GATE_MISSING
    return code
