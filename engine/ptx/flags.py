"""What warps of a block, and blocks of a grid, learn of each other at flags and counters in memory.

A release pattern is a fence and then a strong write (volatile, relaxed, an atomic), or a write that
releases by itself; an acquire pattern is a strong read and then a fence, or a read that acquires by
itself. What came before the one comes before what is behind the other, where that read sees that
write, or one that atomics made of it (PTX ISA, "Memory Consistency Model": "Release and Acquire
Patterns"); between blocks, where both are of the whole GPU. Clocks are as in `ordering`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.ptx.lanes import Lanes
from engine.ptx.ordering import THREADS, Clocks, View, joined
from engine.ptx.syntax import Instruction, Kernel, Symbol, registers

Array = np.ndarray[Any, Any]
_ORDERS = ("release", "acquire", "acq_rel")
_STRONG = ("volatile", "relaxed", "acquire", "release", "acq_rel")
# What a number may go through on its way to a branch or to a compare-and-swap.
_THROUGH = {"setp", "set", "selp", "slct", "mov", "cvt", "and", "or", "xor", "not", "lop3", "shl",
            "shr", "bfe", "prmt", "add", "sub", "mul", "mad", "fma", "neg", "min", "max", "vote",
            "shfl", "bar", "barrier"}  # fmt: skip


class Flags:
    """Of all warps of a batch what each offered at its last fence and what it has read of its
    block's offers since; of each place what its last writers offered: `Clocks.all`. What it has
    read of other blocks' is known to its block (`Between`)."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.offered, self.met = np.zeros_like(clocks.all), np.zeros_like(clocks.all)
        self.shared: dict[int, View] = {}

    def fence(self, warps: Array, gpu: bool) -> None:
        """What the warps have read of offers is known to them, and what they know is offered; to
        other blocks by a fence of the whole GPU."""
        clocks, every = self.clocks, self.clocks.all
        clocks.advance(THREADS, warps)
        every[:, warps] = np.maximum(every[:, warps], self.met[:, warps])
        if gpu:
            clocks.offered[warps] = np.maximum(clocks.offered[warps], clocks.known[warps])
            for block in np.unique(warps // clocks.per_block).tolist():
                clocks.between.fence(block + clocks.first_block)
        self.offered[:, warps] = every[:, warps]

    def meet(
        self, space: str, places: Array, lanes: Lanes, at: Instruction, reads: bool, writes: bool
    ) -> None:
        """A strong access of these bytes, one for each lane. What reads and writes is one atomic:
        what the place offered is left there."""
        clocks, every, between = self.clocks, self.clocks.all, self.clocks.between
        flags = between.places if space == "global" else self.shared
        releases = writes and (at.has("release") or at.has("acq_rel"))
        acquires = reads and (at.has("acquire") or at.has("acq_rel"))
        gpu = fences_gpu(at)
        if releases:
            clocks.advance(THREADS, lanes.warps)
        for place, warp in zip(places.tolist(), lanes.warp_of.tolist(), strict=True):
            block = warp // clocks.per_block + clocks.first_block
            there = flags.get(place, {}) if reads else {}
            if block in there:
                into = every if acquires else self.met
                into[:, warp] = np.maximum(into[:, warp], there[block])
            between.meet(block, there, acquires and gpu)
            if writes:
                offer = (every if releases else self.offered)[:, warp].copy()
                offer[-1] = (clocks.known if releases and gpu else clocks.offered)[warp]
                passed = (between.known if releases and gpu else between.passed).get(block, {})
                flags[place] = joined(there, passed | {block: offer})


def fences(at: Instruction) -> bool:
    """Whether an instruction orders what a warp did for others, at least of its block."""
    if at.name in ("fence", "membar"):
        return not at.has("proxy") and not at.has("mbarrier_init")
    return at.name in ("ld", "st", "atom", "red") and any(map(at.has, _ORDERS))


def fences_gpu(at: Instruction) -> bool:
    """Whether it does so for other blocks, too: an atomic, if it does not say another scope."""
    atomic = at.name in ("atom", "red") and not at.has("cta") and not at.has("cluster")
    return fences(at) and (atomic or any(map(at.has, ("gl", "gpu", "sys"))))


def strong(at: Instruction) -> bool:
    """Whether an access is one that may meet others at its place instead of racing with them."""
    return any(map(at.has, _STRONG))


def judged(kernel: Kernel) -> frozenset[str]:
    """The registers that a compare-and-swap compares with."""
    swaps = [at for at in kernel.code if at.name == "atom" and at.has("cas")]
    return frozenset(x for at in swaps for x in registers(at.operands[2:3]))


def meets(kernel: Kernel, load: Instruction, judged: frozenset[str]) -> bool:
    """Whether a load reads a flag and no data. Which value it is depends on when it is read: that
    is right where the value decides branches and does nothing else; where one of those goes back
    to read again until it is another; and where a compare-and-swap judges it and what was made of
    it."""
    seen = set(registers(load.operands[:1]))
    if not strong(load) and judged.isdisjoint(seen):
        return False
    uses = list(_uses(kernel, load, seen))
    if all(at.name == "atom" and at.has("cas") for at in uses):
        return True
    return strong(load) and _polled(kernel, load, seen)


def _uses(kernel: Kernel, load: Instruction, seen: set[str]) -> Iterator[Instruction]:
    """What takes a value that was made of those in `seen`, which become all such registers."""
    todo = list(seen)
    while todo:
        register = todo.pop()
        for at in kernel.code:
            own = at.operands[1:] if at.name in _THROUGH else at.operands
            if at is load or register not in registers(own, addresses=True):
                continue
            if at.name not in _THROUGH:
                yield at
                continue
            new = set(registers(at.operands[:1])) - seen
            seen |= new
            todo += new


def _polled(kernel: Kernel, load: Instruction, decided: set[str]) -> bool:
    """Whether a branch on one of the values leads back to the load with its address as it was."""
    address = set(registers(load.operands[1:], addresses=True))
    todo = [n for n, at in enumerate(kernel.code)
            if at.name == "bra" and at.guard is not None and at.guard.name in decided]  # fmt: skip
    passed = set()
    while todo:
        n = todo.pop()
        if n in passed or n >= len(kernel.code):
            continue
        passed.add(n)
        at = kernel.code[n]
        if at is load:
            return True
        if at.name not in ("st", "red") and address & set(registers(at.operands[:1])):
            continue
        if at.name == "bra":
            todo += [kernel.labels[x.name] for x in at.operands if isinstance(x, Symbol)]
        if at.name not in ("bra", "ret", "exit", "trap") or at.guard is not None:
            todo.append(n + 1)
    return False
