"""Bulk copies: cp.async.bulk and its tensor form (PTX ISA, "cp.async.bulk.tensor").

A load lands in the first world when it is issued and in the second one when its bytes are counted
at the mbarrier, which happens as late as it can. A store reads shared memory in the first world
when it is issued, in the second one when its group is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.isa import copies
from engine.ptx.isa.data import CACHE
from engine.ptx.lanes import Lanes
from engine.ptx.machine import Machine, Run
from engine.ptx.memory import LOCAL, PARAM, SHARED
from engine.ptx.ordering import BULK
from engine.ptx.registers import unknown
from engine.ptx.syntax import Address, Immediate, Instruction
from engine.ptx.tensor_maps import SIZE as MAP_SIZE
from engine.ptx.tensor_maps import TensorMap, swizzled
from engine.ptx.tensor_maps import read as read_map

Array = np.ndarray[Any, Any]
MAX_RANK = 5


@dataclass(slots=True)
class _Landing:
    """A load whose bytes have not been counted yet."""

    warp: int
    epoch: int
    barrier: tuple[int, int]
    bytes: int
    land: Callable[[], None]


@dataclass(slots=True)
class _Leaving:
    """A store that the second world has not done yet."""

    lane: Lanes
    at: Instruction
    epoch: int
    leave: Callable[[], None]

    @property
    def warp(self) -> int:
        return int(self.lane.warp_of[0])


class Bulk:
    """The bulk copies of a batch of blocks that are on their way."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.landings: list[_Landing] = []
        self.leavings: list[_Leaving] = []
        machine.pending.append(self.land_one)

    def epoch(self, warp: int) -> int:
        clocks = self.machine.clocks
        return int(clocks.epoch[warp // clocks.per_block, clocks.agent(BULK, warp)])

    def land_one(self) -> bool:
        """The newest load lands; whether there was one.

        Loads land in any order: with the newest first, who waited for a later one alone sees that
        the earlier ones are not there.
        """
        if not self.landings:
            return False
        load = self.landings.pop()
        load.land()
        self.machine.mbarriers.complete(load.barrier, load.bytes, load.warp, load.epoch)
        self.machine.events += 1
        return True

    def load(
        self, lane: Lanes, at: Instruction, where: Array, offset: Array, item: int,
        barrier: Array, size: int, inside: Array | None = None,
    ) -> None:  # fmt: skip
        """Copies items of global memory to shared memory; zeros for those that are not `inside`.

        Args:
            barrier: the address of the mbarrier that counts the copy's `size` bytes.
        """
        machine, memory = self.machine, self.machine.memory
        if len(where):
            wide = Lanes(np.repeat(lane.threads, len(where)))
            memory.order("global", where, item, wide, at, False, BULK, True)
        steps = np.arange(0, item, min(item, 8))
        data = np.zeros((2, len(offset), len(steps)), np.dtype(f"u{min(item, 8)}"))
        values = memory.read("global", where[:, None] + steps, min(item, 8))
        data[:, slice(None) if inside is None else inside] = values
        everyone = Lanes(np.repeat(lane.threads, len(offset)))
        memory.order("shared", offset, item, everyone, at, True, BULK)
        held = memory.items("shared", min(item, 8))
        index = (offset[:, None] + steps) // min(item, 8)
        held[0, index] = data[0]
        held[1, index] = unknown(1, held.dtype)
        memory.mark("shared", index, held.dtype)
        machine.mbarriers.uses(lane, barrier, at)

        def land() -> None:
            held[1, index] = data[1]

        for key in machine.mbarriers.place(lane, barrier, at):
            warp = int(lane.warp_of[0])
            self.landings.append(_Landing(warp, self.epoch(warp), key, size, land))
            self.commit(lane)

    def store(self, lane: Lanes, at: Instruction, offset: Array, where: Array, item: int) -> None:
        """Copies items of shared memory to global memory."""
        memory = self.machine.memory
        wide = Lanes(np.repeat(lane.threads, len(where)))
        memory.order("shared", offset, item, wide, at, False, BULK, True)
        memory.order("global", where, item, wide, at, True, BULK)
        each = min(item, 8)
        steps = np.arange(0, item, each)
        shared, out = memory.items("shared", each), memory.items("global", each)
        here, there = ((x[:, None] + steps) // each for x in (offset, where))
        values = shared[:, here]
        memory.same(values, wide, at, "an output")
        out[0, there] = values[0]
        memory.mark("global", there, out.dtype)

        def leave() -> None:
            late = shared[1, here]
            memory.same(np.stack([out[0, there], late]), wide, at, "an output")
            out[1, there] = late

        self.leavings.append(_Leaving(lane, at, self.epoch(int(lane.warp_of[0])), leave))

    def commit(self, lanes: Lanes) -> None:
        self.machine.clocks.advance(BULK, lanes.warps)

    def wait(self, lanes: Lanes, left: int) -> None:
        """All store groups of these warps but the last `left` have read their source."""
        clocks = self.machine.clocks
        for warp in lanes.warps:
            done = self.epoch(int(warp)) - 1 - left
            clocks.learn(np.array([warp]), BULK, np.array([done], np.int32))
            rest = []
            for store in self.leavings:
                if store.warp == warp and store.epoch <= done:
                    store.leave()
                else:
                    rest.append(store)
            self.leavings = rest

    def ended(self, threads: Array) -> None:
        """Threads have ended: shared memory may go before what they still store was read."""
        for store in self.leavings:
            if store.lane.threads[0] in threads:
                words = "its thread ends before this store has read shared memory"
                self.machine.report("early read", store.at, words, store.lane)

    def finish(self) -> None:
        """The end of the batch: what was never waited for is done."""
        while self.land_one():
            pass
        for store in self.leavings:
            store.leave()
        self.leavings = []


def _bulk(machine: Machine) -> Bulk:
    found: Bulk = machine.bulk
    return found


def _tensor_map(site: Site, address: int, lanes: Lanes) -> TensorMap | None:
    """The map at an address; a finding where none is, or where none may be: it lies in a kernel's
    parameters, constant or global memory (PTX ISA, "cp.async.bulk.tensor")."""
    memory = site.machine.memory
    if address >= LOCAL:
        words = (
            "the tensor map lies in shared memory: it has to be a parameter, or in global memory"
        )
        if address < SHARED:
            words = (
                "the tensor map lies in a thread's local memory: declare the parameter "
                "`const __grid_constant__ CUtensorMap`"
            )
        site.machine.report("no tensor map", site.at, words, lanes)
        return None
    if address < PARAM:
        at = np.array([[address], [address]])
        space, offset, _ = memory.place("", at, 64, Lanes(lanes.threads[:1]), site.at, "reads")
        data = memory.spaces[space][0, int(offset[0]) : int(offset[0]) + MAP_SIZE].tobytes()
    else:
        start = address - PARAM
        data = memory.parameters[start : start + MAP_SIZE].tobytes()
    found = read_map(data)
    if found is None:
        words = "no tensor map that cuTensorMapEncodeTiled made lies at this address"
        site.machine.report("no tensor map", site.at, words, lanes)
    return found


def _box(tensor: TensorMap, corner: list[int]) -> tuple[Array, Array]:
    """Each element of a box, innermost first: its address, and whether the tensor has it."""
    index = np.indices(tensor.box[::-1]).reshape(len(tensor.box), -1)[::-1]
    place = index + np.array(corner)[:, None]
    inside = ((place >= 0) & (place < np.array(tensor.sizes)[:, None])).all(0)
    address = tensor.address + (place * np.array(tensor.strides)[:, None]).sum(0)
    return address, inside


def _shared(
    lanes: Lanes, machine: Machine, address: int, tensor: TensorMap, at: Instruction
) -> Array | None:
    """Offsets of a box's elements in the batch's shared memory; a finding where it begins at no
    multiple of 128 bytes (PTX ISA, "cp.async.bulk.tensor"), or ends behind the block's memory."""
    if address >= SHARED:
        address -= SHARED
    flat = address + np.arange(int(np.prod(tensor.box))) * tensor.element
    offset = swizzled(flat, tensor.swizzle)
    has = machine.memory.shared_bytes
    if address % 128 or int(offset.max()) + tensor.element > has:
        words = f"a box of {tensor.bytes} bytes at byte {address} of shared memory, which has {has}"
        kind = "misaligned" if address % 128 else "out of bounds"
        machine.report(kind, at, words, lanes)
        return None
    return int(lanes.threads[0]) // machine.threads * has + offset


def _one_lane_each(lanes: Lanes) -> list[Lanes]:
    return [Lanes(lanes.threads[k : k + 1]) for k in range(len(lanes))]


def _global(
    memory: Any, address: Array, size: int, lane: Lanes, at: Any, verb: str
) -> tuple[Any, Any]:
    if not len(address):  # a box that lies outside of its tensor whole
        return address, address.astype(np.bool_)
    wide = Lanes(np.repeat(lane.threads, len(address)))
    _, offset, inside = memory.place("global", np.stack([address] * 2), size, wide, at, verb)
    return offset, inside


def _tensor(site: Site) -> Run:
    at = site.at
    ranks = {f"{n}d": n for n in range(1, MAX_RANK + 1)}
    site.takes("async", "bulk", "tensor", ranks, "shared::cluster", "shared::cta", "global", "tile",
               "mbarrier::complete_tx::bytes", "bulk_group", CACHE)  # fmt: skip
    spaces = [m for m in at.modifiers if m in ("shared::cluster", "shared::cta", "global")]
    return _load(site) if spaces[0].startswith("shared") else _store(site)


def _coordinates(site: Site, k: int) -> tuple[Any, list[Any]]:
    operand = site.operand(k)
    assert isinstance(operand, Address)
    registers = site.registers
    return site.address(k), [registers.fetch(c, "s32", site.at) for c in operand.coordinates]


def _load(site: Site) -> Run:
    machine, at, memory = site.machine, site.at, site.machine.memory
    to, (source, corner), barrier = site.address(0), _coordinates(site, 1), site.address(2)

    def load(lanes: Lanes) -> None:
        bulk = _bulk(machine)
        for lane in _one_lane_each(lanes):
            same = [memory.same(f(lane), lane, at, "a coordinate") for f in (to, source, *corner)]
            target, map_at, *first = (int(v[0]) for v in same)
            tensor = _tensor_map(site, map_at, lane)
            if tensor is None:
                continue
            if len(first) != len(tensor.box):
                raise site.refuse(f"{len(first)} coordinates for a tensor of {len(tensor.box)}")
            address, inside = _box(tensor, first)
            item = tensor.element
            offset = _shared(lane, machine, target, tensor, at)
            if offset is None:
                continue
            where, _ = _global(memory, address[inside], item, lane, at, "reads")
            bulk.load(lane, at, where, offset, item, barrier(lane), tensor.bytes, inside)

    return load


def _store(site: Site) -> Run:
    machine, at, memory = site.machine, site.at, site.machine.memory
    (target, corner), source = _coordinates(site, 0), site.address(1)

    def store(lanes: Lanes) -> None:
        bulk = _bulk(machine)
        for lane in _one_lane_each(lanes):
            same = [
                memory.same(f(lane), lane, at, "a coordinate") for f in (source, target, *corner)
            ]
            start, map_at, *first = (int(v[0]) for v in same)
            tensor = _tensor_map(site, map_at, lane)
            if tensor is None:
                continue
            address, inside = _box(tensor, first)
            item = tensor.element
            offset = _shared(lane, machine, start, tensor, at)
            where, _ = _global(memory, address[inside], item, lane, at, "writes")
            if len(where) and offset is not None:
                bulk.store(lane, at, offset[inside], where, item)

    return store


def _plain(site: Site) -> Run:
    """Bytes in a row, between global and shared memory (PTX ISA, "cp.async.bulk")."""
    site.takes("async", "bulk", "shared::cluster", "shared::cta", "global", "bulk_group",
               "mbarrier::complete_tx::bytes", CACHE)  # fmt: skip
    spaces = [m for m in site.at.modifiers if m in ("shared::cluster", "shared::cta", "global")]
    into_shared = spaces[0] != "global"
    if "global" not in spaces:
        raise site.refuse("a copy between blocks of a cluster is not executed yet")
    machine, at, memory = site.machine, site.at, site.machine.memory
    target, source, size = site.address(0), site.address(1), site.fetch(2, "u32")
    barrier = site.address(3) if into_shared else None

    def copy(lanes: Lanes) -> None:
        bulk = _bulk(machine)
        for lane in _one_lane_each(lanes):
            count = int(memory.same(size(lane), lane, at, "a number of bytes")[0])
            if count % UNIT:
                words = f"{count} bytes: a bulk copy is of a multiple of {UNIT}"
                machine.report("misaligned", at, words, lane)
                continue
            near, far = (target, source) if into_shared else (source, target)
            offset = _row(memory, "shared", near(lane), count, lane, at, into_shared)
            where = _row(memory, "global", far(lane), count, lane, at, not into_shared)
            if len(offset) == len(where) and len(where) and barrier is not None:
                bulk.load(lane, at, where, offset, UNIT, barrier(lane), count)
            elif len(offset) == len(where) and len(where):
                bulk.store(lane, at, offset, where, UNIT)

    return copy


UNIT = 16  # bytes that a plain bulk copy is a multiple of


def _row(
    memory: Any, space: str, address: Array, count: int, lane: Lanes, at: Instruction, write: bool
) -> Array:
    """The offsets of each 16 bytes of a row, where all of them exist; else a finding, and none."""
    first = int(memory.same(address, lane, at, "an address")[0])
    verb = "writes" if write else "reads"
    if space == "shared" and first >= SHARED:
        first -= SHARED
    row = first + np.arange(0, count, UNIT)
    wide = Lanes(np.repeat(lane.threads, len(row)))
    if not len(row):
        return row
    _, offset, inside = memory.place(space, np.stack([row] * 2), UNIT, wide, at, verb)
    there: Array = offset if inside.all() else offset[:0]
    return there


def _cp(site: Site) -> Run:
    at, machine = site.at, site.machine
    if not at.has("bulk"):
        return copies.OPS["cp"](site)
    if at.has("prefetch"):
        return lambda lanes: None
    if at.has("commit_group"):
        return lambda lanes: _bulk(machine).commit(lanes)
    if at.has("wait_group"):
        site.takes("async", "bulk", "wait_group", "read")
        count = site.operand(0)
        if not isinstance(count, Immediate):
            raise site.refuse("a constant is needed")
        left = count.value
        return lambda lanes: _bulk(machine).wait(lanes, left)
    if at.has("tensor"):
        return _tensor(site)
    return _plain(site)


OPS: dict[str, Decoder] = {"cp": _cp}
