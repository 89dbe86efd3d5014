"""A saved session as a tape: its steps, where to jump, and what the panes show at each of them.

A step here is a beat of the story: what was done at one stroke, with what machines wrote in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from cubridge_tui.model.linediff import opcodes, unified
from cubridge_tui.model.meanings import open_meanings
from cubridge_tui.model.replay_hunks import hunks_of, with_hunks
from cubridge_tui.model.rows import PaneText, Row, RowKind, plain_rows
from cubridge_tui.model.story import Beat, beats, merged
from cubridge_tui.text.cells import split_lines
from engine.errors import CuBridgeError
from engine.service.session.content import LIFTED, LOWERED, SOURCE, TARGET
from engine.service.session.proposal_kinds import edits
from engine.types import DecisionKind, Stage, VerdictKind
from sessions.events import (
    Accepted,
    ArtifactSet,
    Committed,
    Event,
    HunkCommented,
    HunkDecided,
    ProposalMade,
    Redone,
    SessionCreated,
    Undone,
    VerdictGiven,
)
from sessions.replay import Step, plain, steps
from sessions.state import SessionState

NAMES = {
    Stage.SOURCE: (SOURCE, "cuda"),
    Stage.LIFTED: (LIFTED, "cuir"),
    Stage.TARGET: (TARGET, "cuir"),
    Stage.LOWERED: (LOWERED, "cuda"),
}
SPEEDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # steps per second
_SIGNS = {
    VerdictKind.PASS: "✓",
    VerdictKind.FAIL: "✗",
    VerdictKind.STALE: "~",
    VerdictKind.NOT_RUN: "–",
    VerdictKind.OVERRIDDEN: "!",
}
Content = Callable[[str], bytes]


@dataclass(frozen=True)
class Tape:
    """The steps of one session, each with its beat. Positions count from 0; a position is the
    state after its step."""

    session: str
    steps: tuple[Step, ...]
    beats: tuple[Beat, ...]

    @classmethod
    def of(cls, session: str, events: Iterable[Event]) -> Tape:
        history = list(steps(events))
        found = tuple(beats(history))
        whole = tuple(merged(beat, history, n) for n, beat in enumerate(found, start=1))
        return cls(session, whole, found)

    @property
    def last(self) -> int:
        return max(len(self.steps) - 1, 0)

    @cached_property
    def decisions(self) -> tuple[int, ...]:
        """Where a person decided something."""
        kinds = (HunkDecided, Undone, Redone, Accepted, Committed)
        return tuple(i for i, s in enumerate(self.steps) if isinstance(s.event.body, kinds))

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """Where the work moved on to another stage."""
        found: list[int] = []
        now: Stage | None = None
        for i, each in enumerate(self.steps):
            stage = changed_stage(each)
            if stage is not None and stage is not now:
                found.append(i)
                now = stage
        return tuple(found)

    def jump(self, position: int, places: Iterable[int], direction: int) -> int:
        """The place after (1) or before (-1) a position; the position where there is none."""
        if direction > 0:
            return min((p for p in places if p > position), default=position)
        return max((p for p in places if p < position), default=position)

    def state(self, position: int) -> SessionState:
        return self.steps[position].after if self.steps else SessionState()

    def stage_at(self, position: int) -> Stage:
        """The stage whose text a step is about: that of its hunks, else the one changed last."""
        if self.steps and hunks_of(self.steps[position]) is not None:
            has = self.steps[position].after.stage(Stage.TARGET).artifacts
            return Stage.TARGET if NAMES[Stage.TARGET][0] in has else Stage.LIFTED
        for each in reversed(self.steps[: position + 1]):
            stage = changed_stage(each)
            if stage is not None:
                return stage
        return Stage.SOURCE


def changed_stage(each: Step) -> Stage | None:
    """The stage whose shown text a step changes, if any."""
    body = each.event.body
    if isinstance(body, ArtifactSet) and body.stage in NAMES and body.name == NAMES[body.stage][0]:
        return body.stage
    for stage, (name, _) in NAMES.items():
        sides = (each.before, each.after)
        before, after = (side.stage(stage).artifacts.get(name) for side in sides)
        if before != after:
            return stage
    return None


def next_decision(state: SessionState) -> tuple[Stage, str]:
    """The stage whose pane the next decision is about, and its first undecided hunk, if any."""
    if not state.stage(Stage.LIFTED).artifacts:
        return Stage.SOURCE, ""
    if open_meanings(state):
        return Stage.LIFTED, ""
    for proposal in edits(state.proposals):
        for hunk in proposal.hunks:
            if state.decision(proposal.id, hunk.id) is None:
                return Stage.TARGET, f"{proposal.id}/{hunk.id}"
    for stage in (Stage.LOWERED, Stage.TARGET):
        if state.stage(stage).artifacts:
            return stage, ""
    return Stage.LIFTED, ""


def timeline(tape: Tape) -> tuple[Row, ...]:
    """The steps as lines, signs for decisions, texts and verdicts."""
    rows = []
    for each, beat in zip(tape.steps, tape.beats, strict=True):
        text = f"{plain(beat.time)[11:19]}  {plain(beat.actor)}: {beat.told}"
        rows.append(Row(text, RowKind.SAME, each.number, "", "", None, _sign(each)))
    return tuple(rows)


def _sign(each: Step) -> str:
    match each.event.body:
        case HunkDecided(decision):
            return {"rejected": "x", "edited": "~"}.get(decision.kind.value, "+")
        case HunkCommented():
            return '"'
        case VerdictGiven(verdict):
            return _SIGNS[verdict.kind]
        case Undone() | Redone():
            return "↶" if isinstance(each.event.body, Undone) else "↷"
        case Accepted() | Committed():
            return "★"
        case ProposalMade():
            return "?"
    return "▸" if changed_stage(each) is not None else " "


def text_at(tape: Tape, position: int, stage: Stage, content: Content) -> PaneText:
    """A stage's text after a step; against the text before it where that step changed it."""
    name, language = NAMES[stage]
    if not tape.steps:
        return PaneText((), "", stage.value, "an empty session")
    each = tape.steps[position]
    now = each.after.stage(stage).artifacts.get(name)
    before = each.before.stage(stage).artifacts.get(name)
    if now is None:
        return PaneText((), language, stage.value, f"no {stage} text yet at this step")
    try:
        lines = split_lines(content(now).decode("utf-8", "surrogateescape"))
        about = stage in (Stage.LIFTED, Stage.TARGET)
        if before is None or before == now or (about and hunks_of(each) is not None):
            rows = with_hunks(lines, each, content) if about else plain_rows(lines)
            return PaneText(rows, language, _title(stage, each), "", now)
        old = split_lines(content(before).decode("utf-8", "surrogateescape"))
    except CuBridgeError as error:
        return PaneText((), language, stage.value, error.message)
    rows = unified(old, lines, opcodes(old, lines), {}, {}, {}, {}, {})
    return PaneText(rows, language, _title(stage, each) + ", this step's changes", "", now)


