"""Which accesses of a memory are ordered: vector clocks (FastTrack, Flanagan and Freund 2009).

Agents of a block of W warps: the warps, and for each warp what it started and does not wait for by
itself: its cp.async copies, its bulk copies, its matmuls. An access carries its agent's epoch.
A warp learns epochs at barriers and waits; an access is ordered after another one exactly if its
warp has learnt the other's epoch. "Not landed yet" and "not ordered" are one check.

What generic accesses wrote is visible to the asynchronous proxy (bulk copies, wgmma operands in
shared memory) only after a fence.proxy.async (PTX ISA, "Proxies"). A second clock, `fenced`, says
which epochs are in shared memory, `fenced_global` which in global memory (of what the block wrote
itself): a fence makes them the warp's clock, and barriers pass all on.

Lanes of one warp are ordered by a barrier or a __syncwarp alone (PTX ISA, "Memory Consistency
Model"; CUDA C++ Programming Guide, "Independent Thread Scheduling"): what a warp did in its epoch
of now comes before what the same lane does next, and before nothing else that lanes do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.ptx.lanes import Lanes

Array = np.ndarray[Any, Any]

THREADS, COPIES, BULK, MATMUL = range(4)
# In the place of a lane: several lanes, each by itself; the warp as a whole, which ends a read
# before any lane goes on.
SEVERAL, ALL = 63, 62
LANES = np.array(6, np.int32)  # bits of an access's stamp that are its lane
# Of blocks by number: their clocks as `Clocks.all` has them, of which other blocks know the last
# row, what was offered to them.
View = dict[int, Array]
# An array of no dimensions is a quicker operand than a number.
ONE, MOST = np.array(1, np.int32), np.array(63, np.uint32)


class Between:
    """What each block of a grid knows of others by flags in global memory (`Flags`), from batch to
    batch; and what was left at those flags."""

    def __init__(self) -> None:
        self.met: dict[int, View] = {}  # by block, and known there from its next fence on
        self.known: dict[int, View] = {}
        self.passed: dict[int, View] = {}  # what was known at a block's last fence
        self.places: dict[int, View] = {}

    def fence(self, block: int) -> None:
        if block in self.met:
            self.known[block] = joined(self.known.get(block, {}), self.met.pop(block))
        if block in self.known:
            self.passed[block] = self.known[block]

    def meet(self, block: int, there: View, acquires: bool) -> None:
        """A block has seen what was left at a flag."""
        views = self.known if acquires else self.met
        if others := {b: clock for b, clock in there.items() if b != block}:
            views[block] = joined(views.get(block, {}), others)

    def unknown(
        self, now: Array, then: Array, agents: Array, stamps: Array, *, volatile: bool
    ) -> Array:
        """Which accesses of the blocks `then` the blocks `now` do not know of. A volatile load is
        behind what its block met without a fence."""
        out = np.ones(len(now), np.bool_)
        for a, b in sorted({*zip(now.tolist(), then.tolist(), strict=True)}):
            for view in (self.known, self.met) if volatile else (self.known,):
                if (clock := view.get(a, {}).get(b)) is not None:
                    here = (now == a) & (then == b)
                    out[here] &= stamps[here] >> LANES > clock[-1, agents[here]]
        return out


def joined(one: View, other: View) -> View:
    """What is known by either."""
    out = dict(one)
    for block, clock in other.items():
        old = out.get(block)
        out[block] = clock if old is None else np.maximum(old, clock)
    return out


class Clock:
    """What is known of each agent's epochs, which of them the asynchronous proxy sees in shared and
    in global memory, and which other blocks may see: rows of one array."""

    def __init__(self, agents: int) -> None:
        self.all = np.zeros((4, agents), np.int32)
        self.known, self.fenced, self.fenced_global, self.offered = self.all


class Clocks:
    """The clocks of all warps of a batch of blocks: `known[warp, agent]`.

    Agents are numbered within a block: `kind * warps + warp in block`. A warp knows its own epochs
    but for the one that it is in.
    """

    def __init__(self, blocks: int, warps: int, first_block: int, between: Between) -> None:
        self.between = between
        self.blocks, self.per_block, self.first_block = blocks, warps, first_block
        self.agents = 4 * warps
        self.all = np.zeros((4, blocks * warps, self.agents), np.int32)  # as `Clock` has them
        self.known, self.fenced, self.fenced_global, self.offered = self.all
        self.knows = self.known.reshape(-1)
        # The epoch in which an agent's accesses are made: beyond what anyone has learnt.
        self.epoch = np.ones((blocks, self.agents), np.int32)
        self.changes = 0  # of epochs

    def agent(self, kind: int, warp: Any) -> Any:
        """The agent of a warp (numbered in the batch), within its block.

        Matmuls are the warpgroup's: its first warp stands for all four.
        """
        own = warp % self.per_block
        return kind * self.per_block + (own // 4 * 4 if kind == MATMUL else own)

    def release(self, warps: Array, into: Clock) -> None:
        """What the warps did and know goes into a barrier's clock; they begin new epochs."""
        self.advance(THREADS, warps)
        np.maximum(into.all, self.all[:, warps].max(1), out=into.all)

    def acquire(self, warps: Array, clock: Clock) -> None:
        """The warps learn what a barrier's clock holds."""
        self.all[:, warps] = np.maximum(self.all[:, warps], clock.all[:, None])

    def empty(self) -> Clock:
        return Clock(self.agents)

    def fence(self, warps: Array, near: bool, far: bool) -> None:
        """fence.proxy.async: what the warps did and know is visible to the asynchronous proxy, in
        shared memory (`near`) and in global memory (`far`).

        What they write from here on is of a new epoch, which this fence says nothing of.
        """
        self.advance(THREADS, warps)
        for fenced in (self.fenced,) * near + (self.fenced_global,) * far:
            fenced[warps] = np.maximum(fenced[warps], self.known[warps])

    def advance(self, kind: int, warps: Array) -> None:
        """Accesses of these agents from here on are of a new epoch."""
        blocks, agent = warps // self.per_block, self.agent(kind, warps)
        if kind == THREADS:
            self.known[warps, agent] = self.epoch[blocks, agent]
        self.epoch[blocks, agent] += 1
        self.changes += 1

    def learn(self, warps: Array, kind: int, epochs: Array) -> None:
        """Each warp has waited for what it started itself, up to an epoch."""
        agent = self.agent(kind, warps)
        self.known[warps, agent] = np.maximum(self.known[warps, agent], epochs)
        if kind != COPIES:
            self.fenced[warps, agent] = np.maximum(self.fenced[warps, agent], epochs)

    def party(self, lanes: Lanes, kind: int, each: int, lane: int) -> Party:
        """Who makes an access of `each` granules a lane; kept until an epoch changes.

        Args:
            lane: SEVERAL or ALL; -1: each lane for itself.
        """
        key = (kind, each, lane)
        kept: tuple[int, Party] | None = lanes.parties.get(key)
        if kept is not None and kept[0] == self.changes:
            return kept[1]
        warps = np.repeat(lanes.warp_of, each) if each > 1 else lanes.warp_of
        block, agent = warps // self.per_block, self.agent(kind, warps)
        epoch = self.epoch[block, agent]
        own = np.repeat(lanes.threads % 32, each) if lane < 0 else lane
        party = Party(kind, warps * self.agents, agent, warps % self.per_block,
                      block + self.first_block, ((epoch << 6) | own).astype(np.int32))  # fmt: skip
        lanes.parties[key] = self.changes, party
        return party


