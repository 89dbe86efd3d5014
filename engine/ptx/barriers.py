"""The sixteen barriers of each block: who has arrived, and what those that leave have learnt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.ptx.lanes import WARP, Lanes
from engine.ptx.machine import Key, Machine, Outcome, Park
from engine.ptx.ordering import THREADS, Clock
from engine.ptx.syntax import Instruction

Array = np.ndarray[Any, Any]
MOST = 16  # numbered from 0; one more stands for the barrier of a cluster


@dataclass(slots=True)
class _Phase:
    """One use of a barrier: threads that have arrived, those that wait, and what they knew."""

    clock: Clock
    arrived: int = 0
    expected: int | None = None  # None: all threads of the block that have not ended
    waiting: list[int] = field(default_factory=list)
    number: int = 0
    came: dict[int, Instruction] = field(default_factory=dict)  # where each warp's lanes did
    # Of a phase with a count, who arrived: warps, the epochs that ended there, and where.
    by: list[tuple[Array, Array, Instruction]] = field(default_factory=list)


class Barriers:
    """bar.sync, bar.arrive (PTX ISA, "bar"): a count of threads, by whole warps.

    A phase ends with the arrival that makes its count full; the next one is of the next phase. Who
    comes to a phase with a count has to be told by order: of a warp that does not know of each
    arrival of the phase before, nothing says that it does not come in the place of one of them.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.open: dict[tuple[int, int], _Phase] = {}
        self.uses: dict[tuple[int, int], int] = {}
        self.last: dict[tuple[int, int], _Phase] = {}  # the phase before
        machine.on_exit = self.look_again

    def arrive(
        self, lanes: Lanes, number: Array, expected: Array | None, waits: bool, at: Instruction
    ) -> Outcome | None:
        """Warps of one instruction may use several barriers: each by itself. Lanes meet the rest of
        their warp before it, as where a branch ends, unless those cannot come there."""
        machine = self.machine
        aligned = at.name == "bar" or at.has("aligned")
        if aligned and not lanes.whole:
            apart = ~np.isin(lanes.threads, [*machine.parted])
            apart &= np.isin(lanes.warp_of, self._parts(lanes))
            if apart.any():
                return machine.converge(lanes, apart, at)
        blocks = lanes.threads // machine.threads
        waiting = np.zeros(len(lanes), np.bool_)
        keys: dict[int, Key] = {}
        for block, name in sorted({(int(b), int(n)) for b, n in zip(blocks, number, strict=True)}):
            here = (blocks == block) & (number == name)
            self._check(lanes, here, name, expected, at)
            count = None if expected is None else int(expected[here][0])
            while here.any():
                phase = self._phase(block, name, count, at, lanes)
                now = self._fit(lanes, here, phase)
                if not self._come(block, name, phase, lanes.threads[now], waits, at) and waits:
                    waiting |= now
                    for thread in np.flatnonzero(now):
                        keys[int(thread)] = ("bar", block, name, phase.number)
                here &= ~now
        if not waiting.any():
            return None
        return Park(waiting, [keys.get(k, ()) for k in range(len(lanes))], False)

    def _fit(self, lanes: Lanes, here: Array, phase: _Phase) -> Array:
        """Of lanes that come at once those of the warps that make the phase's count full."""
        if phase.expected is None:
            return here
        warps = np.unique(lanes.warp_of[here])
        room = max((phase.expected - phase.arrived) // WARP, 1)
        return here if len(warps) <= room else here & (lanes.warp_of < warps[room])

    def _come(
        self, block: int, name: int, phase: _Phase, threads: Array, waits: bool, at: Instruction
    ) -> bool:
        """Threads of a block arrive; whether the phase is complete."""
        clocks = self.machine.clocks
        warps, many = np.unique(threads // WARP, return_counts=True)
        if at.name == "bar" or at.has("aligned"):
            self._apart(warps, many, phase, at)
        if phase.expected is not None:
            self._told_apart(block, name, warps, at)
        clocks.release(warps, phase.clock)
        if phase.expected is not None:
            own = clocks.agent(THREADS, warps)
            phase.by.append((own, clocks.known[warps, own], at))
        # Barriers with a count are of whole warps: ended threads count as arrived.
        phase.arrived += len(threads) if phase.expected is None else WARP * len(warps)
        if waits:
            phase.waiting += [int(w) for w in warps]
        return self._complete(block, name)

    def _told_apart(self, block: int, name: int, warps: Array, at: Instruction) -> None:
        """A finding where a warp may as well arrive in the phase before, in another's place. A
        phase of one warp is whose it is."""
        last = self.last.get((block, name))
        if last is None or last.arrived == WARP:
            return
        known = self.machine.clocks.known
        for others, epochs, there in last.by:
            apart = known[warps[:, None], others] < epochs
            if np.count_nonzero(apart):
                mine, other = (int(k[0]) for k in np.nonzero(apart))
                first = block * self.machine.threads // WARP
                words = (
                    f"barrier {name} is full with {last.arrived} threads, and more come: nothing "
                    f"says that warp {int(warps[mine]) - first} does not arrive in the place of "
                    f"warp {int(others[other])}"
                )
                thread = int(warps[mine]) * WARP
                self.machine.memory.report("barrier misuse", at, words, thread, there)

    def _check(
        self, lanes: Lanes, here: Array, name: int, expected: Array | None, at: Instruction
    ) -> None:
        report = self.machine.report
        if name > MOST or (name == MOST and not at.has("cluster")):
            report("barrier misuse", at, f"barrier {name} of 16", lanes)
        if expected is not None:
            counts = np.unique(expected[here])
            if len(counts) > 1 or int(counts[0]) % WARP or not int(counts[0]):
                words = f"{', '.join(map(str, counts))} threads are no number of whole warps"
                report("barrier misuse", at, words, lanes)

    def _parts(self, lanes: Lanes) -> Array:
        """The warps of which lanes that have not ended are not there."""
        warps, many = np.unique(lanes.warp_of, return_counts=True)
        return np.asarray(warps[many < self.machine.alive.reshape(-1, WARP)[warps].sum(1)])

    def _apart(self, warps: Array, lanes: Array, phase: _Phase, at: Instruction) -> None:
        """A finding where lanes of one warp come to one barrier at several instructions. A whole
        warp may: it arrives, and waits later."""
        alive = self.machine.alive.reshape(-1, WARP)[warps].sum(1)
        for warp in warps[lanes < alive].tolist():
            other = phase.came.setdefault(warp, at)
            if other is not at:
                words = "lanes of one warp come to a barrier here, others at another instruction"
                self.machine.memory.report("divergent collective", at, words, warp * WARP, other)

    def _phase(
        self, block: int, name: int, count: int | None, at: Instruction, lanes: Lanes
    ) -> _Phase:
        phase = self.open.get((block, name))
        if phase is None:
            number = self.uses[block, name] = self.uses.get((block, name), 0) + 1
            phase = _Phase(self.machine.clocks.empty(), expected=count, number=number)
            self.open[block, name] = phase
        elif phase.expected != count:
            words = f"barrier {name} is used with {phase.expected} and {count} threads at once"
            self.machine.report("barrier misuse", at, words, lanes)
        return phase

    def _complete(self, block: int, name: int) -> bool:
        machine, phase = self.machine, self.open[block, name]
        expected = phase.expected
        if expected is None:
            first = block * machine.threads
            expected = int(machine.alive[first : first + machine.threads].sum())
        if phase.arrived < expected:
            return False
        del self.open[block, name]
        if phase.expected is not None:
            self.last[block, name] = phase
        if phase.waiting:
            machine.clocks.acquire(np.array(phase.waiting), phase.clock)
        machine.wake(("bar", block, name, phase.number))
        return True

    def look_again(self) -> None:
        """Threads have ended: barriers that wait for all that are left may be complete."""
        for block, name in list(self.open):
            if self.open[block, name].expected is None:
                self._complete(block, name)
