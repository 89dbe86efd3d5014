"""Which accesses of a memory are ordered: vector clocks (FastTrack, Flanagan and Freund 2009).

Agents of a block of W warps: the warps, and for each warp what it started and does not wait for by
itself: its cp.async copies, its bulk copies, its matmuls. An access carries its agent's epoch.
A warp learns epochs at barriers and waits; an access is ordered after another one exactly if its
warp has learnt the other's epoch. "Not landed yet" and "not ordered" are one check.

What generic accesses wrote is visible to the asynchronous proxy (bulk copies, wgmma operands in
shared memory) only after a fence.proxy.async (PTX ISA, "Proxies"). A second clock, `fenced`, says
which epochs are: a fence makes it the warp's clock, and barriers pass both on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

THREADS, COPIES, BULK, MATMUL = range(4)


@dataclass(slots=True)
class Clock:
    """What is known of each agent's epochs, and which of them the asynchronous proxy sees."""

    known: Array
    fenced: Array

    def join(self, other: Clock) -> None:
        np.maximum(self.known, other.known, out=self.known)
        np.maximum(self.fenced, other.fenced, out=self.fenced)

    def copy(self) -> Clock:
        return Clock(self.known.copy(), self.fenced.copy())


class Clocks:
    """The clocks of all warps of a batch of blocks: `known[warp, agent]`.

    Agents are numbered within a block: `kind * warps + warp in block`.
    """

    def __init__(self, blocks: int, warps: int) -> None:
        self.blocks, self.per_block = blocks, warps
        self.agents = 4 * warps
        self.known = np.zeros((blocks * warps, self.agents), np.int32)
        self.fenced = np.zeros_like(self.known)
        # The epoch in which an agent's accesses are made: beyond what anyone has learnt.
        self.epoch = np.ones((blocks, self.agents), np.int32)
        self._own(np.arange(blocks * warps))

    def _own(self, warps: Array) -> None:
        own = warps % self.per_block
        self.known[warps, own] = self.epoch[warps // self.per_block, own]

    def agent(self, kind: int, warp: Any) -> Any:
        """The agent of a warp (numbered in the batch), within its block.

        Matmuls are the warpgroup's: its first warp stands for all four.
        """
        own = warp % self.per_block
        return kind * self.per_block + (own // 4 * 4 if kind == MATMUL else own)

    def of(self, warp: int) -> Clock:
        """A warp's clock, as a view."""
        return Clock(self.known[warp], self.fenced[warp])

    def release(self, warps: Array, into: Clock) -> None:
        """What the warps did and know goes into a barrier's clock; they begin new epochs."""
        np.maximum(into.known, self.known[warps].max(0), out=into.known)
        np.maximum(into.fenced, self.fenced[warps].max(0), out=into.fenced)
        self.advance(THREADS, warps)

    def acquire(self, warps: Array, clock: Clock) -> None:
        """The warps learn what a barrier's clock holds."""
        self.known[warps] = np.maximum(self.known[warps], clock.known)
        self.fenced[warps] = np.maximum(self.fenced[warps], clock.fenced)

    def empty(self) -> Clock:
        return Clock(np.zeros(self.agents, np.int32), np.zeros(self.agents, np.int32))

    def fence(self, warps: Array) -> None:
        """fence.proxy.async: what the warps know is visible to the asynchronous proxy.

        What they write from here on is of a new epoch, which this fence says nothing of.
        """
        self.fenced[warps] = np.maximum(self.fenced[warps], self.known[warps])
        self.advance(THREADS, warps)

    def advance(self, kind: int, warps: Array) -> None:
        """Accesses of these agents from here on are of a new epoch."""
        self.epoch[warps // self.per_block, self.agent(kind, warps)] += 1
        if kind == THREADS:
            self._own(warps)

    def learn(self, warps: Array, kind: int, epochs: Array) -> None:
        """Each warp has waited for what it started itself, up to an epoch."""
        agent = self.agent(kind, warps)
        self.known[warps, agent] = np.maximum(self.known[warps, agent], epochs)
        if kind != COPIES:
            self.fenced[warps, agent] = np.maximum(self.fenced[warps, agent], epochs)


class History:
    """Who last touched each granule of one memory: a write, and the reads since.

    For memory that several blocks share (`shared_by_blocks`), an access of another block is never
    ordered: blocks of a grid run in any order.
    """

    def __init__(
        self, granules: int, clocks: Clocks, shared_by_blocks: bool, first_block: int = 0
    ) -> None:
        self.clocks, self.shared, self.first_block = clocks, shared_by_blocks, first_block
        self.writer = np.full(granules, -1, np.int16)
        self.write_epoch = np.zeros(granules, np.int32)
        self.write_line = np.zeros(granules, np.int32)
        self.read_line = np.zeros(granules, np.int32)
        if shared_by_blocks:
            self.write_block = np.full(granules, -1, np.int32)
            self.read_block = np.full(granules, -1, np.int32)
            self.reader = np.zeros(granules, np.int16)
            self.read_epoch = np.zeros(granules, np.int32)
        else:
            self.reads = np.zeros((granules, clocks.agents), np.int32)

    def follow(self, before: History) -> None:
        """Keeps what blocks of an earlier batch of the grid did: nothing orders theirs and ours."""
        for name in ("writer", "write_epoch", "write_line", "read_line", "write_block",
                     "read_block", "reader", "read_epoch"):  # fmt: skip
            setattr(self, name, getattr(before, name))

    def read(self, at: Array, kind: int, warps: Array, line: int, proxy: bool) -> Conflict | None:
        """Notes a read of granules, one for each entry of `warps`; the first conflict, if any."""
        clocks = self.clocks
        writer, epoch = self.writer[at], self.write_epoch[at]
        blocks = warps // clocks.per_block
        numbers = blocks + self.first_block
        own = clocks.agent(kind, warps)
        known = clocks.known[warps, writer]
        bad = (writer >= 0) & (epoch > known) & (writer != own)
        if self.shared:
            bad |= (self.write_block[at] != numbers) & (writer >= 0)
        unfenced = None
        if proxy and not self.shared:
            generic = (writer >= 0) & (writer < 2 * clocks.per_block)
            unfenced = generic & ~bad & (epoch > clocks.fenced[warps, writer])
        mine = clocks.epoch[blocks, own]
        if self.shared:
            before = self.read_block[at]
            self.read_block[at] = np.where((before == -1) | (before == numbers), numbers, -2)
            if np.count_nonzero(self.read_block[at] != np.where(before == -1, numbers, before)):
                # Blocks of this very access read one place: the last of them stands for one only.
                shared = self.read_block[at] != numbers
                self.read_block[at[shared]] = -2
            self.reader[at] = own
            self.read_epoch[at] = mine
        else:
            self.reads[at, own] = mine
        self.read_line[at] = line
        if np.count_nonzero(bad):
            return self._conflict(at, bad, writer, self.write_line, "wrote")
        if unfenced is not None and np.count_nonzero(unfenced):
            k = int(unfenced.argmax())
            return Conflict(k, "missing proxy fence", int(self.write_line[at[k]]), "wrote")
        return None

    def write(self, at: Array, kind: int, warps: Array, line: int) -> Conflict | None:
        """Notes a write of granules; the first conflict with a write or a read before, if any."""
        clocks = self.clocks
        writer, epoch = self.writer[at], self.write_epoch[at]
        blocks = warps // clocks.per_block
        numbers = blocks + self.first_block
        own = clocks.agent(kind, warps)
        bad = (writer >= 0) & (epoch > clocks.known[warps, writer]) & (writer != own)
        if self.shared:
            reader, seen = self.read_block[at], self.read_epoch[at]
            bad |= (writer >= 0) & (self.write_block[at] != numbers)
            late = (reader == -2) | ((reader >= 0) & (reader != numbers))
            here = (reader == numbers) & (self.reader[at] != own)
            late |= here & (seen > clocks.known[warps, self.reader[at]])
        else:
            ahead = self.reads[at] > clocks.known[warps]
            ahead[np.arange(len(at)), own] = False
            late = ahead.any(1)
        conflict = None
        if np.count_nonzero(bad):
            conflict = self._conflict(at, bad, writer, self.write_line, "wrote")
        elif np.count_nonzero(late):
            k = int(late.argmax())
            conflict = Conflict(k, "race", int(self.read_line[at[k]]), "reads")
        self.writer[at] = own
        self.write_epoch[at] = clocks.epoch[blocks, own]
        self.write_line[at] = line
        if self.shared:
            self.write_block[at] = numbers
            self.read_block[at] = -1
            twice = self.write_block[at] != numbers
            if conflict is None and np.count_nonzero(twice):
                conflict = Conflict(int(twice.argmax()), "race", line, "wrote")
        else:
            self.reads[at] = 0
        return conflict

    def _conflict(self, at: Array, bad: Array, agents: Array, lines: Array, verb: str) -> Conflict:
        k = int(bad.argmax())
        kind = "race" if agents[k] < self.clocks.per_block else "early read"
        return Conflict(k, kind, int(lines[at[k]]), verb)


@dataclass(frozen=True, slots=True)
class Conflict:
    """The `index`-th granule of an access is not ordered after what the PTX `line` did to it."""

    index: int
    kind: str
    line: int
    verb: str
