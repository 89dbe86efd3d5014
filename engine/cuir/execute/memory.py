"""Shared memory of one block, with the order of everything that touches it.

Every access carries a vector clock (FastTrack, Flanagan and Freund 2009): an access that no chain
of barriers orders after the one before it is a finding, in whatever interleaving it was met. The
unit is a granule of 16 bytes. Each agent has an epoch counter: the parts themselves, the copies
that a part started (an epoch per commit group), its bulk stores, each unit's matrix engine (an
epoch per group) and each mbarrier's bulk loads (an epoch per phase). Waiting for something is
learning its epoch, so "not landed yet" and "not ordered" are one check.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from engine.cuir.types import DTYPES, SharedType

GRANULE = 16
SLOT = 2  # bytes per element slot of the data array: the smallest element kept in shared memory
_CODES = {name: code for code, name in enumerate(DTYPES, start=1)}

# Rows of the table of last writes.
AGENT, EPOCH, PATH, ISSUER, ISSUED, SEEN, TURN = range(7)

UNFENCED = np.iinfo(np.int32).max

Clock = np.ndarray

# Below, `take` and `count_nonzero` are for speed: [] and any() take twice as long on a tile.


@dataclass(frozen=True, slots=True)
class Region:
    """Granules start..stop; `every` (first, step) picks rows of `width` granules from them, and of
    these the first `taken`, where they are not all."""

    start: int
    stop: int
    width: int = 0
    every: tuple[int, int] | None = None
    taken: int | None = None

    def of(self, array: np.ndarray) -> np.ndarray:
        part = array[..., self.start : self.stop]
        if self.every is None and self.taken is None:
            return part
        first, step = self.every or (0, 1)
        rows = part.reshape(*array.shape[:-1], -1, self.width)
        return rows[..., first::step, : self.taken]


@dataclass(frozen=True, slots=True)
class Access:
    """Who touches memory: the agent and its epoch, the part that issued it, at which op.

    `step` counts the part's ops; `turn` is how often it has executed this one.
    """

    agent: int
    epoch: int
    part: int
    clock: Clock
    path: int
    step: int
    turn: int


# kind, path, other path (-1: none), message, part
Report = Callable[[str, int, int, str, int], None]


class SharedMemory:
    """The bytes of one block and who last touched them. Sizes in bytes."""

    def __init__(self, size: int, agents: int, dtype: torch.dtype, report: Report) -> None:
        granules = -(-size // GRANULE)
        self.size = size
        self.report = report
        self.data = torch.full((granules * GRANULE // SLOT,), float("nan"), dtype=dtype)
        self.last = np.zeros((7, granules), np.int32)
        self.before = np.zeros((7, granules), np.int32)
        self.reads: list[np.ndarray | None] = [None] * agents
        self.tag = np.zeros(granules, np.int8)
        self.fenced = np.zeros(granules, np.int32)  # the writer's epoch at its fence
        self.unfenced = (granules, 0)  # the granules that threads wrote all lie between these
        # Granules that one write has last written, all of them: its agent, epoch, type and fence.
        self.whole: dict[tuple[int, int], tuple[int, int, str, bool]] = {}
        self.barrier = np.zeros(granules, np.bool_)
        # How often a part had executed an op by one of its steps.
        self.ran: Callable[[int, int, int], int] = lambda part, path, step: 0
        self.explain: Callable[[int, int, int, int], bool] = lambda *where: False

    # --- places ------------------------------------------------------------------------------

    def tile(self, type: SharedType, offset: int) -> torch.Tensor:
        """The tile's elements as a rows x cols view of the data."""
        step = DTYPES[type.dtype].size // SLOT
        shape, strides = (type.rows, type.cols), ((type.pitch or type.cols) * step, step)
        return torch.as_strided(self.data, shape, strides, offset // SLOT)

    @staticmethod
    def region(
        type: SharedType, offset: int, rows: tuple[int, int] | None = None,
        every: tuple[int, int] | None = None,
    ) -> Region:  # fmt: skip
        """Granules of the tile: all of it, rows [a, b), or each `every[1]`-th row."""
        size = DTYPES[type.dtype].size
        pitch = (type.pitch or type.cols) * size
        taken = None if type.pitch is None else -(-type.cols * size // GRANULE)
        start = offset // GRANULE
        if pitch % GRANULE:
            # Rows share granules: the whole tile is the smallest safe answer.
            return Region(start, -(-(offset + type.rows * pitch) // GRANULE))
        width = pitch // GRANULE
        if rows is not None:
            return Region(start + rows[0] * width, start + rows[1] * width, width, None, taken)
        return Region(start, start + type.rows * width, width, every, taken)

    # --- accesses ----------------------------------------------------------------------------

    def write(self, region: Region, who: Access, dtype: str, *, fenced: bool) -> None:
        """A write by `who`; `fenced`: through the async proxy, or where there is none."""
        last = region.of(self.last)
        late = who.clock.take(last[AGENT]) < last[EPOCH]
        if np.count_nonzero(late):
            other = int(last[PATH][late][0])
            self.report("write_race", who.path, other,
                        "writes where another write is not known to be done", who.part)  # fmt: skip
        for agent, log in enumerate(self.reads):
            if log is None or agent == who.part:
                continue
            seen = region.of(log)
            late = seen[0] > who.clock[agent]
            if np.count_nonzero(late):
                _, other, step, reader = (int(row[late][0]) for row in seen)
                if self.ran(reader, who.path, step) >= who.turn:
                    # The reader had come past this very op: it read before all had done it.
                    self.report("early_read", other, who.path, "reads before all of it is written",
                                reader)  # fmt: skip
                else:
                    self.report("overwritten_stage", who.path, other,
                                "overwrites what may still be read", who.part)  # fmt: skip
        if np.count_nonzero(region.of(self.barrier)):
            self.report("write_race", who.path, -1, "overwrites an mbarrier", who.part)
        if fenced:
            self._check_fence(region, last, who, "overwrites")
        region.of(self.before)[...] = last
        for row, value in (
            (AGENT, who.agent), (EPOCH, who.epoch), (PATH, who.path),
            (ISSUER, who.part), (ISSUED, int(who.clock[who.part])), (SEEN, 0),
            (TURN, who.turn),
        ):  # fmt: skip
            last[row] = value
        region.of(self.tag)[...] = _CODES[dtype]
        region.of(self.fenced)[...] = 0 if fenced else UNFENCED
        if not fenced:
            first, stop = self.unfenced
            self.unfenced = (min(first, region.start), max(stop, region.stop))
        for start, stop in [*self.whole]:
            if start < region.stop and region.start < stop:
                del self.whole[start, stop]
        if region.every is None and region.taken is None:
            self.whole[region.start, region.stop] = (who.agent, who.epoch, dtype, fenced)

    def read(self, region: Region, who: Access, dtype: str, *, through_async: bool) -> None:
        """A read by `who`, whose clock must know every byte's last write."""
        last = region.of(self.last)
        if not self._known(region, who, dtype):
            late = (who.clock.take(last[AGENT]) < last[EPOCH]) | (last[EPOCH] == 0)
            if np.count_nonzero(late):
                self._early(region, last, late, who)
                return  # a read of nothing is not a read to be kept safe
            if np.count_nonzero(region.of(self.tag) != _CODES[dtype]):
                self.report(
                    "punned_read",
                    who.path,
                    int(last[PATH].flat[0]),
                    f"reads {dtype} where another element type was written",
                    who.part,
                )
            if through_async:
                self._check_fence(region, last, who, "reads")
        log = self.reads[who.agent]
        if log is None:
            log = self.reads[who.agent] = np.zeros((4, self.last.shape[1]), np.int32)
        place = region.of(log)
        for row, value in enumerate((who.epoch, who.path, who.step, who.part)):
            place[row] = value
        last[SEEN] |= 1 << (who.part % 31)

    def _known(self, region: Region, who: Access, dtype: str) -> bool:
        """Whether one write holds all that is read, and is known to be done: then no byte of it
        need be looked at."""
        for (start, stop), (agent, epoch, kind, fenced) in self.whole.items():
            if start <= region.start and region.stop <= stop:
                return fenced and kind == dtype and 0 < epoch <= who.clock[agent]
        return False

    def _check_fence(self, region: Region, last: np.ndarray, who: Access, does: str) -> None:
        if region.stop <= self.unfenced[0] or region.start >= self.unfenced[1]:
            return
        raw = who.clock.take(last[ISSUER]) < region.of(self.fenced)
        if np.count_nonzero(raw):
            self.report("missing_proxy_fence", who.path, int(last[PATH][raw][0]),
                        f"the async proxy {does} what threads wrote without fence_async and then a "
                        "barrier", who.part)  # fmt: skip

    def _early(self, region: Region, last: np.ndarray, late: np.ndarray, who: Access) -> None:
        agent, epoch, path, issuer, issued, _, turn = (int(row[late][0]) for row in last)
        if epoch == 0:
            if not self.explain(who.part, who.path, -1, 0):
                self.report("early_read", who.path, -1, "reads what nothing has written", who.part)
            return
        before = region.of(self.before)
        old_agent, old_epoch, _, _, _, seen, _ = (int(row[late][0]) for row in before)
        had_old = old_epoch > 0 and who.clock[old_agent] >= old_epoch
        done = self.ran(who.part, path, who.step)
        if done:  # both execute the same code: whoever is behind tells which came too soon
            too_soon = done < turn
        else:
            knows_issue = who.clock[issuer] >= issued
            too_soon = not knows_issue and not seen >> (who.part % 31) & 1
        if had_old and too_soon:
            self.report("overwritten_stage", path, who.path,
                        "overwrites what may still be read", issuer)  # fmt: skip
        elif not self.explain(who.part, who.path, agent, epoch):
            self.report("early_read", who.path, path,
                        "reads what has not landed, or is not known to have", who.part)  # fmt: skip

    def claim_barrier(self, offset: int, who: Access, path: int) -> None:
        """The granule that holds an mbarrier; tiles written over it are a finding."""
        self.barrier[offset // GRANULE] = True
        if self.last[EPOCH, offset // GRANULE]:
            other = int(self.last[PATH, offset // GRANULE])
            self.report("write_race", path, other, "sets an mbarrier up inside a tile", who.part)

    def fence(self, part: int, agents: tuple[int, ...], epoch: int) -> None:
        """The writes of these agents are in order for the async proxy, from `epoch` on."""
        mine = np.isin(self.last[AGENT], agents) & (self.fenced == UNFENCED)
        self.fenced[mine] = epoch
