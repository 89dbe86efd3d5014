"""What comes next: the step that `next` takes, or the decision that the person owes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cubridge_tui.model.meanings import open_meanings, step_word, wanted_step
from cubridge_tui.model.snapshot import WHOLE
from engine.service.session.content import TARGET
from engine.service.session.lowerings import present_lowering
from engine.service.session.proposal_kinds import edits
from engine.types import DecisionKind, Gate, Level, Origin, Stage, Verdict, VerdictKind
from sessions.state import SessionState


class Step(StrEnum):
    """What `next` can do, in pipeline order."""

    LIFT = "lift"
    PROPOSE = "propose"
    JUDGE_TARGET = "judge"
    LOWER = "lower"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class Owed:
    """The next decision in words, the action that makes it, and why `next` cannot go on if so."""

    words: str
    action: str
    step: Step | None = None
    blocked: str = ""


def undecided(state: SessionState) -> int:
    """Hunks without a decision: of meanings, of the target, of the lowered source."""
    return open_meanings(state) + _open_edits(state) + open_regions(state)


def _open_edits(state: SessionState) -> int:
    return sum(state.decision(p.id, h.id) is None for p in edits(state.proposals) for h in p.hunks)


def open_regions(state: SessionState) -> int:
    """Undecided hunks of the lowering that was written for the present target."""
    found = present_lowering(state)
    return sum(state.decision(found.id, h.id) is None for h in found.hunks) if found else 0


def unmeant(state: SessionState) -> int:
    """Opaque ops for want of whose meaning G1 was not run."""
    verdict = state.verdict(Gate.G1)
    if verdict is None or verdict.kind is not VerdictKind.NOT_RUN:
        return 0
    count = verdict.details.get("opaque", 0)
    return count if isinstance(count, int) else 0


def unlowered(state: SessionState) -> Verdict | None:
    """G3's verdict where the templates could not write the present target."""
    verdict = state.verdict(Gate.G3)
    if verdict is None or verdict.kind is not VerdictKind.NOT_RUN:
        return None
    told = bool(verdict.details.get("unlowered"))
    return verdict if told and not state.stage(Stage.LOWERED).artifacts else None


def first_failed(state: SessionState) -> Verdict | None:
    """The first gate that failed on the present content."""
    return next((v for v in state.verdicts if v.kind is VerdictKind.FAIL), None)


def owed(state: SessionState) -> Owed:
    """What the person owes next."""
    failed = first_failed(state)
    lifted = state.verdict(Gate.G1)
    if not state.stage(Stage.LIFTED).artifacts:
        return Owed("Lift the source and run G1", "step", Step.LIFT)
    meanings = open_meanings(state)
    if meanings:
        return _decide(meanings, "meaning")
    wanted = wanted_step(state)
    if wanted is not None:
        words = f"Meanings, {step_word(wanted)}: M asks a model, e on the op writes one by hand"
        return Owed(words, "ask-model", None, f"the meanings are not complete: {words}")
    if _open(lifted):
        return _again(lifted, "Lift the source and run G1", Step.LIFT)
    if failed is not None and failed.gate is Gate.G1:
        return _failure(failed)
    if not edits(state.proposals) or state.outdated(Stage.TARGET):
        opaque = unmeant(state)
        if opaque:
            ops = f"{opaque} ops have" if opaque > 1 else "1 op has"
            words = f"{ops} no meaning: M asks a model, e writes it, w goes there; s goes on so"
            return Owed(words, "ask-model", Step.PROPOSE)
        words = "Run the spec's code to read it, and let the rules propose"
        return Owed(words, "step", Step.PROPOSE)
    count = _open_edits(state)
    if count:
        return _decide(count, "hunk")
    target = state.verdict(Gate.G2)
    if _open(target):
        words = "Run G2: does the target compute the spec?"
        return _again(target, words, Step.JUDGE_TARGET)
    if failed is not None and failed.gate is Gate.G2:
        return _failure(failed, culprit(state))
    lowered = state.verdict(Gate.G3)
    regions = open_regions(state)
    if regions:
        return _decide(regions, "region")
    if unlowered(state) is not None:
        words = "The templates cannot write this target: M lets a model write the lowering"
        return Owed(words, "ask-model", None, words)
    untold = lowered is not None and bool(lowered.details.get("unlowered"))
    if not state.stage(Stage.LOWERED).artifacts or _open(lowered) or untold:
        return _again(lowered, "Lower to CUDA and run G3", Step.LOWER)
    if failed is not None:
        found = _failure(failed)
        if failed.too_slow:
            words = "G3 failed the target's speed: O accepts it as overridden, w says more"
            return Owed(words, "override", None, f"G3 failed: {failed.reason}")
        if failed.spills and _ruled(state):
            words = "G3 found spills: D in the target pane lets the rules take a smaller tile"
            return replace(found, words=words)
        if failed.gate is Gate.G3:
            return replace(found, words=f"{found.words}; M lets a model write the lowering")
        return found
    if state.acceptance is not None and state.acceptance_is_current:
        words = f"Accepted, {state.accepted_level}: K shows the package and commit steps"
        return Owed(words, "accept-kernel", None, "the kernel is accepted")
    level = state.level
    if level is Level.NONE:
        open_ = next((v for v in state.verdicts if v.kind is not VerdictKind.PASS), None)
        words = f"{open_.gate} was not run: {open_.reason}" if open_ else "no gate has run"
        return Owed(words, "override", None, words)
    words = f"Accept the kernel at {level}"
    return Owed(words, "accept-kernel", Step.ACCEPT)


