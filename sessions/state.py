"""What a log of events adds up to: `step` takes one event, `fold` a whole log.

Both are pure and total: an event that makes no sense where it stands changes nothing but leaves a
line in `problems`; an event of an unknown type is kept in `unknown`. Staleness is never stored:
a verdict holds as long as the hashes it was given for are the current ones, so undoing an edit
brings its verdicts back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.types import (
    Decision,
    DecisionKind,
    Gate,
    Hunk,
    Level,
    Proposal,
    Stage,
    Verdict,
    VerdictKind,
    level_of,
)
from sessions.events import (
    Accepted,
    ArtifactSet,
    Committed,
    Event,
    Forked,
    Hashes,
    HunkDecided,
    InputsSet,
    Note,
    ProposalMade,
    Redone,
    SessionCreated,
    TitleSet,
    TranscriptAdded,
    Undone,
    Unknown,
    VerdictGiven,
)

_STAGES = tuple(Stage)
_DRAFT_STAGES = (Stage.TARGET, Stage.LOWERED, Stage.VERIFIED)
# G4 judges the lowered bytes; what it leaves in the stage `verified` is its evidence.
JUDGED = {
    Gate.G1: Stage.LIFTED,
    Gate.G2: Stage.TARGET,
    Gate.G3: Stage.LOWERED,
    Gate.G4: Stage.LOWERED,
}

HunkKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class StageState:
    """A stage's artifacts (hash by name) and the upstream hashes that they were made from."""

    artifacts: Hashes = field(default_factory=dict)
    made_from: Hashes = field(default_factory=dict)

    @property
    def sha256(self) -> str | None:
        """The stage's hash: that of its one artifact, or of all their names and hashes."""
        if not self.artifacts:
            return None
        if len(self.artifacts) == 1:
            return next(iter(self.artifacts.values()))
        lines = "".join(f"{sha} {name}\n" for name, sha in sorted(self.artifacts.items()))
        return hashlib.sha256(lines.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Draft:
    """What undo takes back: the decisions, and the stages that follow from them."""

    decisions: Mapping[HunkKey, Decision] = field(default_factory=dict)
    stages: Mapping[Stage, StageState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Frame:
    """One undoable decision (its event id) and the draft on the other side of it."""

    event: str
    draft: Draft


@dataclass(frozen=True, slots=True)
class Given:
    """A verdict with the event that gave it."""

    event: str
    time: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What was accepted, when, and the level it had at that moment."""

    event: str
    time: str
    by: str
    level_then: Level
    hashes: Hashes


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session at one moment of its history."""

    created: SessionCreated | None = None
    title: str = ""
    inputs: Hashes = field(default_factory=dict)
    expert: Mapping[Stage, StageState] = field(default_factory=dict)
    draft: Draft = field(default_factory=Draft)
    proposals: tuple[Proposal, ...] = ()
    given: tuple[Given, ...] = ()
    transcripts: tuple[TranscriptAdded, ...] = ()
    undo: tuple[Frame, ...] = ()
    redo: tuple[Frame, ...] = ()
    acceptance: Acceptance | None = None
    commits: tuple[Committed, ...] = ()
    forked_from: Forked | None = None
    notes: tuple[str, ...] = ()
    unknown: tuple[Event, ...] = ()
    problems: tuple[str, ...] = ()
    count: int = 0
    started: str = ""
    last: Event | None = None

    def stage(self, stage: Stage) -> StageState:
        """The stage's artifacts; empty when it has none yet."""
        side = self.draft.stages if stage in _DRAFT_STAGES else self.expert
        return side.get(stage, StageState())

    @property
    def hashes(self) -> Hashes:
        """Every current hash by name: inputs, `stage`, and `stage/artifact`."""
        found = dict(self.inputs)
        for stage in _STAGES:
            state = self.stage(stage)
            if state.sha256 is not None:
                found[stage.value] = state.sha256
                found |= {f"{stage.value}/{name}": sha for name, sha in state.artifacts.items()}
        return found

    def outdated(self, stage: Stage) -> str | None:
        """Which upstream name has changed since the stage's artifacts were made, if any."""
        state = self.stage(stage)
        if not state.artifacts:
            return None
        current = _upstream(stage, self.hashes)
        changed = [n for n in _UPSTREAM[stage] if current.get(n) != state.made_from.get(n)]
        return changed[0] if changed else None

    def verdict(self, gate: Gate) -> Verdict | None:
        """The gate's verdict on the current content, or its latest one marked stale, or None.

        The latest verdict whose hashes hold counts; one that says more than "not run" counts
        before one that says just that.
        """
        stage = JUDGED[gate]
        changed = self.outdated(stage)
        why = f"{stage} was made before {changed} changed" if changed else None
        return _verdict(self.given, gate, self.hashes, why)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict of every gate that has one, stale ones marked, in pipeline order."""
        found = (self.verdict(gate) for gate in Gate)
        return tuple(verdict for verdict in found if verdict is not None)

    @property
    def level(self) -> Level:
        """The level of the current content."""
        return level_of(self.verdicts)

    @property
    def accepted_level(self) -> Level:
        """The level that the accepted content has by now: a later G4 result raises or revokes."""
        if self.acceptance is None:
            return Level.NONE
        hashes = self.acceptance.hashes
        found = (_verdict(self.given, gate, hashes, None) for gate in Gate)
        return level_of(verdict for verdict in found if verdict is not None)

    @property
    def acceptance_is_current(self) -> bool:
        """Whether what was accepted is what the session holds now."""
        return self.acceptance is not None and self.acceptance.hashes == self.hashes

    def find_hunk(self, target: str) -> tuple[Proposal, Hunk] | None:
        """The hunk that `hunk` or `proposal/hunk` names, in the latest proposal that has it."""
        for proposal in reversed(self.proposals):
            for hunk in proposal.hunks:
                if target in (hunk.id, f"{proposal.id}/{hunk.id}"):
                    return proposal, hunk
        return None

    def decision(self, proposal: str, hunk: str) -> Decision | None:
        """The standing decision about a hunk, or None while it is undecided."""
        return self.draft.decisions.get((proposal, hunk))

    @property
    def accepted_hunks(self) -> tuple[tuple[Proposal, Hunk, Decision], ...]:
        """Accepted and edited hunks in proposal order: what the target is to be made of."""
        return tuple(
            (proposal, hunk, decision)
            for proposal in self.proposals
            for hunk in proposal.hunks
            if (decision := self.decision(proposal.id, hunk.id)) is not None
            and decision.kind is not DecisionKind.REJECTED
        )

    @property
    def furthest(self) -> Stage | None:
        """The furthest stage that has an artifact."""
        have = [stage for stage in _STAGES if self.stage(stage).artifacts]
        return have[-1] if have else None


def acceptance_of(state: SessionState) -> Accepted:
    """The event that accepts the current content, with the level computed from its verdicts."""
    return Accepted(state.level, state.hashes)


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
    stage = StageState(artifacts, _upstream(body.stage, state.hashes))
    if body.stage in _DRAFT_STAGES:
        stages = {**state.draft.stages, body.stage: stage}
        return replace(state, draft=replace(state.draft, stages=stages))
    return replace(state, expert={**state.expert, body.stage: stage})


def _add_proposal(state: SessionState, proposal: Proposal) -> SessionState:
    others = tuple(p for p in state.proposals if p.id != proposal.id)
    if len(others) == len(state.proposals):
        return replace(state, proposals=(*others, proposal))

    # Decisions were about the replaced text: neither they nor undo may reach the new one.
    def without(draft: Draft) -> Draft:
        kept = {key: d for key, d in draft.decisions.items() if key[0] != proposal.id}
        return replace(draft, decisions=kept)

    return replace(
        state,
        proposals=(*others, proposal),
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


_UPSTREAM: Mapping[Stage, tuple[str, ...]] = {
    Stage.SOURCE: ("kernel",),
    Stage.LIFTED: ("kernel", "source"),
    Stage.TARGET: ("kernel", "source", "lifted", "spec", "spec_modules"),
    Stage.LOWERED: ("kernel", "source", "lifted", "spec", "spec_modules", "target"),
    Stage.VERIFIED: (
        "kernel", "source", "lifted", "spec", "spec_modules", "target", "lowered",
    ),
}  # fmt: skip


def _upstream(stage: Stage, hashes: Hashes) -> Hashes:
    return {name: hashes[name] for name in _UPSTREAM[stage] if name in hashes}


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


def _verdict(
    given: tuple[Given, ...], gate: Gate, hashes: Hashes, why_stale: str | None
) -> Verdict | None:
    latest: Verdict | None = None
    not_run: Verdict | None = None
    for record in reversed(given):
        verdict = record.verdict
        if verdict.gate is not gate:
            continue
        stale = _why_stale(verdict, hashes) or why_stale
        if stale is None and verdict.kind is not VerdictKind.NOT_RUN:
            return verdict
        if stale is None and not_run is None:
            not_run = verdict
        if latest is None:
            latest = verdict.stale(stale) if stale is not None else verdict
    return not_run or latest


def _why_stale(verdict: Verdict, hashes: Mapping[str, Any]) -> str | None:
    """Which hash of the verdict's subject is no longer current; unknown inputs cannot tell."""
    for name, sha256 in verdict.subject:
        key = JUDGED[verdict.gate].value if name == "artifact" else name
        current = hashes.get(key)
        if current is None and key.partition("/")[0] in _STAGE_NAMES:
            return f"there is no {key} now"
        if current is not None and current != sha256:
            return f"{key} changed"
    return None


_STAGE_NAMES = frozenset(stage.value for stage in Stage)