@dataclass(frozen=True, slots=True)
class Party:
    """Who makes an access, for each granule of it.

    Args:
        row: where the clock of its warp begins among the clocks of all warps.
        agent: its agent's number, and `warp` its warp's number, in the block.
        block: the block's number in the grid.
        stamp: epoch and lane as one number, 64 * epoch + lane.
        volatile: whether it reads memory itself, and no copy of it that is nearer.
    """

    kind: int
    row: Array
    agent: Array
    warp: Array
    block: Array
    stamp: Array
    volatile: bool = field(default=False, kw_only=True)

    def follows(self, agents: Array, stamps: Array) -> Array:
        """Which accesses of this warp's epoch of now come before this one by the program's order:
        those of the same lane, all that lanes did, for the matmuls of their warp, and what was
        started likewise."""
        lanes, started = agents == self.warp, agents == self.agent
        if self.kind == MATMUL:
            both: Array = lanes | started
            return both
        same: Array = lanes & ((stamps & 63 == self.stamp & 63) | (stamps & 63 == ALL))
        return same if self.kind == THREADS else same | started


class History:
    """Who last touched each granule of one memory: a write, and the reads since.

    For memory that several blocks share (`shared_by_blocks`), accesses of two blocks are ordered
    by what they know of each other alone: blocks of a grid run in any order. `strong` accesses
    (`Flags`) do not race with each other. Such a read is noted as far as it saw a strong write:
    that comes before what its warp does next.
    """

    def __init__(self, granules: int, clocks: Clocks, shared_by_blocks: bool) -> None:
        self.clocks, self.shared = clocks, shared_by_blocks
        self.writer = np.full(granules, -1, np.int64)
        self.write_stamp = np.zeros(granules, np.int32)
        self.write_line = np.zeros(granules, np.int32)
        self.read_line = np.zeros(granules, np.int32)
        self.met = False  # whether there was a strong write
        self.strong = np.zeros(granules, np.bool_)  # the last write
        self.seen = np.full(granules, -1, np.int32)  # the warp of the grid that saw it last
        if shared_by_blocks:
            self.write_block = np.full(granules, -1, np.int32)
            self.read_block = np.full(granules, -1, np.int32)
            self.reader = np.zeros(granules, np.int64)
            self.read_stamp = np.zeros(granules, np.int32)
        else:
            self.agents = np.array(clocks.agents)
            self.reads = np.zeros((granules, clocks.agents), np.int32)
            self.flat = self.reads.reshape(-1)

    def follow(self, before: History) -> None:
        """Keeps what blocks of an earlier batch of the grid did: nothing orders theirs and ours."""
        for name in ("writer", "write_stamp", "write_line", "read_line", "write_block",
                     "read_block", "reader", "read_stamp", "met", "strong", "seen"):  # fmt: skip
            setattr(self, name, getattr(before, name))

    def _writes(self, at: Array, party: Party, strong: bool = False) -> Conflict | None:
        """The first write of these granules that is not ordered before an access of now."""
        writer, stamps = self.writer[at], self.write_stamp[at]
        # Where nobody wrote, the stamp is 0, and the clock that is looked at some other one.
        bad: Array = (stamps >> LANES) > self.clocks.knows[party.row + writer]
        if np.count_nonzero(bad):
            bad &= ~party.follows(writer, stamps)
        if self.shared:
            block = self.write_block[at]
            elsewhere: Array = (block != party.block) & (writer >= 0)
            if np.count_nonzero(elsewhere):
                bad &= ~elsewhere
                bad |= self._unknown(elsewhere, party, block, writer, stamps)
        if not np.count_nonzero(bad):
            return None
        bad &= ~self.strong[at] if strong else self.seen[at] != self._warps(party)
        if not np.count_nonzero(bad):
            return None
        k = int(bad.argmax())
        other = bool(self.shared and self.write_block[at[k]] != party.block[k])
        kind = "race" if other or writer[k] < self.clocks.per_block else "early read"
        lanes = writer[k] == party.warp[k] and not other
        waited = kind == "early read" and self._waited(writer[k], stamps[k], party, k)
        return Conflict(k, kind, int(self.write_line[at[k]]), "wrote", bool(lanes), waited)

    def _waited(self, agent: int, stamp: int, party: Party, k: int) -> bool:
        """Whether the warp that started a copy of another warp has waited for it by now."""
        per = self.clocks.per_block
        starter = (int(party.block[k]) - self.clocks.first_block) * per + int(agent) % per
        known = self.clocks.known[starter, agent]
        return int(agent) % per != int(party.warp[k]) and bool(stamp >> LANES <= known)

    def _warps(self, party: Party) -> Array:
        """The warps' numbers in the grid."""
        numbers: Array = party.block * self.clocks.per_block + party.warp
        return numbers

    def _unknown(
        self, elsewhere: Array, party: Party, block: Array, agent: Array, stamps: Array
    ) -> Array:
        """Of accesses of other blocks those that nothing orders before this one."""
        between = self.clocks.between
        if not between.known and not between.met:
            return elsewhere
        out = elsewhere.copy()
        out[elsewhere] = between.unknown(
            *(x[elsewhere] for x in (party.block, block, agent, stamps)),
            volatile=party.volatile,
        )
        return out

    def _unfenced(self, at: Array, party: Party) -> Conflict | None:
        """The first granule that the asynchronous proxy reads, and that no fence made visible."""
        writer = self.writer[at]
        generic = (writer >= 0) & (writer < 2 * self.clocks.per_block)
        fenced = self.clocks.fenced
        if self.shared:  # what other blocks fenced is not known
            generic &= self.write_block[at] == party.block
            fenced = self.clocks.fenced_global
        seen = fenced.take(party.row + writer)
        bad = generic & (self.write_stamp[at] >> LANES > seen)
        if not np.count_nonzero(bad):
            return None
        k = int(bad.argmax())
        return Conflict(k, "missing proxy fence", int(self.write_line[at[k]]), "wrote")

    def read(
        self, at: Array, party: Party, line: int, proxy: bool, strong: bool = False
    ) -> Conflict | None:
        """Notes a read of granules; the first conflict, if any."""
        conflict = self._writes(at, party, strong)
        if strong:
            saw = self.strong[at]
            self.seen[at[saw]] = self._warps(party)[saw]
            return conflict
        if conflict is None and proxy:
            conflict = self._unfenced(at, party)
        if self.shared:
            before = self.read_block[at]
            elsewhere = before != party.block
            if np.count_nonzero(elsewhere):
                elsewhere &= before != -1
                late = self._unknown(elsewhere & (before != -2), party, before, self.reader[at],
                                     self.read_stamp[at])  # fmt: skip
                after = np.where(late | (before == -2), -2, party.block)
                self.read_block[at] = after
                # Blocks of this very access read one place: the last of them stands for one only.
                among = self.read_block[at] != after
                self.read_block[at[among]] = -2
            self.reader[at] = party.agent
            self.read_stamp[at] = party.stamp
        else:
            places = at * self.agents + party.agent
            flat = self.flat
            before = flat[places]
            flat[places] = party.stamp
            # Another lane's, in the same epoch: what differs is in 1 .. 63.
            other = ((before ^ party.stamp) - ONE).view(np.uint32) < MOST
            other |= flat[places] != party.stamp
            if np.count_nonzero(other):
                flat[places[other]] |= SEVERAL
        self.read_line[at] = line
        return conflict

    def write(self, at: Array, party: Party, line: int, strong: bool = False) -> Conflict | None:
        """Notes a write of granules; the first conflict with a write or a read before, if any."""
        conflict = self._writes(at, party, strong)
        if conflict is None:
            late = self._late(at, party)
            if np.count_nonzero(late):
                k = int(late.argmax())
                conflict = Conflict(k, "race", int(self.read_line[at[k]]), "reads")
        self.writer[at] = party.agent
        self.write_stamp[at] = party.stamp
        self.write_line[at] = line
        if strong or self.met:
            self.met, self.strong[at], self.seen[at] = True, strong, -1
        if self.shared:
            self.write_block[at] = party.block
            self.read_block[at] = -1
            twice = self.write_block[at] != party.block
            if conflict is None and not strong and np.count_nonzero(twice):
                conflict = Conflict(int(twice.argmax()), "race", line, "wrote")
        else:
            self.reads[at] = 0
        return conflict

    def _late(self, at: Array, party: Party) -> Array:
        """Which granules someone read whom nothing orders before a write of now."""
        known = self.clocks.known
        if not self.shared:
            reads = self.reads[at]
            ahead = reads >> LANES > known[party.row // self.clocks.agents]
            if np.count_nonzero(ahead):
                where, agent = np.nonzero(ahead)
                each = (party.row, party.agent, party.warp, party.block, party.stamp)
                own = Party(party.kind, *(x[where] for x in each))
                ahead[where, agent] = ~own.follows(agent, reads[where, agent])
            some: Array = ahead.any(1)
            return some
        block, stamps, reader = (x[at] for x in (self.read_block, self.read_stamp, self.reader))
        late: Array = block == -2
        late |= self._unknown((block >= 0) & (block != party.block), party, block, reader, stamps)
        here = (block == party.block) & (stamps >> LANES > self.clocks.knows[party.row + reader])
        late |= here & ~party.follows(reader, stamps)
        return late


@dataclass(frozen=True, slots=True)
class Conflict:
    """The `index`-th granule of an access is not ordered after what the PTX `line` did to it; where
    `lanes`, another lane of the same warp did; where `waited`, a copy that its warp waited for."""

    index: int
    kind: str
    line: int
    verb: str
    lanes: bool = False
    waited: bool = False
