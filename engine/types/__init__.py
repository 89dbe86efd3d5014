"""The vocabulary that every part shares: stages, gates, verdicts, levels, proposals, decisions.

Standard library only. Every class is frozen and has `to_json` / `from_json` with an exact round
trip; `to_json` gives plain JSON values (dict, list, str, int, float, bool, None) and names the
schema version, `from_json` raises `ValueError` on what it cannot read.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from engine.types.plain import (
    SCHEMA_VERSION,
    JsonObject,
    made_of,
    object_of,
    plain_json,
    read,
    read_object,
)


class Stage(StrEnum):
    """Where an artifact stands in the pipeline, in pipeline order."""

    SOURCE = "source"
    LIFTED = "lifted"
    TARGET = "target"
    LOWERED = "lowered"
    VERIFIED = "verified"


class Gate(StrEnum):
    """The four proofs, in pipeline order."""

    G1 = "G1"
    G2 = "G2"
    G3 = "G3"
    G4 = "G4"

    @property
    def stage(self) -> Stage:
        """The stage that this gate completes."""
        return _GATE_STAGE[self]


_GATE_STAGE = {
    Gate.G1: Stage.LIFTED,
    Gate.G2: Stage.TARGET,
    Gate.G3: Stage.LOWERED,
    Gate.G4: Stage.VERIFIED,
}


UNFINISHED = "unfinished"  # the detail of a gate that was begun and came to no verdict
TOO_SLOW = "too_slow"  # the detail of a G3 that fails the target's speed, and nothing else


class VerdictKind(StrEnum):
    """What a gate says. `STALE` is never stored: it is derived when content hashes moved on."""

    PASS = "pass"
    FAIL = "fail"
    STALE = "stale"
    NOT_RUN = "not_run"
    OVERRIDDEN = "overridden"


class Level(StrEnum):
    """How far an acceptance is proven. Computed by `level_of`, never typed in."""

    GPU_VERIFIED = "gpu-verified"
    CPU_VERIFIED = "cpu-verified"
    OVERRIDDEN = "overridden"
    NONE = "none"


class Origin(StrEnum):
    """Who wrote something."""

    EXPERT = "expert"
    RULES = "rules"
    MODEL = "model"
    PERSON = "person"


class DecisionKind(StrEnum):
    """What a person decided about a hunk or a whole proposal."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    EDITED = "edited"