def owed_now(
    state: SessionState, changed: str = "", refused: str = "", drafts: Sequence[str] = ()
) -> Owed:
    """What the person owes next, with what changed on disk, the step that was refused last, and
    the drafts that no step takes up.

    A step never reads another file than the one that the session records.
    """
    found = _owed_now(state, changed, refused)
    if not drafts:
        return found
    one = len(drafts) == 1
    what = f"draft of {drafts[0]}" if one else f"{len(drafts)} drafts"
    key = "W" if drafts[0] == WHOLE else "e"
    words = f"{found.words} ({what} not applied: {key} goes on with {'it' if one else 'them'})"
    return replace(found, words=words)


def _owed_now(state: SessionState, changed: str, refused: str) -> Owed:
    found = owed(state)
    if found.step in (None, Step.ACCEPT):
        return found
    judged = state.verdict(Gate.G2)
    written = found.step is Step.LOWER and judged is not None and judged.passed
    if changed and not (written and changed == "spec"):
        words = f"The {changed} changed on disk: ! takes it in, or restore it"
        return Owed(words, "take-in", None, words)
    if refused:
        words = f"{refused} did not work: w shows why and the fix; s tries again"
        return Owed(words, "why", found.step)
    return found


def accept_blocked(state: SessionState) -> str:
    """Why the kernel cannot be accepted now; empty when it can."""
    if state.acceptance is not None and state.acceptance_is_current:
        return ""
    if state.level is not Level.NONE:
        return ""
    reasons = []
    for gate in (Gate.G1, Gate.G2, Gate.G3):
        verdict = state.verdict(gate)
        if verdict is None or not (verdict.passed or verdict.kind is VerdictKind.OVERRIDDEN):
            reasons.append(f"{gate} {_word(verdict)}")
    gpu = state.verdict(Gate.G4)
    if gpu is not None and gpu.kind is VerdictKind.FAIL:
        reasons.append("G4 fail")
    return "no level yet: " + ", ".join(reasons)


def _decide(count: int, what: str) -> Owed:
    things = f"{count} {what}{'s' * (count != 1)}"
    words = f"Decide on {things}: a accepts, x rejects, A accepts all"
    return Owed(words, "accept-hunk", None, f"{things} still undecided: a, x or A")


def _word(verdict: Verdict | None) -> str:
    return "has not run" if verdict is None else verdict.kind.value.replace("_", " ")


def _open(verdict: Verdict | None) -> bool:
    return verdict is None or verdict.kind is VerdictKind.STALE or verdict.unfinished


def _again(verdict: Verdict | None, words: str, step: Step) -> Owed:
    """The step that runs a gate; where it came to no verdict, why."""
    if verdict is not None and verdict.unfinished:
        words = f"{verdict.gate} came to no verdict: {verdict.reason}; s runs it again"
    return Owed(words, "step", step)


def culprit(state: SessionState) -> str:
    """The hunk that the target lacks or has otherwise than proposed; of several, that there are:
    which is the likeliest depends on the op that the gate names. Empty when there is none."""
    kinds = (DecisionKind.REJECTED, DecisionKind.EDITED)
    found = [
        (f"{p.id}/{h.id}", decision.kind)
        for p in edits(state.proposals)
        for h in p.hunks
        if (decision := state.decision(p.id, h.id)) is not None and decision.kind in kinds
    ]
    words = " or ".join(kind for kind in kinds if any(kind is k for _, k in found))
    if len(found) > 1:
        return f"the likeliest of {len(found)} {words} hunks"
    return f"{found[0][0]}, which you {words}" if found else ""


def _ruled(state: SessionState) -> bool:
    """Whether a target in CuIR rests on a proposal of the rules."""
    lifted = TARGET in state.stage(Stage.TARGET).artifacts
    return lifted and any(p.origin is Origin.RULES for p in state.proposals)


def _failure(verdict: Verdict, suspect: str = "") -> Owed:
    words = f"{verdict.gate} failed: w goes to {suspect or 'the op that it names'}"
    what = "a meaning" if verdict.gate is Gate.G1 and verdict.assumed else "the target"
    return Owed(words, "why", None, f"{verdict.gate} failed: mend {what} first (w says why)")
