"""A session at one moment: what `sessions.fold` makes of a log of events.

Staleness is never stored: a verdict holds as long as the hashes it was given for are the current
ones, so undoing an edit brings its verdicts back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    Committed,
    Event,
    Forked,
    Hashes,
    Rebased,
    SessionCreated,
    TranscriptAdded,
)

_STAGES = tuple(Stage)
DRAFT_STAGES = (Stage.TARGET, Stage.LOWERED, Stage.VERIFIED)
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
class Comment:
    """What was said of a hunk, and by whom."""

    text: str
    by: str


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
    comments: Mapping[HunkKey, Comment] = field(default_factory=dict)
    given: tuple[Given, ...] = ()
    transcripts: tuple[TranscriptAdded, ...] = ()
    undo: tuple[Frame, ...] = ()
    redo: tuple[Frame, ...] = ()
    acceptance: Acceptance | None = None
    commits: tuple[Committed, ...] = ()
    forked_from: Forked | None = None
    rebased: Rebased | None = None
    notes: tuple[str, ...] = ()
    unknown: tuple[Event, ...] = ()
    problems: tuple[str, ...] = ()
    count: int = 0
    started: str = ""
    last: Event | None = None

    def stage(self, stage: Stage) -> StageState:
        """The stage's artifacts; empty when it has none yet."""
        side = self.draft.stages if stage in DRAFT_STAGES else self.expert
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
        current = upstream(stage, self.hashes)
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

    def decision(
        self, proposal: str, hunk: str, latest: Sequence[Decision] = ()
    ) -> Decision | None:
        """The standing decision about a hunk, with `latest` on top of what the session holds; None
        while it is undecided."""
        about = (proposal, hunk, f"{proposal}/{hunk}")
        now = [decision for decision in latest if decision.target in about]
        return now[-1] if now else self.draft.decisions.get((proposal, hunk))

    def comment(self, proposal: str, hunk: str) -> Comment | None:
        """What was said of a hunk last, decided or not; else what came with its decision."""
        said = self.comments.get((proposal, hunk))
        if said is None and (decision := self.decision(proposal, hunk)) is not None:
            said = Comment(decision.comment, decision.by)
        return said if said is not None and said.text else None

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


_UPSTREAM: Mapping[Stage, tuple[str, ...]] = {
    Stage.SOURCE: ("kernel",),
    Stage.LIFTED: ("kernel", "source"),
    Stage.TARGET: ("kernel", "source", "lifted", "spec", "spec_modules"),
    Stage.LOWERED: ("kernel", "source", "lifted", "spec", "spec_modules", "target"),
    Stage.VERIFIED: (
        "kernel", "source", "lifted", "spec", "spec_modules", "target", "lowered",
    ),
}  # fmt: skip


def upstream(stage: Stage, hashes: Hashes) -> Hashes:
    """The hashes that a stage's artifacts are made from."""
    return {name: hashes[name] for name in _UPSTREAM[stage] if name in hashes}


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
