"""The sixteen barriers of each block: who has arrived, and what those that leave have learnt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.ptx.lanes import Lanes
from engine.ptx.machine import Machine, Outcome, Park
from engine.ptx.ordering import Clock
from engine.ptx.syntax import Instruction

Array = np.ndarray[Any, Any]
MOST = 16


@dataclass(slots=True)
class _Phase:
    """One use of a barrier: threads that have arrived, those that wait, and what they knew."""

    clock: Clock
    arrived: int = 0
    expected: int | None = None  # None: all threads of the block that have not ended
    warps: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    number: int = 0


class Barriers:
    """bar.sync, bar.arrive (PTX ISA, "bar"): a count of threads, by whole warps."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.open: dict[tuple[int, int], _Phase] = {}
        self.uses: dict[tuple[int, int], int] = {}
        machine.on_exit = self.look_again

    def arrive(
        self, lanes: Lanes, number: Array, expected: Array | None, waits: bool, at: Instruction
    ) -> Outcome | None:
        machine = self.machine
        blocks = lanes.threads // machine.threads
        waiting = np.zeros(len(lanes), np.bool_)
        keys: dict[int, tuple[Any, ...]] = {}
        for block in np.unique(blocks):
            here = blocks == block
            names = np.unique(number[here])
            if len(names) > 1:
                machine.report("barrier misuse", at, "threads of one warp name two barriers", lanes)
            name = int(names[0])
            if name >= MOST:
                machine.report("barrier misuse", at, f"barrier {name} of 16", lanes)
            count = None if expected is None else int(expected[here][0])
            if count is not None and count % 32:
                words = f"{count} threads are no whole number of warps"
                machine.report("barrier misuse", at, words, lanes)
            threads = lanes.threads[here]
            phase = self._phase(int(block), name, count, at, lanes)
            warps = np.unique(threads // 32)
            machine.clocks.release(warps, phase.clock)
            # Barriers count whole warps: a warp's threads that have ended count as arrived.
            phase.arrived += len(threads) if count is None else 32 * len(warps)
            phase.warps += [int(w) for w in warps]
            if waits:
                phase.waiting += [int(w) for w in warps]
            if not self._complete(int(block), name) and waits:
                waiting |= here
                keys[int(block)] = ("bar", int(block), name, phase.number)
        if not waiting.any():
            return None
        return Park(waiting, lambda block: keys[block], False)

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
        if phase.waiting:
            machine.clocks.acquire(np.array(phase.waiting), phase.clock)
        machine.wake(("bar", block, name, phase.number))
        return True

    def look_again(self) -> None:
        """Threads have ended: barriers that wait for all that are left may be complete."""
        for block, name in list(self.open):
            if self.open[block, name].expected is None:
                self._complete(block, name)
