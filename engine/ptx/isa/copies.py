"""cp.async: copies into shared memory that land when their group is waited for.

In the first world a copy lands at once, in the second one at the wait: whoever reads between sees
two values (PTX ISA, "cp.async").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.isa.data import CACHE, SPACES
from engine.ptx.lanes import Lanes
from engine.ptx.machine import Machine, Run
from engine.ptx.memory import Memory
from engine.ptx.ordering import COPIES
from engine.ptx.registers import UNDEFINED, Values
from engine.ptx.syntax import Immediate, Instruction

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class _Arrival:
    """Threads of a warp arrive at an mbarrier when the copies up to an epoch have landed."""

    warp: int
    epoch: int
    barrier: tuple[int, int]
    threads: int


@dataclass(slots=True)
class _Flight:
    """Bytes on their way: for each copy the warp and group, where they go, and what they are."""

    warps: Array
    epochs: Array
    offset: Array
    data: Array  # [copies, bytes], of the second world


class Copies:
    """The cp.async copies of a batch of blocks that nobody has waited for."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.flights: list[_Flight] = []
        self.arrivals: list[_Arrival] = []
        # Epochs of a warp that ended at such an arrival, and not with a group.
        self.ungrouped: dict[int, set[int]] = {}
        machine.pending.append(self.land_one)

    def start(self, lanes: Lanes, offset: Array, data: Array) -> None:
        """Copies `data` [2, lanes, bytes] to offsets in shared memory."""
        memory, clocks = self.machine.memory, self.machine.clocks
        warps = lanes.warp_of
        held = memory.spaces["shared"]
        index = offset[:, None] + np.arange(data.shape[-1])
        held[0, index] = data[0]
        held[1, index] = UNDEFINED[1][index & 1]
        memory.set["shared"][index] = True
        epochs = clocks.epoch[warps // clocks.per_block, clocks.agent(COPIES, warps)]
        self.flights.append(_Flight(warps, epochs, index, data[1]))

    def commit(self, lanes: Lanes) -> None:
        self.machine.clocks.advance(COPIES, lanes.warps)

    def wait(self, lanes: Lanes, left: int) -> None:
        """All groups of these warps but the last `left` have landed."""
        clocks = self.machine.clocks
        warps = lanes.warps
        agent = clocks.agent(COPIES, warps)
        done = clocks.epoch[warps // clocks.per_block, agent] - 1 - left
        for k, warp in enumerate(warps.tolist()):
            if others := self.ungrouped.get(warp):
                closed = [e for e in range(1, int(done[k]) + left + 1) if e not in others]
                done[k] = closed[-1 - left] if len(closed) > left else 0
        clocks.learn(warps, COPIES, done)
        self.land(warps, done)

    def land(self, warps: Array, done: Array) -> None:
        """The copies of these warps up to an epoch of each have landed."""
        clocks = self.machine.clocks
        limit = np.full(clocks.blocks * clocks.per_block, -1, np.int64)
        limit[warps] = done
        shared = self.machine.memory.spaces["shared"]
        rest: list[_Flight] = []
        for f in self.flights:
            landed = f.epochs <= limit[f.warps]
            if landed.all():
                shared[1, f.offset] = f.data
            elif landed.any():
                shared[1, f.offset[landed]] = f.data[landed]
                keep = ~landed
                rest.append(_Flight(f.warps[keep], f.epochs[keep], f.offset[keep], f.data[keep]))
            else:
                rest.append(f)
        self.flights = rest

    def arrive(self, lanes: Lanes, address: Array, counted: bool, at: Instruction) -> None:
        """Each lane arrives at its mbarrier when its warp's copies so far have landed.

        Args:
            counted: the mbarrier expects these arrivals; else it expects them from here on, for
                the phase that is open (PTX ISA, "cp.async.mbarrier.arrive").
        """
        clocks, mbarriers = self.machine.clocks, self.machine.mbarriers
        mbarriers.uses(lanes, address, at)
        keys = mbarriers.place(lanes, address, at)
        for warp, key in sorted({*zip(lanes.warp_of.tolist(), keys, strict=False)}):
            barrier = mbarriers.find(key, lanes, at)
            if barrier is None:
                continue
            here = zip(lanes.warp_of.tolist(), keys, strict=False)
            count = sum(each == (warp, key) for each in here)
            barrier.pending += 0 if counted else count
            epoch = int(clocks.epoch[warp // clocks.per_block, clocks.agent(COPIES, warp)])
            self.arrivals.append(_Arrival(warp, epoch, key, count))
        for warp in lanes.warps.tolist():
            epoch = int(clocks.epoch[warp // clocks.per_block, clocks.agent(COPIES, warp)])
            self.ungrouped.setdefault(warp, set()).add(epoch)
        clocks.advance(COPIES, lanes.warps)

    def land_one(self) -> bool:
        """The oldest of the copies that arrive at an mbarrier land; whether there were any."""
        if not self.arrivals:
            return False
        a = self.arrivals.pop(0)
        self.land(np.array([a.warp]), np.array([a.epoch]))
        self.machine.mbarriers.copied(a.barrier, a.threads, a.warp, a.epoch)
        self.machine.events += 1
        return True


def _aligned(memory: Memory, source: Values, size: int, lanes: Lanes, at: Instruction) -> None:
    """A finding where a source is not aligned to the copy's size, however much of it is read (PTX
    ISA, "cp.async": cp-size)."""
    off = source[0] % size
    if np.count_nonzero(off):
        words = f"a copy of {size} bytes from an address {int(off[off != 0][0])} beyond a multiple"
        memory.report("misaligned", at, words, int(lanes.threads[int((off != 0).argmax())]))


def _copy(site: Site) -> Run:
    site.takes("async", "ca", "cg", "shared", "shared::cta", "global", CACHE)
    size_operand = site.operand(2)
    if not isinstance(size_operand, Immediate):
        raise site.refuse("a constant number of bytes is needed")
    size = size_operand.value
    to, source = site.address(0), site.address(1)
    have = (
        site.fetch(3, "u32")
        if len(site.at.operands) > 3 and not site.at.has("L2::cache_hint")
        else None
    )
    machine, at = site.machine, site.at
    memory, copies = machine.memory, machine.copies

    def copy(lanes: Lanes) -> None:
        there = np.full(len(lanes), size)
        if have is not None:
            there = memory.same(have(lanes), lanes, at, "a number of bytes").astype(np.int64)
        data = np.zeros((2, len(lanes), size), np.uint8)
        for amount in np.unique(there):
            inner = lanes.where(there == amount)
            if inner is None or not amount:
                continue
            picked = there == amount
            _aligned(memory, source(inner), size, inner, at)
            space, offset, inside = memory.load("global", source(inner), int(amount), inner, at)
            data[:, picked, :amount] = memory.read(space, offset[:, None] + np.arange(amount), 1)
        _, target, inside = memory.place("shared", to(lanes), size, lanes, at, "writes")
        kept = lanes.where(inside)
        if kept is None:
            return
        target = target[inside]
        memory.order("shared", target, size, kept, at, True, COPIES)
        copies.start(kept, target, data[:, inside])

    return copy


def _cp(site: Site) -> Run:
    at, machine = site.at, site.machine
    if at.has("commit_group"):
        site.takes("async", "commit_group")
        return lambda lanes: machine.copies.commit(lanes)
    if at.has("wait_group"):
        site.takes("async", "wait_group")
        count = site.operand(0)
        if not isinstance(count, Immediate):
            raise site.refuse("a constant is needed")
        left = count.value
        return lambda lanes: machine.copies.wait(lanes, left)
    if at.has("wait_all"):
        site.takes("async", "wait_all")

        def wait_all(lanes: Lanes) -> None:
            machine.copies.commit(lanes)
            machine.copies.wait(lanes, 0)

        return wait_all
    if at.has("mbarrier"):
        site.takes("async", "mbarrier", "arrive", "noinc", SPACES)
        address, counted = site.address(0), at.has("noinc")
        return lambda lanes: machine.copies.arrive(lanes, address(lanes), counted, at)
    return _copy(site)


OPS: dict[str, Decoder] = {"cp": _cp}
