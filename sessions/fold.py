"""What a log of events adds up to: `step` takes one event, `fold` a whole log.

Both are pure and total: an event that makes no sense where it stands changes nothing but leaves a
line in `problems`; an event of an unknown type is kept in `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.types import Decision, DecisionKind, Gate, Level, Proposal, Verdict, VerdictKind
from sessions.events import (
    Accepted,
    ArtifactSet,
    Committed,
    Event,
    Forked,
    HunkCommented,
    HunkDecided,
    InputsSet,
    Note,
    ProposalMade,
    Rebased,
    Redone,
    SessionCreated,
    TitleSet,
    TranscriptAdded,
    Undone,
    Unknown,
    VerdictGiven,
)
from sessions.state import (
    DRAFT_STAGES,
    JUDGED,
    Acceptance,
    Comment,
    Draft,
    Frame,
    Given,
    HunkKey,
    SessionState,
    StageState,
    upstream,
)


def problem_with(state: SessionState, event: Event) -> str | None:
    """Why the event makes no sense after `state`, in words for a person; None when it does."""
    match event.body:
        case SessionCreated():
            return "the session was created before" if state.count else None
        case Unknown(why=why):
            return why
        case _ if state.created is None:
            return f"{event.type} before the session was created"
        case HunkDecided(decision):
            if _hunk_keys(state, decision):
                return None
            if decision.kind is DecisionKind.EDITED and state.find_hunk(decision.target) is None:
                return f"an edit is about one hunk, and no proposal has {decision.target!r}"
            return f"no proposal or hunk is called {decision.target!r}"
        case HunkCommented(target):
            return None if state.find_hunk(target) else f"no proposal has a hunk {target!r}"
        case VerdictGiven(verdict):
            return _problem_with_verdict(verdict)
        case Accepted(level, hashes):
            if state.level is Level.NONE:
                return "nothing is accepted without a level: " + _missing(state)
            if level is not state.level or hashes != state.hashes:
                return "the accepted level and hashes are not those of the session"
        case Undone(target):
            return _problem_with_frame(state.undo, target, "undo")
        case Redone(target):
            return _problem_with_frame(state.redo, target, "redo")
    return None


def step(state: SessionState, event: Event) -> SessionState:
    """The state after one more event."""
    problem = problem_with(state, event)
    after = replace(
        state,
        count=state.count + 1,
        started=state.started or event.time,
        last=event,
    )
    if isinstance(event.body, Unknown):
        return replace(after, unknown=(*state.unknown, event))
    if problem is not None:
        return replace(after, problems=(*state.problems, f"{event.type}: {problem}"))
    return _apply(after, event)


def fold(events: Iterable[Event], state: SessionState | None = None) -> SessionState:
    """The state after all events, starting from nothing or from `state`."""
    after = SessionState() if state is None else state
    for event in events:
        after = step(after, event)
    return after


def _apply(state: SessionState, event: Event) -> SessionState:
    match event.body:
        case SessionCreated() as body:
            inputs = {"kernel": body.kernel_sha256, "spec": body.spec_sha256}
            return replace(state, created=body, title=body.title, inputs=inputs)
        case TitleSet(title):
            return replace(state, title=title)
        case InputsSet(hashes):
            return replace(state, inputs={**state.inputs, **hashes})
        case ArtifactSet() as body:
            return _set_artifact(state, body)
        case ProposalMade(proposal):
            return _add_proposal(state, proposal)
        case HunkDecided(decision):
            decided = {**state.draft.decisions}
            decided |= dict.fromkeys(_hunk_keys(state, decision), decision)
            frame = Frame(event.id, state.draft)
            draft = replace(state.draft, decisions=decided)
            return replace(state, draft=draft, undo=(*state.undo, frame), redo=())
        case HunkCommented(target, text):
            found = state.find_hunk(target)
            assert found is not None  # else it is a problem
            said = {(found[0].id, found[1].id): Comment(text, event.actor)}
            return replace(state, comments={**state.comments, **said})
        case VerdictGiven(verdict):
            return replace(state, given=(*state.given, Given(event.id, event.time, verdict)))
        case TranscriptAdded() as body:
            return replace(state, transcripts=(*state.transcripts, body))
        case Accepted(level, hashes):
            accepted = Acceptance(event.id, event.time, event.actor, level, hashes)
            return replace(state, acceptance=accepted, undo=(), redo=())
        case Committed() as body:
            return replace(state, commits=(*state.commits, body))
        case Undone():
            frame = state.undo[-1]
            back = Frame(frame.event, state.draft)
            return replace(state, draft=frame.draft, undo=state.undo[:-1], redo=(*state.redo, back))
        case Redone():
            frame = state.redo[-1]
            back = Frame(frame.event, state.draft)
            return replace(state, draft=frame.draft, redo=state.redo[:-1], undo=(*state.undo, back))
        case Forked() as body:
            return replace(state, forked_from=body)
        case Rebased() as body:
            draft = replace(state.draft, decisions={})
            return replace(
                state, rebased=body, proposals=(), comments={}, draft=draft, undo=(), redo=()
            )
        case Note(text):
            return replace(state, notes=(*state.notes, text))
        case Unknown():
            return state


def _set_artifact(state: SessionState, body: ArtifactSet) -> SessionState:
    artifacts = dict(state.stage(body.stage).artifacts)
    if body.sha256 is None:
        artifacts.pop(body.name, None)
    else:
        artifacts[body.name] = body.sha256
    stage = StageState(artifacts, upstream(body.stage, state.hashes))
    if body.stage in DRAFT_STAGES:
        stages = {**state.draft.stages, body.stage: stage}
        return replace(state, draft=replace(state.draft, stages=stages))
    return replace(state, expert={**state.expert, body.stage: stage})


def _add_proposal(state: SessionState, proposal: Proposal) -> SessionState:
    others = tuple(p for p in state.proposals if p.id != proposal.id)
    if len(others) == len(state.proposals):
        return replace(state, proposals=(*others, proposal))

    # Decisions were about the replaced text: neither they nor undo may reach the new one, nor
    # what was said of it.
    def without(draft: Draft) -> Draft:
        kept = {key: d for key, d in draft.decisions.items() if key[0] != proposal.id}
        return replace(draft, decisions=kept)

    return replace(
        state,
        proposals=(*others, proposal),
        comments={key: c for key, c in state.comments.items() if key[0] != proposal.id},
        draft=without(state.draft),
        undo=tuple(replace(frame, draft=without(frame.draft)) for frame in state.undo),
        redo=tuple(replace(frame, draft=without(frame.draft)) for frame in state.redo),
    )


def _hunk_keys(state: SessionState, decision: Decision) -> tuple[HunkKey, ...]:
    """The hunks that a decision is about: all of a proposal's, or one."""
    for proposal in state.proposals:
        if proposal.id == decision.target and decision.kind is not DecisionKind.EDITED:
            return tuple((proposal.id, hunk.id) for hunk in proposal.hunks)
    found = state.find_hunk(decision.target)
    return ((found[0].id, found[1].id),) if found else ()


def _problem_with_verdict(verdict: Verdict) -> str | None:
    if verdict.kind is VerdictKind.STALE:
        return "staleness is derived from hashes and never stored"
    names = dict(verdict.subject)
    judged = ("artifact", JUDGED[verdict.gate].value)
    if verdict.kind is not VerdictKind.NOT_RUN and not any(name in names for name in judged):
        return f"a {verdict.gate} verdict needs the hash of its artifact"
    if verdict.kind is VerdictKind.OVERRIDDEN and not (verdict.by and verdict.reason):
        return "an override needs a person and a reason"
    return None


def _problem_with_frame(frames: tuple[Frame, ...], target: str, what: str) -> str | None:
    if not frames:
        return f"nothing to {what}"
    if frames[-1].event != target:
        return f"the decision to {what} next is {frames[-1].event}, not {target}"
    return None


def _missing(state: SessionState) -> str:
    given = {verdict.gate: verdict for verdict in state.verdicts}
    parts = [
        f"{gate} {given[gate].kind.value.replace('_', ' ')}" if gate in given else f"{gate} not run"
        for gate in Gate
        if gate not in given or not given[gate].passed
    ]
    return ", ".join(parts)
