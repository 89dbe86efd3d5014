"""What blocks of a grid know of each other, and which instructions fence."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.ptx.syntax import Instruction

Array = np.ndarray[Any, Any]

LANES = np.array(6, np.int32)  # bits of an access's stamp that are its lane
_ORDERS = ("release", "acquire", "acq_rel")
# Of blocks by number: their clocks as `Clocks.all` has them, of which other blocks know the last
# row, what was offered to them.
View = dict[int, Array]


class Between:
    """What each block of a grid knows of others by flags in global memory (`Flags`), from batch to
    batch; and what was left at those flags."""

    def __init__(self) -> None:
        self.met: dict[int, View] = {}  # by block, and known there from its next fence on
        self.known: dict[int, View] = {}
        self.passed: dict[int, View] = {}  # what was known at a block's last fence
        self.places: dict[int, View] = {}

    def fence(self, block: int) -> None:
        if block in self.met:
            self.known[block] = joined(self.known.get(block, {}), self.met.pop(block))
        if block in self.known:
            self.passed[block] = self.known[block]

    def meet(self, block: int, there: View, acquires: bool) -> None:
        """A block has seen what was left at a flag."""
        views = self.known if acquires else self.met
        if others := {b: clock for b, clock in there.items() if b != block}:
            views[block] = joined(views.get(block, {}), others)

    def unknown(
        self, now: Array, then: Array, agents: Array, stamps: Array, *, volatile: bool
    ) -> Array:
        """Which accesses of the blocks `then` the blocks `now` do not know of. A volatile load is
        behind what its block met without a fence."""
        out = np.ones(len(now), np.bool_)
        for a, b in sorted({*zip(now.tolist(), then.tolist(), strict=True)}):
            for view in (self.known, self.met) if volatile else (self.known,):
                if (clock := view.get(a, {}).get(b)) is not None:
                    here = (now == a) & (then == b)
                    out[here] &= stamps[here] >> LANES > clock[-1, agents[here]]
        return out


def joined(one: View, other: View) -> View:
    """What is known by either."""
    out = dict(one)
    for block, clock in other.items():
        old = out.get(block)
        out[block] = clock if old is None else np.maximum(old, clock)
    return out


def fences(at: Instruction) -> bool:
    """Whether an instruction orders what a warp did for others, at least of its block."""
    if at.name in ("fence", "membar"):
        return not at.has("proxy") and not at.has("mbarrier_init")
    return at.name in ("ld", "st", "atom", "red") and any(map(at.has, _ORDERS))


def fences_gpu(at: Instruction) -> bool:
    """Whether it does so for other blocks, too: an atomic, if it does not say another scope."""
    atomic = at.name in ("atom", "red") and not at.has("cta") and not at.has("cluster")
    return fences(at) and (atomic or any(map(at.has, ("gl", "gpu", "sys"))))
