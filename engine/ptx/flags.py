"""What warps of a block learn of each other at flags and counters in shared memory.

A release pattern is a fence and then a strong write (volatile, relaxed, an atomic), or a write that
releases by itself; an acquire pattern is a strong read and then a fence, or a read that acquires by
itself. What came before the one comes before what is behind the other, where that read sees that
write, or one that atomics made of it (PTX ISA, "Memory Consistency Model": "Release and Acquire
Patterns"). Clocks are as in `ordering`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from engine.ptx.between import fences
from engine.ptx.lanes import Lanes
from engine.ptx.ordering import THREADS, Clocks
from engine.ptx.syntax import Instruction, registers

Array = np.ndarray[Any, Any]
# What a number may go through on its way to a branch.
_COMPARING = {"setp", "set", "selp", "mov", "cvt", "and", "or", "xor", "not", "add", "sub", "shl",
              "shr"}  # fmt: skip


def uses_flags(code: Iterable[Instruction]) -> bool:
    """Whether warps may learn something at flags: there is something that releases or acquires."""
    return any(map(fences, code))


class Flags:
    """Of all warps of a batch what each offered at its last fence and what it has read of others'
    offers since; of each place in shared memory what its last writer offered: `Clocks.all`."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.offered, self.met = np.zeros_like(clocks.all), np.zeros_like(clocks.all)
        self.places: dict[int, Array] = {}

    def fence(self, warps: Array) -> None:
        """What the warps have read of offers is known to them, and what they know is offered."""
        every = self.clocks.all
        self.clocks.advance(THREADS, warps)
        every[:, warps] = np.maximum(every[:, warps], self.met[:, warps])
        self.offered[:, warps] = every[:, warps]

    def meet(self, places: Array, lanes: Lanes, at: Instruction, reads: bool, writes: bool) -> None:
        """A strong access of these bytes of shared memory, one for each lane. What reads and writes
        is one atomic: what the place offered is left there."""
        every = self.clocks.all
        releases = writes and (at.has("release") or at.has("acq_rel"))
        acquires = reads and (at.has("acquire") or at.has("acq_rel"))
        if releases:
            self.clocks.advance(THREADS, lanes.warps)
        for place, warp in zip(places.tolist(), lanes.warp_of.tolist(), strict=True):
            there = self.places.get(place) if reads else None
            if there is not None:
                self.met[:, warp] = np.maximum(self.met[:, warp], there)
                if acquires:
                    every[:, warp] = np.maximum(every[:, warp], there)
            if writes:
                offer = every[:, warp] if releases else self.offered[:, warp]
                self.places[place] = offer.copy() if there is None else np.maximum(there, offer)


def decides_alone(code: Iterable[Instruction], load: Instruction) -> bool:
    """Whether what a load reads decides branches and does nothing else, as a flag that is polled
    does: which value it is depends on when it is read, so it has to be no data."""
    code = tuple(code)
    todo = list(registers(load.operands[:1]))
    seen = set(todo)
    while todo:
        register = todo.pop()
        for at in code:
            own = at.operands[1:] if at.name in _COMPARING else at.operands
            if at is load or register not in registers(own, addresses=True):
                continue
            if at.name not in _COMPARING:
                return False
            new = set(registers(at.operands[:1])) - seen
            seen |= new
            todo += new
    return True
