"""The parts of a block, what they are in the middle of, and the units that they form."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.cuir.execute.compiled.code import Block, Code
from engine.cuir.execute.state.shared_memory import Access
from engine.cuir.scalar import Env

if TYPE_CHECKING:
    from engine.cuir.execute.schedules.machine import BlockMachine


class Frame:
    """A function being run: its code, where it is, its names and its loops."""

    __slots__ = ("code", "elected", "env", "loops", "pc", "target")

    def __init__(self, code: Code, env: Env, target: str | None, elected: int) -> None:
        self.code = code
        self.env = env
        self.pc = 0
        self.target = target
        self.elected = elected
        self.loops: list[tuple[int, int, int]] = []


class Unit:
    """Parts that execute collectives together: a warpgroup, or the whole block."""

    __slots__ = ("agent", "collectives", "index", "parts", "registers")

    def __init__(self, index: int, agent: int, registers: int) -> None:
        self.index = index
        self.agent = agent
        self.parts: list[Part] = []
        self.registers = registers
        self.collectives: list[int] = []


class Part:
    """One simulated warp of a block: some rows of every register tile of its unit.

    `threads` is how many threads it stands for. Groups count from 1: `copies` are
    (group, how to land, op) in flight, `mma_*` the asynchronous matmul groups.
    """

    __slots__ = (
        "clock",
        "collective",
        "copies",
        "copy_committed",
        "done",
        "empty_loops",
        "fenced_at",
        "frames",
        "index",
        "local",
        "machine",
        "mma_committed",
        "mma_done",
        "mma_open",
        "path",
        "program",
        "ran",
        "step",
        "store_committed",
        "store_open",
        "store_path",
        "threads",
        "unfenced_inits",
        "unit",
        "waiting",
        "waits",
    )  # fmt: skip

    def __init__(self, index: int, unit: Unit, local: int, machine: BlockMachine) -> None:
        self.index = index
        self.unit = unit
        self.local = local
        self.machine = machine
        self.program = machine.program
        self.threads = machine.threads
        self.clock = np.zeros(machine.agents, np.int32)
        self.clock[index] = 1
        self.frames: list[Frame] = []
        self.waiting: Block | None = None
        self.done = False
        self.step = 0
        self.path = 0
        self.copies: list[tuple[int, Callable[[], None], int]] = []
        self.copy_committed = 0
        self.store_committed = 0
        self.store_open = -1  # the op of a bulk store that no group holds yet
        self.store_path = -1
        self.mma_committed = 0
        self.mma_done = 0
        self.mma_open = False
        self.fenced_at = -1
        self.collective = 0
        self.unfenced_inits: list[Any] = []
        # per mbarrier offset: the op of the last wait that passed, the phases then complete, and
        # how many waits have passed
        self.waits: dict[int, tuple[int, int, int]] = {}
        self.empty_loops: list[int] = []
        self.ran: dict[int, list[int]] = {}  # the steps at which it executed each writing op

    @property
    def elected(self) -> bool:
        return self.frames[-1].elected > 0

    @property
    def own_threads(self) -> int:
        """Threads that execute the current op in this part."""
        return 1 if self.elected else self.machine.unit_threads // len(self.unit.parts)

    @property
    def parts(self) -> int:
        return len(self.unit.parts)

    def access(self, agent: int | None = None, epoch: int | None = None) -> Access:
        me = self.index
        return Access(
            me if agent is None else agent,
            int(self.clock[me]) if epoch is None else epoch,
            me, self.clock, self.path, self.step, len(self.ran.get(self.path, ())),
        )  # fmt: skip

    def release(self) -> np.ndarray:
        """What this part has done so far, for others to acquire; what follows is later."""
        known = self.clock.copy()
        self.clock[self.index] += 1
        return known

    def acquire(self, known: np.ndarray) -> None:
        np.maximum(self.clock, known, out=self.clock)

    # The agents that write for this part: its threads and its copies.
    @property
    def copy_agent(self) -> int:
        return len(self.machine.parts) + self.index

    @property
    def store_agent(self) -> int:
        return 2 * len(self.machine.parts) + self.index
