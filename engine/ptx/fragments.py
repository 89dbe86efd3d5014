"""Registers of asynchronous matmuls: which are in use, and which were written without a fence.

PTX ISA, "wgmma.fence" and "wgmma.mma_async": accumulators may not be touched and fragments of A not
written until their group was waited for, and a matmul may take only registers that no one wrote
since the last wgmma.fence. A `mov` is neither: nvcc renames registers with it, and ptxas removes
it again.
"""

from __future__ import annotations

import numpy as np

from engine.ptx.lanes import Lanes
from engine.ptx.machine import Machine, Outcome, Run
from engine.ptx.ordering import MATMUL
from engine.ptx.syntax import Instruction, Kernel, Register, Vector, registers

_WRITE_NOTHING = {"st", "bar", "barrier", "bra", "brx", "fence", "membar", "red", "cp", "mbarrier",
                  "stmatrix", "call", "ret", "exit", "trap", "prefetch"}  # fmt: skip


def fragment_names(kernel: Kernel) -> set[str]:
    """Accumulators and A fragments of the kernel's matmuls, and what is moved into them."""
    found: set[str] = set()
    for at in kernel.code:
        if at.name == "wgmma" and at.has("mma_async"):
            found |= set(registers(at.operands[:1])) | set(_fragments_of_a(at))
    moves = [(at.operands[0].name, at.operands[1].name) for at in kernel.code
             if at.name == "mov" and isinstance(at.operands[0], Register)
             and isinstance(at.operands[1], Register)]  # fmt: skip
    before = -1
    while len(found) != before:
        before = len(found)
        found |= {source for target, source in moves if target in found}
    return found


def _fragments_of_a(at: Instruction) -> list[str]:
    a = at.operands[1]
    return list(registers(a.items)) if isinstance(a, Vector) else []


class Fragments:
    """For each register and warp: the fences before its last write, and the matmul that uses it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        warps = machine.blocks * machine.threads // 32
        names = fragment_names(machine.kernel)
        self.written = {n: np.full(warps, -1, np.int32) for n in names}
        self.adds = {n: np.zeros(warps, np.int32) for n in names}
        self.reads = {n: np.zeros(warps, np.int32) for n in names}
        self.fences = np.zeros(warps, np.int32)
        self.flying = 0  # matmuls that were not waited for

    def fence(self, lanes: Lanes) -> None:
        self.fences[lanes.warps] += 1

    def issue(self, at: Instruction, lanes: Lanes, epoch: int) -> None:
        """Checks a matmul's registers, and notes that it uses them."""
        if not self.machine.memory.ordered:
            return
        warps = lanes.warps
        d, a = list(registers(at.operands[:1])), _fragments_of_a(at)
        since = self.fences[warps]
        late = next((n for n in (*d, *a) if (self.written[n][warps] == since).any()), "")
        if late or not since.all():
            what = f"{late} was written" if late else "there was none"
            words = f"{what} since the last wgmma.fence, and the matmul takes it"
            if not late:
                words = "the first matmul of a warp needs a wgmma.fence before it"
            self.machine.report("missing wgmma fence", at, words, lanes)
        for n in d:
            self.adds[n][warps] = epoch
        for n in a:
            self.reads[n][warps] = epoch

    def watch(self, at: Instruction, run: Run) -> Run:
        """The instruction with what it does to fragments checked."""
        if at.name == "wgmma" or not at.operands or not self.machine.memory.ordered:
            return run
        first = [] if at.name in _WRITE_NOTHING else list(registers(at.operands[:1]))
        others = at.operands if at.name in _WRITE_NOTHING else at.operands[1:]
        writes = [n for n in first if n in self.written]
        reads = [n for n in registers(others) if n in self.written]
        if not writes and not reads:
            return run
        if at.name == "mov" and not isinstance(at.operands[0], Vector):
            return self._move(run, writes, reads)

        def watched(lanes: Lanes) -> Outcome | None:
            if self.flying:
                self._in_flight(at, lanes, writes, reads)
            outcome = run(lanes)
            if writes:
                warps = lanes.warps
                since = self.fences[warps]
                for n in writes:
                    self.written[n][warps] = since
            return outcome

        return watched

    def _move(self, run: Run, writes: list[str], reads: list[str]) -> Run:
        if not writes or not reads:
            return run
        to, source = self.written[writes[0]], self.written[reads[0]]

        def move(lanes: Lanes) -> Outcome | None:
            warps = lanes.warps
            to[warps] = source[warps]
            return run(lanes)

        return move

    def _in_flight(
        self, at: Instruction, lanes: Lanes, writes: list[str], reads: list[str]
    ) -> None:
        clocks = self.machine.clocks
        warps = lanes.warps
        known = clocks.known[warps, clocks.agent(MATMUL, warps)]
        for n in (*reads, *writes):
            if (self.adds[n][warps] > known).any():
                verb = "reads" if n in reads else "writes"
                words = f"{verb} an accumulator of a matmul that was not waited for"
                self.machine.report("early read", at, words, lanes)
                return
        for n in writes:
            if (self.reads[n][warps] > known).any():
                words = "writes an operand of a matmul that was not waited for"
                self.machine.report("early read", at, words, lanes)
                return
