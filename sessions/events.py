"""The append-only event log of a session: what can happen, and how it is written.

One event is one line of JSON. A line that this version cannot read (a newer event type, a newer
schema, damage) becomes an `Unknown` event that keeps the line's text, so nothing is ever lost by
reading and writing a log. What the events add up to is `sessions.state`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from engine.types import Decision, Level, Proposal, Stage, Verdict
from engine.types.plain import (
    SCHEMA_VERSION,
    JsonObject,
    made_of,
    object_of,
    plain_json,
    read,
    read_object,
)
from sessions.ids import check_name, check_sha256, new_event_id

Hashes = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SessionCreated:
    """The first event: which kernel and spec (as the person named them), and their hashes."""

    title: str
    kernel: str
    kernel_sha256: str
    spec: str
    spec_sha256: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_sha256(self.kernel_sha256, "the kernel's hash")
        check_sha256(self.spec_sha256, "the spec's hash")
        object.__setattr__(self, "options", plain_json(self.options))


@dataclass(frozen=True, slots=True)
class TitleSet:
    """The person renamed the session."""

    title: str


@dataclass(frozen=True, slots=True)
class InputsSet:
    """An input changed on disk: new hashes by name (kernel, spec, headers, compiler)."""

    hashes: Hashes = field(hash=False)

    def __post_init__(self) -> None:
        for name, sha256 in self.hashes.items():
            check_sha256(sha256, f"the hash of {name}")
        object.__setattr__(self, "hashes", plain_json(self.hashes))


@dataclass(frozen=True, slots=True)
class ArtifactSet:
    """A stage's artifact is now this content; no hash means that the stage has it no more.

    Artifacts are set in pipeline order: what a stage was made from is what stood at that moment.
    """

    stage: Stage
    name: str
    sha256: str | None

    def __post_init__(self) -> None:
        check_name(self.name, "an artifact")
        if self.sha256 is not None:
            check_sha256(self.sha256, f"the hash of {self.name}")


@dataclass(frozen=True, slots=True)
class ProposalMade:
    """Rules, a model or a person propose hunks. The same proposal id again replaces the old one."""

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class HunkDecided:
    """A hunk, or every hunk of a proposal, was accepted, rejected or edited.

    The decision's target is `proposal`, `hunk` (the latest proposal that has it) or
    `proposal/hunk`.
    """

    decision: Decision


@dataclass(frozen=True, slots=True)
class HunkCommented:
    """Somebody said something about a hunk (`proposal/hunk`), and decided nothing by it.

    It takes the place of what was said before; an empty text takes it back.
    """

    target: str
    text: str


@dataclass(frozen=True, slots=True)
class VerdictGiven:
    """A gate judged content. Whether the verdict still holds is derived from its hashes."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class TranscriptAdded:
    """A conversation or a tool's output was kept; `about` is a proposal id, a gate, or empty."""

    name: str
    sha256: str
    about: str = ""

    def __post_init__(self) -> None:
        check_name(self.name, "a transcript")
        check_sha256(self.sha256, f"the hash of {self.name}")


