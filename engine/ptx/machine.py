"""Runs a kernel for a batch of blocks: which threads go on where, and what they wait for.

Threads that stand at one instruction execute it together. Of those that can go on, the ones with
the lowest instruction do, up to where others stand: threads that parted at a branch meet again at
its end, as nvcc lays code out. A warp that waits is parked until what it waits for has happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from engine.ptx.findings import Findings
from engine.ptx.flags import judged
from engine.ptx.lanes import WARP, Bools, Lanes, together
from engine.ptx.memory import Memory
from engine.ptx.ordering import Clocks
from engine.ptx.registers import Registers
from engine.ptx.syntax import Instruction, Kernel

Key = tuple[Any, ...]
LOOK = 2_000  # instructions after which it is looked at first whether a loop goes round in vain
MOST = 20_000_000  # instructions of a batch, each counted once for all lanes together


@dataclass(frozen=True, slots=True)
class Jump:
    """The lanes of `taken` go on at `target`, the others behind the branch."""

    taken: Bools
    target: int


@dataclass(frozen=True, slots=True)
class Scatter:
    """Each lane goes on at a target of its own (`brx.idx`)."""

    targets: np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Park:
    """The lanes of `waiting` stay before (`again`) or behind the instruction until woken.

    `keys`: for each lane, what wakes it. `undone`: the other lanes have not executed it either.
    """

    waiting: Bools
    keys: list[Key]
    again: bool
    undone: bool = False


@dataclass(frozen=True, slots=True)
class Exit:
    """The lanes of `gone` have ended."""

    gone: Bools


Stand = tuple[tuple[int, int, bool, int, int], ...]
Outcome = Jump | Scatter | Park | Exit
Run = Callable[[Lanes], Outcome | None]


@dataclass(slots=True)
class Group:
    """Lanes that stand at one instruction; `key`: what they wait for, and whether `behind` it."""

    pc: int
    lanes: Lanes
    key: Key | None = None
    turn: int = 0  # of those that can go on, the groups of the lowest turn do
    behind: bool = False


class Machine:
    """One batch of blocks of a launch, ready to run.

    `code` is set by the one who decodes the kernel for this machine (`decode`).
    """

    def __init__(
        self, kernel: Kernel, registers: Registers, memory: Memory, clocks: Clocks,
        findings: Findings, blocks: int, threads: int, present: int = 0,
    ) -> None:  # fmt: skip
        """Args:
        threads: of a block, in whole warps; `present` of them are there (0: all).
        """
        self.kernel, self.registers, self.memory = kernel, registers, memory
        self.judged = judged(kernel)
        self.clocks, self.findings = clocks, findings
        self.blocks, self.threads = blocks, threads
        self.code: list[Run] = []
        self.groups: list[Group] = []
        # A block's last warp may have fewer threads than 32: the others have ended.
        self.alive = np.tile(np.arange(threads) < (present or threads), blocks)
        self.executed = 0  # instructions, each counted once for all lanes together
        self.executed_threads = 0
        self.ran = np.zeros(len(kernel.code), np.bool_)  # which instructions any thread came to
        # What lands by itself: asked when nothing else can go on; true if something happened.
        self.pending: list[Callable[[], bool]] = []
        # What an ended thread may release: barriers that wait for all threads that are left.
        self.on_exit: Callable[[], None] = lambda: None
        self.symbols: dict[str, int] = {}
        self.barriers: Any = None
        self.copies: Any = None
        self.mbarriers: Any = None
        self.bulk: Any = None
        self.matmuls: Any = None
        # Registers that each warp asked for with setmaxnreg (0: none), and who last asked for more.
        self.held = np.zeros(blocks * threads // WARP, np.int64)
        self.grew: Instruction | None = None
        self.events = 0  # counts what may let a thread go on that polls
        # Where threads stood when it was last looked at whether they go round in vain, with the
        # state of everything; after how many instructions to look again; and what was tried.
        self.stood: tuple[Stand, int] | None = None
        self.look = LOOK
        self.tried: Counter[int] = Counter()

    def run(self, seed: int | None = None, most: int = MOST) -> None:
        """Runs all threads to their ends, or to a deadlock, which is a finding.

        Args:
            seed: the order in which warps (warpgroups, where the kernel multiplies with them) go
                as far as they can; None: all go together.
            most: instructions after which the kernel counts as endless.
        """
        everyone = Lanes(np.flatnonzero(self.alive))
        self.groups = [Group(0, everyone)]
        if seed is not None:
            together = 4 if any(at.name == "wgmma" for at in self.kernel.code) else 1
            warps = everyone.threads // WARP // together
            turns = np.random.default_rng(seed).permutation(int(warps[-1]) + 1)
            parts = [everyone.where(warps == w) for w in range(len(turns))]
            self.groups = [
                Group(0, p, None, int(t)) for p, t in zip(parts, turns, strict=True) if p
            ]
        polled = -1
        with np.errstate(all="ignore"):
            while self.groups:
                ready = [g for g in self.groups if g.key is None]
                if not ready:
                    if any(step() for step in self.pending):
                        continue
                    if polled != self.events and self.release_polls():
                        polled = self.events
                        continue
                    if self.tried and len({g.turn for g in self.groups}) > 1:
                        self.same_turn()
                        continue
                    if self.part():
                        continue
                    self.deadlock()
                    return
                if self.executed > self.look and self.in_vain():
                    if any(step() for step in self.pending) or self.others_first(ready):
                        continue
                    self.endless(ready, "nothing changes from round to round")
                    return
                if self.executed > most:
                    self.endless(ready, f"no end after {self.executed} instructions")
                    return
                turn = min(g.turn for g in ready)
                self.step([g for g in ready if g.turn == turn], turn)

    def in_vain(self) -> bool:
        """Whether all stand where they stood before, with registers and memory as they were: what
        goes on does so for ever. Looked at rarely, for one round of the innermost loop."""
        stand = tuple(sorted((g.pc, g.turn, g.key is None, int(g.lanes.threads[0]), len(g.lanes))
                             for g in self.groups))  # fmt: skip
        if self.stood is None:
            self.stood = stand, self.state()
            return False
        if stand == self.stood[0]:
            same = self.state() == self.stood[1]
            self.stood, self.look = None, self.executed + (0 if same else self.executed)
            return same
        if self.executed > 2 * self.look:
            self.stood, self.look = None, 2 * self.executed
        return False

    def state(self) -> int:
        """A number for all registers and memory."""
        number = 0
        for array in (*self.registers.arrays.values(), *self.memory.spaces.values()):
            number = crc32(np.ascontiguousarray(array).data, number)
        return number

    def others_first(self, ready: list[Group]) -> bool:
        """Lets those who go round in vain wait for the others, as a GPU lets all threads go on;
        whether there were any that had not gone on likewise."""
        state = self.state()
        self.tried[state] += 1
        turn = min(g.turn for g in ready)
        pc = min(g.pc for g in ready if g.turn == turn)
        if all(g.turn == turn and g.pc == pc for g in ready) or self.tried[state] > len(ready):
            return False
        last = max(g.turn for g in self.groups) + 1
        for g in ready:
            if g.turn == turn and g.pc == pc:
                g.turn = last
        return True

    def same_turn(self) -> None:
        """All go on in one turn again, and lanes that wait for the rest of their warp look."""
        for g in self.groups:
            g.turn = 0
            if g.key is not None and g.key[0] == "warp":
                g.key = None

    def step(self, ready: list[Group], turn: int) -> None:
        pc = min(g.pc for g in ready)
        now = [g for g in ready if g.pc == pc]
        # Threads that wait at a collective for the rest of their warp look again with it.
        same = [g for g in self.groups if g.turn == turn]
        held = [g for g in same if g.pc == pc and g.key is not None and g.key[0] == "warp"]
        if held:
            warps = {int(w) for g in now for w in g.lanes.warps}
            now += [g for g in held if g.key is not None and not warps.isdisjoint(g.key[1])]
        meet = (g.pc for g in same if g.pc > pc and (g.key is None or g.key[0] == "warp"))
        limit = min(meet, default=len(self.code))
        lanes = together([g.lanes for g in now])
        self.groups = [g for g in self.groups if g not in now]
        code = self.code
        size = len(lanes)
        began = pc
        while pc < limit:
            outcome = code[pc](lanes)
            pc += 1
            if outcome is not None:
                self.ran[began:pc] = True
                self.executed += pc - began
                self.executed_threads += (pc - began) * size
                self.after(outcome, pc, lanes, turn)
                return
        self.ran[began:pc] = True
        self.executed += pc - began
        self.executed_threads += (pc - began) * size
        self.groups.append(Group(pc, lanes, None, turn))

    def after(self, outcome: Outcome, pc: int, lanes: Lanes, turn: int) -> None:
        match outcome:
            case Jump(taken, target):
                self.add(target, lanes.where(taken), turn)
                if not taken.all():
                    self.add(pc, lanes.where(~taken), turn)
            case Scatter(targets):
                for target in np.unique(targets):
                    self.add(int(target), lanes.where(targets == target), turn)
            case Exit(gone):
                self.alive[lanes.threads[gone]] = False
                self.events += 1
                self.bulk.ended(lanes.threads[gone])
                self.add(pc, lanes.where(~gone), turn)
                self.on_exit()
            case Park(waiting, keys, again, undone):
                if not waiting.all():
                    self.add(pc - undone, lanes.where(~waiting), turn)
                for key in dict.fromkeys(keys[k] for k in np.flatnonzero(waiting)):
                    mine = waiting & np.array([k == key for k in keys])
                    part = lanes.where(mine)
                    assert part is not None
                    self.groups.append(Group(pc - again, part, key, turn, not again))

    def add(self, pc: int, lanes: Lanes | None, turn: int) -> None:
        if lanes is not None:
            self.groups.append(Group(pc, lanes, None, turn))

    def wake(self, key: Key) -> None:
        """Those that wait for `key` can go on."""
        self.events += 1
        for group in self.groups:
            if group.key == key:
                group.key = None

    def release_polls(self) -> bool:
        """Lets a suspended try_wait time out: the thread may do something else than wait."""
        polls = [g for g in self.groups if g.key is not None and g.key[0] == "mbarrier"]
        for group in polls:
            group.key = None
        self.timed_out = {int(t) for g in polls for t in g.lanes.threads}
        return bool(polls)

    timed_out: set[int] = set()

    parted: set[int] = set()

    def part(self) -> bool:
        """Lets lanes that wait before a barrier for the rest of their warp come to it without;
        whether there were any."""
        alone = [g for g in self.groups if g.key is not None and g.key[0] == "warp"
                 and self.kernel.code[g.pc].name in ("bar", "barrier")
                 and not self.kernel.code[g.pc].has("warp")]  # fmt: skip
        for group in alone:
            group.key = None
        self.parted = {int(t) for g in alone for t in g.lanes.threads}
        return bool(alone)

    def converge(self, lanes: Lanes, waiting: Bools, at: Instruction, warps: int = 1) -> Outcome:
        """Lanes wait before a collective of so many warps until the others of them come."""
        first = lanes.warp_of // warps * warps
        keys: list[Key] = [("warp", range(f, f + warps), at.line) for f in first.tolist()]
        return Park(waiting, keys, True, True)

    def endless(self, ready: list[Group], why: str) -> None:
        at = self.kernel.code[min(ready[0].pc, len(self.kernel.code) - 1)]
        words = f"{why}: a loop that nothing ends"
        self.report("deadlock", at, words, ready[0].lanes)

    def deadlock(self) -> None:
        """Reports where each group of threads stands that can never go on."""
        for group in self.groups:
            at = self.kernel.code[min(group.pc - group.behind, len(self.kernel.code) - 1)]
            what = "for nothing that can come" if group.key is None else f"at {group.key[0]}"
            thread = int(group.lanes.threads[0])
            words = f"{len(group.lanes)} threads wait {what}, and no other thread can go on"
            self.memory.report("deadlock", at, words, thread)

    def report(self, kind: str, at: Instruction, words: str, lanes: Lanes) -> None:
        self.memory.report(kind, at, words, int(lanes.threads[0]))
