"""Barriers, bulk copies and register reallocation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.cuir.execute.families.run_movement import blocked, rows_between
from engine.cuir.execute.state.global_memory import put, touch_tile
from engine.cuir.execute.state.values import BarrierRef, GmemTile, Shared, Tensor, TensorMap
from engine.cuir.types import SharedType


class Mbarrier:
    """A hardware mbarrier: pending arrivals and bytes of the current phase, phases completed.

    `tx` is below 0 while bytes have landed that the phase is not told of yet: legal as long as an
    arrival is pending, which may still tell it (PTX ISA: "Tracking asynchronous operations by the
    mbarrier object").
    `clock` gathers what arrivals release, `done` what completed phases released. `agent` writes
    for the bulk loads that complete on it, one epoch per phase.
    """

    __slots__ = (
        "agent", "arrived", "clock", "count", "done", "expected_at", "fenced", "init_epoch",
        "init_part", "init_path", "loads", "patterns", "pending", "phase", "repeated", "tx",
    )  # fmt: skip

    def __init__(self, count: int, agent: int, part: Any) -> None:
        self.count = count
        self.agent = agent
        self.pending = count
        self.tx = 0
        self.phase = 0
        self.clock = np.zeros_like(part.clock)
        self.done = np.zeros_like(part.clock)
        self.init_part = part.index
        self.init_epoch = int(part.clock[part.index])
        self.init_path = part.path
        self.fenced = False
        self.expected_at = -1
        self.arrived: list[tuple[int, int]] = []
        self.patterns: set[tuple[tuple[int, int], ...]] = set()
        self.loads = (0, -1)  # the newest phase that a bulk load is for, and the load's op
        self.repeated: tuple[int, int] | None = None

    def settle(self, machine: Any) -> None:
        """Completes the phase when nothing is pending."""
        if self.pending == 0 and self.tx == 0:
            self.phase += 1
            self.pending = self.count
            np.maximum(self.done, self.clock, out=self.done)
            self.patterns.add(tuple(sorted(self.arrived)))
            self.arrived = []
            if len(self.patterns) > 1:
                self.tell_repeated(machine)

    def tell_surplus(self, machine: Any, load: int) -> None:
        """Reports bytes that nobody can tell the phase of any more; `load` brought the last."""
        if self.pending == 0 and self.tx < 0:
            machine.program.report(
                "wrong_byte_count", self.expected_at if self.expected_at >= 0 else load,
                f"{-self.tx} bytes more arrive in the phase than it was told to expect", -1,
            )  # fmt: skip

    def tell_repeated(self, machine: Any) -> None:
        if self.repeated is not None:
            path, part = self.repeated
            machine.program.report(
                "doubled_arrival", path,
                f"arrives twice in one phase of a barrier set up for {self.count} arrivals, which "
                "then completes without somebody else's", part,
            )  # fmt: skip


def sync(part: Any, out: Any) -> Any:
    machine = part.machine
    if part.elected:
        part.program.report("divergent_collective", part.path,
                            "one elected thread reaches sync()", part.index)  # fmt: skip
    machine.sync_arrived.append((part, part.path, part.release()))
    generation = machine.sync_generation
    if len(machine.sync_arrived) == len(machine.parts):
        paths = {path for _, path, _ in machine.sync_arrived}
        if len(paths) > 1:
            first, last = machine.sync_arrived[0], machine.sync_arrived[-1]
            part.program.report(
                "divergent_collective", last[1],
                f"other threads of the block are at {machine.name(first[1])}", last[0].index,
                first[1],
            )  # fmt: skip
        known = np.maximum.reduce([clock for _, _, clock in machine.sync_arrived])
        machine.sync_known = known
        machine.sync_arrived = []
        machine.sync_generation += 1
    return blocked(
        lambda: machine.sync_generation > generation,
        lambda: part.acquire(machine.sync_known),
        "waits for all threads of the block",
    )


# --- mbarriers ---------------------------------------------------------------------------------


def one_thread(part: Any, op: str) -> None:
    if not part.elected:
        part.program.report(
            "not_elected", part.path,
            f"every thread does this {op}; `if elect():` leaves it to one", part.index,
        )  # fmt: skip


def mbarrier_init(part: Any, out: Any, bar: BarrierRef, count: int) -> None:
    machine = part.machine
    one_thread(part, "mbarrier_init")
    old = machine.barriers.get(bar.offset)
    agent = old.agent if old else machine.first_barrier_agent + len(machine.barriers)
    if agent >= machine.agents:
        raise part.program.stop("bad_value", part.path, "more than 64 mbarriers in a block", part)
    machine.barriers[bar.offset] = Mbarrier(count, agent, part)
    machine.shared.claim_barrier(bar.offset, part.access(), part.path)
    part.unfenced_inits.append(machine.barriers[bar.offset])


def fence_barrier_init(part: Any, out: Any) -> None:
    for barrier in part.unfenced_inits:
        barrier.fenced = True
    part.unfenced_inits = []


def _barrier(part: Any, bar: BarrierRef) -> Mbarrier:
    found = part.machine.barriers.get(bar.offset)
    if found is None:
        raise part.program.stop("uninitialised_barrier", part.path,
                                "the barrier has not been set up", part)  # fmt: skip
    if part.clock[found.init_part] < found.init_epoch:
        part.program.report(
            "uninitialised_barrier", part.path,
            "the barrier's set-up by another thread is not known to be done; a sync comes between",
            part.index, found.init_path,
        )  # fmt: skip
    barrier: Mbarrier = found
    return barrier


def _arrive(part: Any, barrier: Mbarrier, count: int) -> None:
    machine = part.machine
    me = (part.index, part.path)
    before = [path for who, path in barrier.arrived if who == part.index]
    if before:
        barrier.repeated = (max(*before, part.path), part.index)
    barrier.arrived.append(me)
    np.maximum(barrier.clock, part.release(), out=barrier.clock)
    barrier.pending -= count
    if barrier.pending < 0:
        part.program.report(
            "doubled_arrival", part.path,
            f"more arrivals than the {barrier.count} that the phase was set up for", part.index,
        )  # fmt: skip
        barrier.pending = 0
    barrier.tell_surplus(machine, barrier.loads[1])
    barrier.settle(machine)


def arrive(part: Any, out: Any, bar: BarrierRef) -> None:
    _arrive(part, _barrier(part, bar), part.own_threads)


def arrive_expect(part: Any, out: Any, bar: BarrierRef, count: int) -> None:
    barrier = _barrier(part, bar)
    barrier.tx += count * part.own_threads
    barrier.expected_at = part.path
    _arrive(part, barrier, part.own_threads)


def wait(part: Any, out: Any, bar: BarrierRef, parity: int) -> Any:
    barrier = _barrier(part, bar)
    if parity not in (0, 1):
        part.program.report("bad_value", part.path, f"a parity is 0 or 1, not {parity}", part.index)
        parity &= 1
    path = part.path

    def finish() -> None:
        part.acquire(barrier.done)
        part.clock[barrier.agent] = max(int(part.clock[barrier.agent]), barrier.phase)
        passed = part.waits.get(bar.offset, (0, 0, 0))[2]
        part.waits[bar.offset] = (path, barrier.phase, passed + 1)

    return blocked(
        lambda: (barrier.phase & 1) != parity, finish,
        f"waits for the phase of parity {parity}", (barrier, parity),
    )  # fmt: skip


# --- named barriers ----------------------------------------------------------------------------


class NamedBarrier:
    __slots__ = ("arrived", "clock", "done", "generation", "users", "waiters")

    def __init__(self, part: Any) -> None:
        self.arrived = 0
        self.generation = 0
        self.waiters = 0
        self.clock = np.zeros_like(part.clock)
        self.done = np.zeros_like(part.clock)
        self.users: dict[int, int] = {}  # thread count given -> the op that gave it


def _named(part: Any, id: int, threads: int, *, waits: bool) -> NamedBarrier:
    machine, program = part.machine, part.program
    barrier = machine.named.setdefault(id, None) or NamedBarrier(part)
    machine.named[id] = barrier
    if part.elected:
        program.report(
            "divergent_collective",
            part.path,
            "one elected thread reaches a barrier for whole warps",
            part.index,
        )
    barrier.users.setdefault(threads, part.path)
    barrier.waiters += waits
    if len(barrier.users) > 1:
        told = ", ".join(f"{n} at {machine.name(p)}" for n, p in sorted(barrier.users.items()))
        for path in barrier.users.values():
            program.report(
                "wrong_named_count",
                path,
                f"the users of named barrier {id} disagree: {told}",
                part.index,
            )
    barrier.arrived += machine.unit_threads // len(part.unit.parts)
    np.maximum(barrier.clock, part.release(), out=barrier.clock)
    if barrier.arrived > threads:
        program.report(
            "wrong_named_count",
            part.path,
            f"{barrier.arrived} threads arrive at a barrier for {threads}",
            part.index,
        )
    if barrier.arrived >= threads:
        if barrier.waiters == 0:
            program.report(
                "wrong_named_count",
                part.path,
                f"named barrier {id} completes without anybody who waits for it",
                part.index,
            )
        barrier.arrived = barrier.waiters = 0
        barrier.generation += 1
        np.maximum(barrier.done, barrier.clock, out=barrier.done)
    return barrier


def named_sync(part: Any, out: Any, id: int, threads: int) -> Any:
    old = part.machine.named.get(id)
    generation = old.generation if old else 0
    barrier = _named(part, id, threads, waits=True)
    return blocked(
        lambda: barrier.generation > generation, lambda: part.acquire(barrier.done),
        f"waits at named barrier {id} for {threads} threads", (id, barrier, threads),
    )  # fmt: skip


def named_arrive(part: Any, out: Any, id: int, threads: int) -> None:
    _named(part, id, threads, waits=False)


# --- the async proxy ---------------------------------------------------------------------------


def fence_async(part: Any, out: Any) -> None:
    if not part.elected:  # an elected thread orders only its own writes
        agents = (part.index, part.copy_agent)
        part.machine.shared.fence(part.index, agents, int(part.clock[part.index]))


def _place(part: Any, map: TensorMap, coords: list[int]) -> tuple[GmemTile, int]:
    """The rows that the coordinates (innermost first) name, and the first column."""
    outer = tuple(reversed(coords[2:]))
    return GmemTile(map.view, outer, coords[1]), coords[0]


def tma_load(
    part: Any, out: Any, dst: Shared, map: TensorMap, coords: list[int], bar: BarrierRef
) -> None:
    one_thread(part, "tma_load")
    tile, column = _place(part, map, coords)
    _start_load(part, dst, tile, _box(part, tile, column, dst.type), bar)


def tma_load_rows(
    part: Any, out: Any, dst: Shared, map: TensorMap, coords: list[int], bar: BarrierRef,
    begin: int, end: int,
) -> None:  # fmt: skip
    one_thread(part, "tma_load_rows")
    tile, column = _place(part, map, coords)
    rows = map.view.shape[-2]
    if begin < 0 or end > rows:
        message = f"rows {begin} to {end} of {map.view.field.name}, which has {rows}"
        part.program.report("out_of_bounds", part.path, message, part.index)
    data = rows_between(_box(part, tile, column, dst.type), tile.row, 1, begin, end)
    _start_load(part, dst, tile, data, bar)


def _start_load(part: Any, dst: Shared, tile: GmemTile, data: Tensor, bar: BarrierRef) -> None:
    program, memory = part.program, part.machine.shared
    barrier = _barrier(part, bar)
    if not barrier.fenced:
        program.report(
            "missing_proxy_fence", part.path,
            "the barrier was set up without fence_barrier_init", part.index, barrier.init_path,
        )  # fmt: skip
    access = part.access(barrier.agent, barrier.phase + 1)
    memory.write(memory.region(dst.type, dst.offset), access, dst.type.dtype, fenced=True)
    barrier.loads = (barrier.phase + 1, part.path)
    place, count, path = memory.tile(dst.type, dst.offset), dst.type.tile_bytes, part.path
    machine, phase = part.machine, barrier.phase

    def land() -> None:
        place.copy_(data)
        barrier.tx -= count
        if barrier.phase != phase:
            program.report(
                "wrong_byte_count", path,
                f"the phase completes before the load's {count} bytes have landed: it was not told "
                "to expect them", -1,
            )  # fmt: skip
        barrier.tell_surplus(machine, path)
        barrier.settle(machine)

    machine.transfers.append(land)


def _box(part: Any, tile: GmemTile, column: int, type: SharedType) -> Tensor:
    """The elements of the box; zero outside the tensor. Rows before it are a finding."""
    source, start, stop = touch_tile(part, tile, tile.row, type.rows)
    left, right = max(column, 0), min(column + type.cols, source.shape[-1])
    if column < 0:
        part.program.report("out_of_bounds", part.path, f"starts at column {column}", part.index)
    if (stop - start, right - left) == (type.rows, type.cols):
        return source[start:stop, left:right].to(part.program.float, copy=True)
    out = torch.zeros((type.rows, type.cols), dtype=part.program.float)
    if stop > start and right > left:
        out[start - tile.row : stop - tile.row, left - column : right - column] = source[
            start:stop, left:right
        ]
    return out


def tma_store(part: Any, out: Any, map: TensorMap, coords: list[int], src: Shared) -> None:
    memory = part.machine.shared
    one_thread(part, "tma_store")
    access = part.access(part.store_agent, part.store_committed + 1)
    memory.read(memory.region(src.type, src.offset), access, src.type.dtype, through_async=True)
    part.store_open = part.store_path = part.path
    tile, column = _place(part, map, coords)
    target, start, stop = touch_tile(part, tile, tile.row, src.type.rows, write=True)
    right = min(column + src.type.cols, target.shape[-1])
    if column < 0:
        part.program.report("out_of_bounds", part.path, f"starts at column {column}", part.index)
    elif stop > start and right > column:
        data = memory.tile(src.type, src.offset)
        data = data[start - tile.row : stop - tile.row, : right - column]
        put(part, map.view, tile.index, target[start:stop, column:right], data, slice(start, stop))


def tma_commit(part: Any, out: Any) -> None:
    part.store_committed += 1
    part.store_open = -1


def tma_wait(part: Any, out: Any, n: int) -> None:
    agent = part.store_agent
    part.clock[agent] = max(int(part.clock[agent]), part.store_committed - n)


def prefetch_map(part: Any, out: Any, map: TensorMap) -> None:
    return None
