"""mbarrier objects of a batch of blocks (PTX ISA, "mbarrier").

A phase is complete when no arrival and no byte is pending. Arriving releases what a warp did and
knows into the phase; passing a wait acquires it, and what asynchronous copies brought with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.ptx.lanes import Lanes
from engine.ptx.machine import Key, Machine, Outcome, Park
from engine.ptx.ordering import BULK, COPIES, Clock
from engine.ptx.syntax import Instruction

Array = np.ndarray[Any, Any]
SIZE = 8  # bytes
MOST_ARRIVALS = (1 << 20) - 1


@dataclass(slots=True)
class MBarrier:
    """One object: arrivals of a phase, those still pending, bytes pending, and its clocks."""

    expected: int
    pending: int
    clock: Clock  # of the phase that is open
    done: Clock  # of the phase before
    bytes: int = 0
    phase: int = 0

    def over(self, phase: int, by_parity: bool) -> bool:
        """Whether a phase, by its parity or its number, is complete."""
        one = 1 if by_parity else -1
        return self.phase & one != phase & one


class MBarriers:
    """All objects, by block and address in shared memory."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.at: dict[tuple[int, int], MBarrier] = {}
        # Waits that were without success once: PTX line, warp, and object.
        self.failed: set[tuple[int, int, tuple[int, int]]] = set()

    def place(self, lanes: Lanes, address: Array, at: Instruction) -> list[tuple[int, int]]:
        """Block and address of each lane's object, with the address checked."""
        memory = self.machine.memory
        space = "" if int(address[0, 0]) > 1 << 32 else "shared"
        _, offset, inside = memory.place(space, address, SIZE, lanes, at, "uses an mbarrier of")
        blocks = lanes.threads // self.machine.threads
        where = offset - blocks * memory.shared_bytes
        return [(int(b), int(a)) for b, a, ok in zip(blocks, where, inside, strict=True) if ok]

    def find(self, key: tuple[int, int], lanes: Lanes, at: Instruction) -> MBarrier | None:
        found = self.at.get(key)
        if found is None:
            words = f"byte {key[1]} of shared memory holds no mbarrier"
            self.machine.report("barrier misuse", at, words, lanes)
        return found

    def init(self, lanes: Lanes, address: Array, count: Array, at: Instruction) -> None:
        machine = self.machine
        for key, n in zip(self.place(lanes, address, at), count, strict=False):
            if not 1 <= int(n) <= MOST_ARRIVALS:
                machine.report("barrier misuse", at, f"an mbarrier for {int(n)} arrivals", lanes)
            clocks = machine.clocks
            self.at[key] = MBarrier(int(n), int(n), clocks.empty(), clocks.empty())
        # The object is written: whoever uses it must be ordered after that.
        memory = machine.memory
        _, offset, _ = memory.place("shared", address & 0xFFFFFFFF, SIZE, lanes, at, "writes")
        memory.order("shared", offset, SIZE, lanes, at, True)

    def inval(self, lanes: Lanes, address: Array, at: Instruction) -> None:
        for key in self.place(lanes, address, at):
            if self.find(key, lanes, at) is not None:
                del self.at[key]

    def uses(self, lanes: Lanes, address: Array, at: Instruction) -> None:
        """A use of the object must be ordered after its init."""
        memory = self.machine.memory
        space = "" if int(address[0, 0]) > 1 << 32 else "shared"
        space, offset, inside = memory.place(space, address, SIZE, lanes, at, "uses an mbarrier of")
        memory.order("shared", np.where(inside, offset, 0), SIZE, lanes, at, False)

    def arrive(
        self, lanes: Lanes, address: Array, count: Array | None, expect: Array | None,
        at: Instruction, drops: bool = False,
    ) -> Array:  # fmt: skip
        """Each lane expects `expect` bytes more, then arrives `count` times; the phases that they
        arrived in. `drops`: so many fewer arrivals make a phase from the next one on."""
        phases = np.zeros(len(lanes), np.uint64)
        self.uses(lanes, address, at)
        keys = self.place(lanes, address, at)
        groups: dict[tuple[int, int], list[int]] = {}
        for k, key in enumerate(keys):
            groups.setdefault(key, []).append(k)
        for key, members in groups.items():
            barrier = self.find(key, lanes, at)
            if barrier is None:
                continue
            phases[members] = barrier.phase
            if expect is not None:
                barrier.bytes += int(expect[members].sum())
            if count is not None:
                arrivals = int(count[members].sum())
                barrier.expected -= arrivals if drops else 0
                warps = np.unique(lanes.warp_of[members])
                self.machine.clocks.release(warps, barrier.clock)
                barrier.pending -= arrivals
                if barrier.pending < 0:
                    words = f"an arrival more than the {barrier.expected} of the phase"
                    self.machine.report("barrier misuse", at, words, lanes)
                    barrier.pending = 0
            self.settle(key, barrier)
        return phases

    def complete(self, key: tuple[int, int], count: int, warp: int, epoch: int) -> None:
        """Bytes have arrived that a warp's bulk copy of an epoch brought."""
        barrier = self.at.get(key)
        if barrier is None:
            return
        agent = self.machine.clocks.agent(BULK, warp)
        for clock in (barrier.clock.known, barrier.clock.fenced):
            clock[agent] = max(clock[agent], epoch)
        barrier.bytes -= count
        self.settle(key, barrier)

    def copied(self, key: tuple[int, int], arrivals: int, warp: int, epoch: int) -> None:
        """Threads of a warp arrive, whose cp.async copies up to an epoch have landed."""
        barrier = self.at.get(key)
        if barrier is None:
            return
        agent = self.machine.clocks.agent(COPIES, warp)
        barrier.clock.known[agent] = max(barrier.clock.known[agent], epoch)
        barrier.pending -= arrivals
        self.settle(key, barrier)

    def settle(self, key: tuple[int, int], barrier: MBarrier) -> None:
        """Completes the phase if nothing is pending."""
        if barrier.pending or barrier.bytes:
            return
        barrier.done, barrier.clock = barrier.clock, barrier.done
        # What a phase knew is known in all later ones.
        barrier.clock.all[:] = barrier.done.all
        barrier.pending = barrier.expected
        barrier.phase += 1
        self.machine.wake(("mbarrier", *key))

    def test(
        self, lanes: Lanes, address: Array, phase: Array, by_parity: bool, at: Instruction,
        failed: Array | None = None,
    ) -> Array:  # fmt: skip
        """Whether a phase, by its parity or its number, is complete, for each lane but those that
        `failed`; those who see so acquire it."""
        self.uses(lanes, address, at)
        out = np.zeros(len(lanes), np.bool_)
        warps = lanes.warp_of
        for k, key in enumerate(self.place(lanes, address, at)):
            barrier = self.find(key, lanes, at)
            if barrier is None or not barrier.over(int(phase[k]), by_parity):
                continue
            if failed is not None and failed[k]:
                continue
            out[k] = True
            if not k or warps[k] != warps[k - 1]:
                self.machine.clocks.acquire(warps[k : k + 1], barrier.done)
        return out

    def fail(
        self, lanes: Lanes, address: Array, phase: Array, by_parity: bool, at: Instruction
    ) -> Array:
        """The lanes that see a phase that is not complete, the first time that their warp tests
        this object here: all for whom nothing orders its completion before."""
        out = np.zeros(len(lanes), np.bool_)
        known, now = self.machine.clocks.known, set()
        warps = lanes.warp_of.tolist()
        for k, (warp, key) in enumerate(zip(warps, self.place(lanes, address, at), strict=False)):
            barrier, here = self.at.get(key), (at.line, warp, key)
            if barrier is None or here in self.failed:
                continue
            over = barrier.over(int(phase[k]), by_parity)
            if not over or (barrier.done.known > known[warp]).any():
                out[k] = True
                now.add(here)
        self.failed |= now
        return out

    def park(self, lanes: Lanes, waiting: Array, address: Array, at: Instruction) -> Outcome:
        """Those whose phase is not complete stay before the instruction."""
        keys: list[Key] = [("mbarrier", *key) for key in self.place(lanes, address, at)]
        return Park(waiting, keys, True)