def sha256_of(content: str | bytes) -> str:
    """Hex SHA-256 of bytes, or of a text as UTF-8 (undecodable source bytes kept as they were)."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One gate's verdict about exact content.

    `subject` names the content hashes it belongs to, e.g. `(("artifact", sha), ("compiler", sha),
    ("headers", sha), ("spec", sha))`, kept sorted by name; a verdict whose hashes no longer match
    is stale. `details` holds JSON values only (first wrong op, counterexample, measurements);
    non-finite floats become the strings "nan", "inf" and "-inf". `assumed` lists the op ids whose
    meaning was assumed. `by` names the person of an override. `seconds` is wall time.
    """

    gate: Gate
    kind: VerdictKind
    reason: str = ""
    seconds: float = 0.0
    subject: tuple[tuple[str, str], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    assumed: tuple[str, ...] = ()
    by: str = ""

    def __post_init__(self) -> None:
        subject = dict(self.subject)
        if len(subject) != len(self.subject):
            raise ValueError(f"a verdict's subject names a hash twice: {self.subject!r}")
        if not math.isfinite(self.seconds):
            raise ValueError("a verdict's seconds must be finite")
        object.__setattr__(self, "subject", tuple(sorted(subject.items())))
        object.__setattr__(self, "seconds", float(self.seconds))
        object.__setattr__(self, "details", plain_json(self.details))
        object.__setattr__(self, "assumed", tuple(self.assumed))

    @property
    def unfinished(self) -> bool:
        """True where the gate was begun and what judges was ended: it may be run again."""
        return self.kind is VerdictKind.NOT_RUN and bool(self.details.get(UNFINISHED))

    @property
    def too_slow(self) -> bool:
        """True where only the target's speed fails: no other lowering helps."""
        return self.kind is VerdictKind.FAIL and bool(self.details.get(TOO_SLOW))

    @property
    def spills(self) -> bool:
        """True where what was built holds more than its registers: a smaller tile may help."""
        lost = self.details.get("problems") or () if self.kind is VerdictKind.FAIL else ()
        return any(one.get("loss") in ("spills", "local memory") for one in lost)

    @property
    def stops(self) -> bool:
        """True where a run ends with it: a fail, or a gate that came to no verdict."""
        return self.kind is VerdictKind.FAIL or self.unfinished

    @property
    def passed(self) -> bool:
        """True only for a pass: stale, not_run and overridden have not passed."""
        return self.kind is VerdictKind.PASS

    def stale(self, reason: str) -> Verdict:
        """The same verdict, marked stale; the old reason stays readable in `reason`."""
        was = f"{self.kind}: {self.reason}" if self.reason else str(self.kind)
        return Verdict(
            self.gate,
            VerdictKind.STALE,
            f"{reason} (was {was})",
            self.seconds,
            self.subject,
            self.details,
            self.assumed,
            self.by,
        )

    def to_json(self) -> JsonObject:
        return {"schema": SCHEMA_VERSION, **object_of(self), "subject": dict(self.subject)}

    @classmethod
    def from_json(cls, data: object) -> Self:
        obj = read_object(data, cls.__name__)
        subject = [list(item) for item in read(obj, "subject", dict).items()]
        return made_of(cls, {**obj, "subject": subject})


def level_of(verdicts: Iterable[Verdict]) -> Level:
    """The level that these verdicts earn; the last verdict of each gate counts.

    gpu-verified: all four gates pass. cpu-verified: G1 to G3 pass and G4 has not been run on this
    content (absent, not_run or stale). overridden: every gate among G1 to G3 passed or was
    overridden by a person, G4 did not fail, and at least one gate was overridden. Everything else
    is none; a stale verdict counts as not passed.
    """
    last = {verdict.gate: verdict.kind for verdict in verdicts}
    kinds = [last.get(gate, VerdictKind.NOT_RUN) for gate in Gate]
    cpu, gpu = kinds[:3], kinds[3]
    if gpu is VerdictKind.FAIL:
        return Level.NONE
    if any(kind not in (VerdictKind.PASS, VerdictKind.OVERRIDDEN) for kind in cpu):
        return Level.NONE
    if VerdictKind.OVERRIDDEN in kinds:
        return Level.OVERRIDDEN
    return Level.GPU_VERIFIED if gpu is VerdictKind.PASS else Level.CPU_VERIFIED


def open_assumptions(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """Op ids whose meaning is still assumed: empty once G4 passes on the same content."""
    last = {verdict.gate: verdict for verdict in verdicts}
    if Gate.G4 in last and last[Gate.G4].passed:
        return ()
    return tuple(sorted({op for verdict in last.values() for op in verdict.assumed}))


@dataclass(frozen=True, slots=True)
class Artifact:
    """A stage's content under a name, with the hash that verdicts refer to.

    Build with `Artifact.of`. `data` is the exact bytes; `text` is for reading and editing and
    encodes back to the same bytes with `surrogateescape` (sources may hold invalid UTF-8).
    """

    stage: Stage
    name: str
    data: bytes = field(repr=False)
    sha256: str

    def __post_init__(self) -> None:
        if self.sha256 != sha256_of(self.data):
            raise ValueError(f"artifact {self.name!r} does not have the hash {self.sha256}")

    @classmethod
    def of(cls, stage: Stage, name: str, content: str | bytes) -> Self:
        data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        return cls(stage, name, data, sha256_of(data))

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "surrogateescape")

    def to_json(self) -> JsonObject:
        head: JsonObject = {
            "schema": SCHEMA_VERSION,
            "stage": self.stage.value,
            "name": self.name,
            "sha256": self.sha256,
        }
        try:
            return head | {"text": self.data.decode("utf-8")}
        except UnicodeDecodeError:
            return head | {"base64": base64.b64encode(self.data).decode("ascii")}

    @classmethod
    def from_json(cls, data: object) -> Self:
        obj = read_object(data, cls.__name__)
        if "base64" in obj:
            content = base64.b64decode(read(obj, "base64", str), validate=True)
        else:
            content = read(obj, "text", str).encode("utf-8")
        return cls(
            Stage(read(obj, "stage", str)),
            read(obj, "name", str),
            content,
            read(obj, "sha256", str),
        )


@dataclass(frozen=True, slots=True)
class Hunk:
    """One reviewable change of the target CuIR.

    `clause` is the recipe clause it serves, several with ", " (empty if none); `before` and
    `after` are CuIR text, either may be empty; `op_ids` are the ops it touches.
    """

    id: str
    title: str
    reason: str
    clause: str
    before: str
    after: str
    op_ids: tuple[str, ...]
    origin: Origin

    def __post_init__(self) -> None:
        object.__setattr__(self, "op_ids", tuple(self.op_ids))

    @property
    def clauses(self) -> tuple[str, ...]:
        """The kinds of the clauses that it serves."""
        return tuple(kind for kind in self.clause.split(", ") if kind)

    def to_json(self) -> JsonObject:
        return {"schema": SCHEMA_VERSION, **object_of(self)}

    @classmethod
    def from_json(cls, data: object) -> Self:
        return made_of(cls, read_object(data, cls.__name__))


@dataclass(frozen=True, slots=True)
class Proposal:
    """Hunks with one origin and reason: the only way into the target.

    `transcript` is the hash of the transcript that explains it (a model's conversation), or None.
    """

    id: str
    origin: Origin
    reason: str
    hunks: tuple[Hunk, ...]
    transcript: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "hunks", tuple(self.hunks))
        ids = [hunk.id for hunk in self.hunks]
        if len(set(ids)) != len(ids):
            raise ValueError(f"proposal {self.id!r} has two hunks with one id")

    def to_json(self) -> JsonObject:
        return {"schema": SCHEMA_VERSION, **object_of(self)}

    @classmethod
    def from_json(cls, data: object) -> Self:
        return made_of(cls, {"transcript": None, **read_object(data, cls.__name__)})


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about a hunk or a whole proposal (`target` is its id).

    An `EDITED` decision carries the text that replaces the hunk's `after`.
    """

    target: str
    kind: DecisionKind
    by: str
    comment: str = ""
    replacement: str | None = None

    def __post_init__(self) -> None:
        if (self.kind is DecisionKind.EDITED) != (self.replacement is not None):
            raise ValueError("an edited decision, and only that, carries a replacement text")

    def to_json(self) -> JsonObject:
        return {"schema": SCHEMA_VERSION, **object_of(self)}

    @classmethod
    def from_json(cls, data: object) -> Self:
        return made_of(cls, {"replacement": None, **read_object(data, cls.__name__)})