def _title(stage: Stage, each: Step) -> str:
    outdated = each.after.outdated(stage)
    return f"{stage} after step {each.number}" + (
        f", made before {outdated} changed" if outdated else ""
    )


def details(each: Step, beat: Beat | None = None) -> list[str]:
    """What a step's event holds besides its line, or several of them; and what machines wrote."""
    if beat is not None:
        wrote = [f"with it: {', '.join(beat.folded)}"] if beat.folded else []
        return [*(beat.details or details(each)), *wrote]
    match each.event.body:
        case SessionCreated(title=title, kernel=kernel, spec=spec, options=options):
            chosen = ", ".join(
                f"{k} {v}" for k, v in options.items() if k in ("arch", "spec") and v
            )
            return [f"{title}: {kernel} for {spec}" + (f" ({chosen})" if chosen else "")]
        case ProposalMade(proposal):
            return [f"{h.id}  {h.title}: {h.reason}" for h in proposal.hunks]
        case HunkDecided(decision):
            found = each.before.find_hunk(decision.target)
            words = [f"{found[1].title}: {found[1].reason}"] if found else []
            if decision.kind is DecisionKind.EDITED and decision.replacement is not None:
                words.append("edited text: " + decision.replacement)
            return words + ([f"comment: {decision.comment}"] if decision.comment else [])
        case HunkCommented(target):
            found = each.before.find_hunk(target)
            return [f"{found[1].title}: {found[1].reason}"] if found else []
        case VerdictGiven(verdict):
            example = verdict.details.get("counterexample")
            return [verdict.reason, *([f"counterexample: {example}"] if example else [])]
        case Accepted(hashes=hashes):
            return [f"{name} {sha[:12]}" for name, sha in sorted(hashes.items())]
    return []
