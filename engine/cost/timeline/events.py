"""A timeline as data: lanes of events in cycles. Made by `engine.cost.timeline.block`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.types.plain import made_of, object_of

COPY, MATMUL, SOFTMAX = "copies", "matmuls", "softmax"
WAIT, BARRIER = "waits", "barriers"
KINDS = (COPY, MATMUL, SOFTMAX, WAIT, BARRIER)


@dataclass(frozen=True, slots=True)
class Event:
    """From one cycle to another, on a lane: an op by its name, and of which of `KINDS` it is."""

    lane: int
    op: str
    kind: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """`lanes` by name; `window`, in cycles, holds one key tile of every warpgroup. `tile` is what
    it takes in the simulation, `predicted` what the cost model says of the same steps, and `busy`
    each unit's share of the whole kernel's time. `problem` says why there is none."""

    kernel: str = ""
    lanes: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    window: tuple[float, float] = (0.0, 0.0)
    tile: float = 0.0
    predicted: float = 0.0
    resident: int = 1
    busy: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        return object_of(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Timeline:
        return made_of(cls, data)