@dataclass(frozen=True, slots=True)
class Accepted:
    """The person accepted the content with these hashes; make it with `state.acceptance_of`."""

    level: Level
    hashes: Hashes = field(hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hashes", plain_json(self.hashes))


@dataclass(frozen=True, slots=True)
class Committed:
    """The accepted kernel was committed into the person's own repository."""

    repository: str
    path: str
    commit: str


@dataclass(frozen=True, slots=True)
class Undone:
    """The latest decision (`event` is its id) was taken back, with the artifacts it led to."""

    event: str


@dataclass(frozen=True, slots=True)
class Redone:
    """The decision undone last (`event` is its id) stands again, with its artifacts."""

    event: str


@dataclass(frozen=True, slots=True)
class Forked:
    """What came before is another session's history, up to `commit` of the store."""

    session: str
    commit: str


@dataclass(frozen=True, slots=True)
class Rebased:
    """The session goes on with another version of its kernel: the package at the path `kernel`,
    with the source at `source` where that is not the package's own.

    What was proposed and decided was about the version before it, and is history.
    """

    kernel: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Words for the reader of the history."""

    text: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A line that this version cannot read, kept exactly; `why` says what was wrong."""

    type: str
    line: str
    why: str


Body = (
    SessionCreated
    | TitleSet
    | InputsSet
    | ArtifactSet
    | ProposalMade
    | HunkDecided
    | HunkCommented
    | VerdictGiven
    | TranscriptAdded
    | Accepted
    | Committed
    | Undone
    | Redone
    | Forked
    | Rebased
    | Note
    | Unknown
)
BODIES: Mapping[str, type] = {
    cls.__name__: cls
    for cls in (
        SessionCreated,
        TitleSet,
        InputsSet,
        ArtifactSet,
        ProposalMade,
        HunkDecided,
        HunkCommented,
        VerdictGiven,
        TranscriptAdded,
        Accepted,
        Committed,
        Undone,
        Redone,
        Forked,
        Rebased,
        Note,
    )
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `time` is UTC, ISO 8601; `actor` is who did it, in their words."""

    id: str
    time: str
    actor: str
    body: Body

    @property
    def type(self) -> str:
        """The event's type, also of one that this version does not know."""
        return self.body.type if isinstance(self.body, Unknown) else type(self.body).__name__


def now() -> str:
    """The present moment as events write it: UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamp(bodies: Sequence[Body], actor: str, after: str | None) -> tuple[Event, ...]:
    """Events for things that happen now, with ids that sort after the event `after`."""
    time = now()
    events = []
    for body in bodies:
        after = new_event_id(after)
        events.append(Event(after, time, actor, body))
    return tuple(events)


def stroke_end(events: Sequence[Event], index: int) -> int:
    """The place of the last event that was appended together with the one at `index`.

    A decision and the artifact that it makes, a proposal and its target, an undo of several
    decisions are one thing that happened: no history ends between them. What is stamped at once
    bears one time, and nothing else does, since saving takes longer than a millisecond.
    """
    first = events[index]
    end = index
    while end + 1 < len(events) and (events[end + 1].time, events[end + 1].actor) == (
        first.time,
        first.actor,
    ):
        end += 1
    return end


def encode(event: Event) -> bytes:
    """The event's line, without its newline: ASCII JSON, so any terminal may show it."""
    if isinstance(event.body, Unknown):
        return event.body.line.encode("utf-8", "surrogateescape")
    line: JsonObject = {
        "schema": SCHEMA_VERSION,
        "id": event.id,
        "time": event.time,
        "actor": event.actor,
        "type": event.type,
        "data": object_of(event.body),
    }
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode("ascii")


def decode(line: bytes) -> Event:
    """The event of a line. Total: what cannot be read becomes `Unknown` with its text kept."""
    text = line.decode("utf-8", "surrogateescape")
    obj: object = None
    try:
        obj = json.loads(text)
        return _event_of(read_object(obj, "event"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        head = obj if isinstance(obj, dict) else {}
        id_, time, actor, kind = (_text(head, key) for key in ("id", "time", "actor", "type"))
        return Event(id_, time, actor, Unknown(kind, text, str(error)))


def encode_log(events: Sequence[Event]) -> bytes:
    """The lines of a whole log."""
    return b"".join(encode(event) + b"\n" for event in events)


def decode_log(log: bytes) -> tuple[Event, ...]:
    """The events of a whole log (a last line without its newline is still a line)."""
    return tuple(decode(line) for line in log.split(b"\n") if line)


def _event_of(obj: JsonObject) -> Event:
    kind = read(obj, "type", str)
    cls = BODIES.get(kind)
    if cls is None:
        raise ValueError(f"this version does not know events of type {kind!r}")
    body: Body = made_of(cls, read(obj, "data", dict))
    id_, time, actor = (read(obj, key, str) for key in ("id", "time", "actor"))
    return Event(id_, time, actor, body)


def _text(obj: Mapping[str, object], key: str) -> str:
    value = obj.get(key)
    return value if isinstance(value, str) else ""
