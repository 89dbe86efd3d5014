"""Matmuls of a warpgroup, asynchronous (PTX ISA, "wgmma.mma_async").

In the first world a matmul is done when it is issued; in the second one its accumulators are
undefined until its group is waited for, and its operands are read only then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.fragments import Fragments
from engine.ptx.isa.matrix import SIZES, multiply, numbers
from engine.ptx.lanes import WARP, Lanes
from engine.ptx.machine import Machine, Outcome, Run
from engine.ptx.ordering import MATMUL
from engine.ptx.registers import unknown
from engine.ptx.syntax import Immediate, Register, Vector
from engine.ptx.tensor_maps import swizzled

Array = np.ndarray[Any, Any]
GROUP = 4 * WARP
_SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A matrix descriptor (PTX ISA, "Matrix-descriptor"): bytes in shared memory."""

    start: int
    leading: int
    stride: int
    swizzle: int

    @staticmethod
    def read(bits: int) -> Descriptor:
        return Descriptor(
            (bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4,
            _SWIZZLES[bits >> 62 & 3],
        )  # fmt: skip

    def addresses(self, rows: int, k: int, size: int, turned: bool) -> Array:
        """The byte of each element [rows, k] of an operand; `turned`: rows are contiguous."""
        r, c = np.arange(rows)[:, None], np.arange(k)[None]
        if not turned:
            byte = c * size
            if self.swizzle:
                w = self.swizzle
                flat = r // 8 * self.stride + r % 8 * w + byte // w * self.leading + byte % w
            else:
                flat = r // 8 * self.stride + r % 8 * 16 + byte // 16 * self.leading + byte % 16
        else:
            w = self.swizzle or 16
            each = w // size
            flat = r // each * self.leading + r % each * size + c // 8 * self.stride + c % 8 * w
        return swizzled(self.start + flat, self.swizzle)


@lru_cache(1024)
def _read(
    descriptor: Descriptor, rows: int, k: int, size: int, turned: bool, by_warp: bool, granule: int
) -> tuple[Array, Array, Array]:
    """Where an operand lies, [rows, k]; the granules that the four warps read, one warp's after the
    other's, and how many each reads. Every warp reads all of B, and of A its own 16 rows."""
    place = descriptor.addresses(rows, k, size, turned)
    parts = [np.unique(part.reshape(-1) // granule) * granule
             for part in (place.reshape(4, -1) if by_warp else [place])]  # fmt: skip
    parts = parts if by_warp else parts * 4
    return place, np.concatenate(parts), np.array([len(part) for part in parts])


@dataclass(slots=True)
class _Flight:
    """A matmul that the second world has not done yet."""

    epoch: int
    matmul: Matmul
    lanes: Lanes
    a: Array | None  # offsets in shared memory
    b: Array
    accumulate: Array


class Matmuls:
    """Matmuls on their way, by the first warp of their warpgroup."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.fragments = Fragments(machine)
        self.flights: dict[int, list[_Flight]] = {}
        self.late: dict[int, dict[tuple[str, ...], Array]] = {}

    def commit(self, lanes: Lanes) -> None:
        self.machine.clocks.advance(MATMUL, np.unique(lanes.warps // 4 * 4))

    def wait(self, lanes: Lanes, left: int) -> None:
        """All groups of these warpgroups but the last `left` are done."""
        clocks = self.machine.clocks
        for leader in np.unique(lanes.warps // 4 * 4):
            agent = clocks.agent(MATMUL, leader)
            done = int(clocks.epoch[leader // clocks.per_block, agent]) - 1 - left
            for known in (clocks.known, clocks.fenced):
                mine = known[leader : leader + 4, agent]
                known[leader : leader + 4, agent] = np.maximum(mine, done)
            flights = self.flights.get(int(leader), [])
            late = self.late.setdefault(int(leader), {})
            now = [f for f in flights if f.epoch <= done]
            rest = self.flights[int(leader)] = [f for f in flights if f.epoch > done]
            for f in now:
                late[f.matmul.names] = f.matmul.compute(1, f, late[f.matmul.names])
            self.fragments.flying -= len(now)
            busy = {f.matmul.names for f in rest}
            for f in now:
                if f.matmul.names not in busy and f.matmul.names in late:
                    f.matmul.put(1, f.lanes, late.pop(f.matmul.names))


class Matmul:
    """One wgmma instruction."""

    def __init__(self, site: Site) -> None:
        at = site.at
        shape = next((m for m in at.modifiers if re.fullmatch(r"m64n\d+k\d+", m)), "")
        types = [m for m in at.modifiers if m in (*SIZES, "f32", "s32")]
        site.takes("mma_async", "sync", "aligned", shape, types)
        if not shape or len(types) != 3 or types[0] != "f32" or not multiply(*types[1:]):
            raise site.refuse("this shape or these types are not executed yet")
        self.site, self.machine = site, site.machine
        self.types, self.size = types[1:], SIZES[types[1]]
        self.n, self.k = (int(x) for x in re.findall(r"\d+", shape)[1:])
        d = site.operand(0)
        if not isinstance(d, Vector) or len(d.items) != self.n // 2:
            raise site.refuse("accumulators do not fit the shape")
        self.names = tuple(o.name for o in d.items if isinstance(o, Register))
        self.d = [site.registers.view(name, "f32") for name in self.names]
        self.a_registers = isinstance(site.operand(1), Vector)
        self.a = site.fetches(1, "b32") if self.a_registers else [site.fetch(1, "u64")]
        self.b = site.fetch(2, "u64")
        self.accumulate = site.fetch(3, "pred")
        flags = [o.value for o in at.operands[4:] if isinstance(o, Immediate)]
        if len(flags) != len(at.operands) - 4 or len(flags) < 2:
            raise site.refuse("constants are needed for the scales")
        self.scale_a, self.scale_b = flags[:2]
        turned = flags[2:]
        self.turn_a = bool(turned[0]) if turned and not self.a_registers else False
        self.turn_b = bool(turned[-1]) if turned else False

    def issue(self, lanes: Lanes) -> Outcome | None:
        threads = lanes.threads
        if len(threads) % GROUP or not lanes.whole or (lanes.warps[::4] % 4).any():
            counts = np.bincount(threads // GROUP)[threads // GROUP]
            return self.machine.converge(lanes, counts < GROUP, self.site.at, GROUP // WARP)
        for start in range(0, len(threads), GROUP):
            self.one(Lanes(threads[start : start + GROUP]))
        return None

    def one(self, lanes: Lanes) -> None:
        machine, at, memory = self.machine, self.site.at, self.machine.memory
        clocks = machine.clocks
        leader = int(lanes.warps[0])
        block = int(lanes.threads[0]) // machine.threads
        base = block * memory.shared_bytes

        def operand(fetch: Any, rows: int, turned: bool, by_warp: bool) -> Array:
            bits = memory.same(fetch(lanes), lanes, at, "a descriptor")
            place, flat, counts = _read(Descriptor.read(int(bits[0])), rows, self.k, self.size,
                                        turned, by_warp, memory.granule)  # fmt: skip
            if int(place.max()) + self.size > memory.shared_bytes:
                machine.report("out of bounds", at, "an operand past shared memory", lanes)
                place = np.minimum(place, memory.shared_bytes - self.size)
                flat = np.minimum(flat, memory.shared_bytes - memory.granule)
            flat = flat + base
            wide = Lanes(np.repeat(lanes.threads[::WARP], counts))
            memory.order("shared", flat, memory.granule, wide, at, False, MATMUL, True)
            memory.note_unset("shared", flat, memory.granule, at)
            return place + base

        a = None if self.a_registers else operand(self.a[0], 64, self.turn_a, True)
        b = operand(self.b, self.n, self.turn_b, False)
        epoch = int(clocks.epoch[block, clocks.agent(MATMUL, leader)])
        go_on = memory.same(self.accumulate(lanes), lanes, at, "a scale")
        flight = _Flight(epoch, self, lanes, a, b, go_on)
        matmuls: Matmuls = machine.matmuls
        matmuls.fragments.issue(at, lanes, epoch)
        matmuls.fragments.flying += 1
        self.put(0, lanes, self.compute(0, flight, self.take(0, lanes)))
        late = matmuls.late.setdefault(leader, {})
        if self.names not in late:
            late[self.names] = self.take(1, lanes)
        self.put(1, lanes, np.full((GROUP, len(self.d)), unknown(1, np.dtype(np.float32))))
        matmuls.flights.setdefault(leader, []).append(flight)

    def take(self, world: int, lanes: Lanes) -> Array:
        """The accumulators of one world: [128, registers]."""
        return np.stack([d[world, lanes.at[1]] for d in self.d], 1)

    def put(self, world: int, lanes: Lanes, values: Array) -> None:
        for k, d in enumerate(self.d):
            d[world, lanes.at[1]] = values[:, k]

    def compute(self, world: int, flight: _Flight, accumulators: Array) -> Array:
        """D = A B + D, as fragments [128, registers].

        Lane 32 w + 4 g + t of register 4 c + 2 r + j holds row 16 w + 8 r + g, column
        8 c + 2 t + j.
        """
        lanes = flight.lanes
        held = self.machine.memory.spaces["shared"][world].view(np.dtype(f"u{self.size}"))
        if flight.a is None:
            words = np.stack([f(lanes)[world] for f in self.a], -1)
            items = np.ascontiguousarray(words).view(np.dtype(f"u{self.size}"))
            # [warp, g, t, k, r, item] -> [warp, r, g, k, t, item]
            items = items.reshape(4, 8, 4, -1, 2, 4 // self.size).transpose(0, 4, 1, 3, 2, 5)
            left = numbers(np.ascontiguousarray(items).reshape(64, self.k), self.types[0])
        else:
            left = numbers(held[flight.a // self.size], self.types[0])
        right = numbers(held[flight.b // self.size], self.types[1])
        product = (left @ right.T) * np.float32(self.scale_a * self.scale_b)
        turned = product.reshape(4, 2, 8, self.n // 8, 4, 2).transpose(0, 2, 4, 3, 1, 5)
        d = turned.reshape(GROUP, self.n // 2).astype(np.float32)
        return np.where(flight.accumulate[:, None], accumulators + d, d)


def _wgmma(site: Site) -> Run:
    at, machine = site.at, site.machine
    if at.has("mma_async"):
        return Matmul(site).issue
    if at.has("fence"):
        return lambda lanes: machine.matmuls.fragments.fence(lanes)
    if at.has("commit_group"):
        return lambda lanes: machine.matmuls.commit(lanes)
    if at.has("wait_group"):
        count = site.operand(0)
        if not isinstance(count, Immediate):
            raise site.refuse("a constant is needed")
        left = count.value
        return lambda lanes: machine.matmuls.wait(lanes, left)
    raise site.refuse("this matmul is not executed yet")


OPS: dict[str, Decoder] = {"wgmma": _wgmma}
