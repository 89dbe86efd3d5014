"""A session's history, step by step, in plain words.

Pure: it reads events and states, and runs nothing. The re-run behind `replay --check` takes the
steps from here, does the work again, and compares hashes with `Step.after`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.types import Decision, DecisionKind, Proposal, Verdict, VerdictKind
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
from sessions.fold import problem_with, step
from sessions.state import SessionState

_WIDTH = 160  # a quoted text is cut here: the whole is in the event


@dataclass(frozen=True, slots=True)
class Step:
    """One event with the state before and after it; `number` counts from 1.

    `about` is the decision that an undo or a redo is about.
    """

    number: int
    event: Event
    before: SessionState
    after: SessionState
    about: Event | None = None

    @property
    def words(self) -> str:
        """What happened; an undo and a redo name the decision that they are about."""
        if self.about is None:
            return describe(self.event)
        verb = "undid" if isinstance(self.event.body, Undone) else "made again"
        return f"{verb}: {describe(self.about)}"

    @property
    def line(self) -> str:
        """The step as one printable line: number, time, who, what."""
        return self.told(self.words)

    def told(self, words: str) -> str:
        """That line with other words for what happened."""
        problem = problem_with(self.before, self.event)
        told = isinstance(self.event.body, Unknown) or problem is None
        tail = "" if told else f" [ignored: {plain(problem or '')}]"
        time = plain(self.event.time)[:19].replace("T", " ")
        return f"{self.number:4}  {time}  {plain(self.event.actor)}: {words}{tail}"


def steps(events: Iterable[Event]) -> Iterator[Step]:
    """The history, oldest first."""
    before = SessionState()
    decided: dict[str, Event] = {}
    for number, event in enumerate(events, start=1):
        after = step(before, event)
        if isinstance(event.body, HunkDecided):
            decided[event.id] = event
        body = event.body
        about = decided.get(body.event) if isinstance(body, Undone | Redone) else None
        yield Step(number, event, before, after, about)
        before = after


def lines(events: Iterable[Event]) -> Iterator[str]:
    """The history as printable lines."""
    for each in steps(events):
        yield each.line


def describe(event: Event) -> str:
    """What happened, in plain words on one printable line (no control characters)."""
    match event.body:
        case SessionCreated(title=title, kernel=kernel, spec=spec):
            return f"created {quoted(title)} from kernel {plain(kernel)} and spec {plain(spec)}"
        case TitleSet(title):
            return f"renamed the session to {quoted(title)}"
        case InputsSet(hashes):
            changed = ", ".join(f"{plain(name)} {sha[:12]}" for name, sha in sorted(hashes.items()))
            return f"inputs changed: {changed}"
        case ArtifactSet(stage, name, None):
            return f"{stage}: removed {name}"
        case ArtifactSet(stage, name, sha256):
            return f"{stage}: {name} is now {(sha256 or '')[:12]}"
        case ProposalMade(proposal):
            return _describe_proposal(proposal)
        case HunkDecided(decision):
            return _describe_decision(decision)
        case HunkCommented(target, text):
            said = f"commented on {plain(target)}: {plain(text)}"
            return said if text else f"took the comment on {plain(target)} back"
        case VerdictGiven(verdict):
            return _describe_verdict(verdict)
        case TranscriptAdded(name=name, sha256=sha256, about=about):
            of = f" about {plain(about)}" if about else ""
            return f"kept transcript {name} ({sha256[:12]}){of}"
        case Accepted(level, hashes):
            lowered = hashes.get("lowered", "")[:12]
            return f"accepted, {level}" + (f" (lowered {plain(lowered)})" if lowered else "")
        case Committed(repository, path, commit):
            what = plain(_named(path))
            return f"committed {what} to {plain(repository)} as {plain(commit)[:12]}"
        case Undone(target):
            return f"undid decision {plain(target)}"
        case Redone(target):
            return f"redid decision {plain(target)}"
        case Forked(session, commit):
            return f"forked from {plain(session)} at {plain(commit)[:12]}"
        case Rebased(kernel, source):
            return f"rebased onto {plain(source or kernel)}"
        case Note(text):
            return f"note: {plain(text)}"
        case Unknown(type=kind, why=why):
            return f"unknown event {quoted(kind)}, kept as it is ({plain(why)})"


def plain(text: str, width: int = _WIDTH) -> str:
    """`text` on one printable line: control, format and surrogate characters become escapes."""
    shown = "".join(
        c if c.isprintable() else (" " if c in "\n\t" else c.encode("unicode_escape").decode())
        for c in text[: 4 * width]
    )
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def quoted(text: str) -> str:
    """`plain` in quotes."""
    return f'"{plain(text)}"'


def _named(paths: str) -> str:
    """Files of a commit in few words: one or two by name, more by their number."""
    names = paths.split(", ")
    if len(names) <= 2:
        return paths
    folder = posixpath.commonpath([posixpath.dirname(name) for name in names])
    return f"{len(names)} files" + (f" in {folder}/" if folder else "")


def _describe_proposal(proposal: Proposal) -> str:
    count = len(proposal.hunks)
    reason = f": {plain(proposal.reason)}" if proposal.reason else ""
    hunks = f"{count} hunk{'s' * (count != 1)}"
    return f"{proposal.origin} proposed {hunks} ({plain(proposal.id)}){reason}"


def _describe_decision(decision: Decision) -> str:
    verb = {
        DecisionKind.ACCEPTED: "accepted",
        DecisionKind.REJECTED: "rejected",
        DecisionKind.EDITED: "accepted with an edit",
    }[decision.kind]
    comment = f": {plain(decision.comment)}" if decision.comment else ""
    return f"{verb} {plain(decision.target)}{comment}"


def _describe_verdict(verdict: Verdict) -> str:
    words = {
        VerdictKind.PASS: "passed",
        VerdictKind.FAIL: "failed",
        VerdictKind.STALE: "is stale",
        VerdictKind.NOT_RUN: "was not run",
        VerdictKind.OVERRIDDEN: f"overridden by {plain(verdict.by)}",
    }[verdict.kind]
    took = f" in {verdict.seconds:.1f} s" if verdict.seconds else ""
    reason = f": {plain(verdict.reason)}" if verdict.reason else ""
    assumed = f" (assuming {len(verdict.assumed)} ops)" if verdict.assumed else ""
    return f"{verdict.gate} {words}{took}{reason}{assumed}"
