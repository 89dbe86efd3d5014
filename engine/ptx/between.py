"""Fences, and what blocks of a grid know of each other by them and by atomics in global memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.ptx.syntax import Instruction

Array = np.ndarray[Any, Any]

LANES = np.array(6, np.int32)  # bits of an access's stamp that are its lane
_ORDERS = ("release", "acquire", "acq_rel")
View = dict[int, Array]  # of blocks by number: the epochs of their agents that are known


class Between:
    """What blocks of a grid know of each other (PTX ISA, "Release and Acquire Patterns"): what came
    before a fence of the whole GPU in a warp, and an atomic of it after that, comes before what
    another block does behind a fence after its own atomic of the same place.

    Atomics and accesses that are volatile, relaxed, acquire or release meet at their places.
    """

    def __init__(self) -> None:
        self.met: dict[int, View] = {}  # by block, and known there from its next fence on
        self.known: dict[int, View] = {}
        self.passed: dict[int, View] = {}  # what was known at a block's last fence
        self.places: dict[int, View] = {}

    def fence(self, block: int) -> None:
        known = self.known.setdefault(block, {})
        _join(known, self.met.pop(block, {}))
        self.passed[block] = dict(known)

    def meet(self, place: int, block: int, offered: Array, reads: bool, writes: bool) -> None:
        here = self.places.setdefault(place, {})
        if reads:
            _join(self.met.setdefault(block, {}), here)
        if writes:
            _join(here, self.passed.get(block, {}) | {block: offered.copy()})

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
                    out[here] &= stamps[here] >> LANES > clock[agents[here]]
        return out


def _join(into: View, other: View) -> None:
    for block, clock in other.items():
        old = into.get(block)
        into[block] = clock if old is None else np.maximum(old, clock)


def fences(at: Instruction) -> bool:
    """Whether an instruction orders what a warp did for others, at least of its block."""
    if at.name in ("fence", "membar"):
        return not at.has("proxy") and not at.has("mbarrier_init")
    return at.name in ("ld", "st", "atom", "red") and any(map(at.has, _ORDERS))


def fences_gpu(at: Instruction) -> bool:
    """Whether it does so for other blocks, too: an atomic, if it does not say another scope."""
    atomic = at.name in ("atom", "red") and not at.has("cta") and not at.has("cluster")
    return fences(at) and (atomic or any(map(at.has, ("gl", "gpu", "sys"))))
