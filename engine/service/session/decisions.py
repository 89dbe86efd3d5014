"""Decisions that were made together are undone together.

A decision is followed in the log by the target that it gives; several made at one stroke stand
side by side before it. So what belongs together is read from the log itself. What was decided
before a changed spec or kernel was taken in, or before a proposal was made again, is not undone any
more: it was about what is not there now, and its draft would put the old target back.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.types import Decision, DecisionKind
from sessions.events import Event, HunkDecided, InputsSet, ProposalMade
from sessions.state import Frame, SessionState

_VERBS = {
    DecisionKind.ACCEPTED: "accepted",
    DecisionKind.REJECTED: "rejected",
    DecisionKind.EDITED: "edited",
}


def undo_group(events: Sequence[Event], undo: Sequence[Frame]) -> tuple[Event, ...]:
    """The events of the latest stroke that can be undone, the latest first; empty when none."""
    return _group(events, undo, -1)


def redo_group(events: Sequence[Event], redo: Sequence[Frame]) -> tuple[Event, ...]:
    """The events of the stroke undone last, in the order in which they are made again."""
    return _group(events, redo, 1)


def _group(events: Sequence[Event], frames: Sequence[Frame], step: int) -> tuple[Event, ...]:
    if not frames:
        return ()
    first = _first_undoable(events)
    at = next((i for i, e in enumerate(events) if e.id == frames[-1].event), -1)
    if at < first:
        return ()
    found = [events[at]]
    for frame in reversed(frames[:-1]):
        at += step
        if not first <= at < len(events) or events[at].id != frame.event:
            break
        if not isinstance(events[at].body, HunkDecided):
            break
        found.append(events[at])
    return tuple(found)


def _first_undoable(events: Sequence[Event]) -> int:
    """The place in the log behind which decisions are about what is there now."""
    first = 0
    proposed: set[str] = set()
    for at, event in enumerate(events):
        match event.body:
            case InputsSet():
                first = at
            case ProposalMade(proposal):
                if proposal.id in proposed:
                    first = at
                proposed.add(proposal.id)
    return first


def in_words(state: SessionState, group: Sequence[Event]) -> str:
    """What a stroke decided: `rejected rules/h4 (Compute the score)`, `accepted 3 hunks`."""
    made = [e.body.decision for e in group if isinstance(e.body, HunkDecided)]
    if not made:
        return ""
    if len(made) == 1:
        return _one(state, made[0])
    kinds = {d.kind for d in made}
    verb = _VERBS[made[0].kind] if len(kinds) == 1 else "decided"
    return f"{verb} {len(made)} hunks"


def first_hunk(state: SessionState, group: Sequence[Event]) -> str:
    """The first hunk (`proposal/hunk`) that a stroke decided on; empty where it is of none."""
    made = [e.body.decision for e in sorted(group, key=lambda e: e.id)
            if isinstance(e.body, HunkDecided)]  # fmt: skip
    if not made:
        return ""
    whole = next((p for p in state.proposals if p.id == made[0].target), None)
    if whole is not None:
        return f"{whole.id}/{whole.hunks[0].id}" if whole.hunks else ""
    found = state.find_hunk(made[0].target)
    return f"{found[0].id}/{found[1].id}" if found else ""


def _one(state: SessionState, decision: Decision) -> str:
    verb = _VERBS[decision.kind]
    proposal = next((p for p in state.proposals if p.id == decision.target), None)
    if proposal is not None:
        return f"{verb} all {len(proposal.hunks)} hunks of {proposal.id}"
    found = state.find_hunk(decision.target)
    return f"{verb} {decision.target}" + (f" ({found[1].title})" if found else "")
