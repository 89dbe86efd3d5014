"""Shared memory of one block, with the order of everything that touches it.

Every access carries a vector clock (FastTrack, Flanagan and Freund 2009): an access that no chain
of barriers orders after the one before it is a finding, in whatever interleaving it was met. The
unit is a granule of 16 bytes. Each agent has an epoch counter: the parts themselves, the copies
that a part started (an epoch per commit group), its bulk stores, each unit's matrix engine (an
epoch per group) and each mbarrier's bulk loads (an epoch per phase). Waiting for something is
learning its epoch, so "not landed yet" and "not ordered" are one check.

Elements are kept row by row, and the hardware keeps them swizzled: what happens to a tile is noted
at the granules of the 128-byte lines in which it really lies, each with a code of the element type
and of the element's place in both, so that a tile read as one of another shape is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from engine.cuir.types import DTYPES, SharedType

GRANULE = 16
LINE = 8  # granules that a swizzle permutes: 128 bytes
SLOT = 2  # bytes per element slot of the data array: the smallest element kept in shared memory
# The code of a granule: the element type, the place row by row, the swizzle.
_TYPE_AT, _PLACE_AT = 28, 4
_TYPES = {name: code << _TYPE_AT for code, name in enumerate(DTYPES, start=1)}
_PLACES = (1 << _TYPE_AT) - (1 << _PLACE_AT)  # all bits set: no part of a tile

# Rows of the table of last writes.
AGENT, EPOCH, PATH, ISSUER, ISSUED, SEEN, TURN = range(7)

UNFENCED = np.iinfo(np.int32).max

Clock = np.ndarray

# Below, `take` and `count_nonzero` are for speed: [] and any() take twice as long on a tile.


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Granules start..stop, or those that `pick` takes of them once they have this `shape`.

    `codes`: what each of them holds once a tile is written there; None: no part of a tile.
    """

    start: int
    stop: int
    shape: tuple[int, ...] | None = None
    pick: Any = ()
    codes: np.ndarray | None = None

    def of(self, array: np.ndarray) -> np.ndarray:
        part = array[..., self.start : self.stop]
        if self.shape is None:
            return part
        found: np.ndarray = part.reshape(array.shape[:-1] + self.shape)[self.pick]
        return found


@lru_cache(maxsize=1024)
def _region(
    type: SharedType, offset: int, rows: tuple[int, int] | None, every: tuple[int, int] | None,
    panels: bool,
) -> Region:  # fmt: skip
    size = DTYPES[type.dtype].size
    pitch = (type.pitch or type.cols) * size
    start, code = offset // GRANULE, _TYPES[type.dtype]
    if pitch % GRANULE:
        # Rows share granules: the whole tile is the smallest safe answer.
        stop = -(-(offset + type.rows * pitch) // GRANULE)
        return Region(
            start, stop, codes=code + (np.arange(start, stop, dtype=np.int32) << _PLACE_AT)
        )
    width = pitch // GRANULE
    taken = -(-type.cols * size // GRANULE)
    step = 1 if every is None else every[1]
    first = rows[0] if rows else every[0] if every else 0
    last = rows[1] if rows else type.rows
    # A code says where the element stands row by row, and how far from there in its line it lies.
    row, unit = np.indices((type.rows, width), np.int32)
    place = start + row * width + unit
    codes = code + (place << _PLACE_AT) + (unit ^ row % LINE) - unit + LINE
    shape: tuple[int, ...] = (type.rows, width)
    pick = [slice(first, last, step), slice(taken)]
    if panels and width > LINE and width % LINE == 0:
        # All rows of the first 128 bytes, then all rows of the next.
        lines = codes.reshape(type.rows, -1, LINE).swapaxes(0, 1)
        shape = lines.shape if step > 1 else (len(lines), type.rows * LINE)
        codes = lines.reshape(shape)
        pick = [pick[0], slice(None)] if step > 1 else [slice(first * LINE, last * LINE)]
        pick.insert(0, slice(-(-taken // LINE)))
    stop = start + type.rows * width
    picked = np.ascontiguousarray(codes[tuple(pick)])
    if picked.size == codes.size:
        return Region(start, stop, codes=picked.ravel())
    if step == 1 and shape == (type.rows, taken):
        return Region(start + first * width, start + last * width, codes=picked.ravel())
    return Region(start, stop, shape, (..., *pick), picked)


class Access(NamedTuple):
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
    """The bytes of one block and who last touched them. Sizes in bytes.

    `panels`: tiles lie as the async proxy takes them, the rows of each 128 bytes together; else row
    by row. Within its 128 bytes granule c of row r lies at c ^ (r % 8) in both.
    """

    def __init__(
        self, size: int, agents: int, dtype: torch.dtype, report: Report, *, panels: bool = False
    ) -> None:
        granules = -(-size // GRANULE)
        self.size = size
        self.panels = panels
        self.report = report
        self.data = torch.full((granules * GRANULE // SLOT,), float("nan"), dtype=dtype)
        # By the type object, which it keeps alive, and the offset: to hash a type takes longer.
        self.tiles: dict[tuple[int, int], tuple[SharedType, torch.Tensor]] = {}
        self.last = np.zeros((7, granules), np.int32)
        self.before = np.zeros((7, granules), np.int32)
        self.reads: list[np.ndarray | None] = [None] * agents
        self.newest = [0] * agents  # the newest epoch in which each agent has read
        self.codes = np.zeros(granules, np.int32)
        self.granules = np.arange(granules)
        self.lies = self.granules.copy()  # where what is kept at each place was written last
        self.fenced = np.zeros(granules, np.int32)  # the writer's epoch at its fence
        self.unfenced = (granules, 0)  # the granules that threads wrote all lie between these
        # Granules that one write has last written, all of them: its agent, epoch and fence.
        self.whole: dict[tuple[int, int], tuple[int, int, Region, bool]] = {}
        self.barrier: set[int] = set()  # the granules that hold mbarriers
        # How often a part had executed an op by one of its steps.
        self.ran: Callable[[int, int, int], int] = lambda part, path, step: 0
        self.explain: Callable[[int, int, int, int], bool] = lambda *where: False

    # --- places ------------------------------------------------------------------------------

    def tile(self, type: SharedType, offset: int) -> torch.Tensor:
        """The tile's elements as a rows x cols view of the data."""
        kept = self.tiles.get((id(type), offset))
        if kept is None:
            step = DTYPES[type.dtype].size // SLOT
            shape, strides = (type.rows, type.cols), ((type.pitch or type.cols) * step, step)
            view = torch.as_strided(self.data, shape, strides, offset // SLOT)
            kept = self.tiles[id(type), offset] = type, view
        return kept[1]

    def region(
        self, type: SharedType, offset: int, rows: tuple[int, int] | None = None,
        every: tuple[int, int] | None = None,
    ) -> Region:  # fmt: skip
        """Granules of the tile: all of it, rows [a, b), or each `every[1]`-th row."""
        return _region(type, offset, rows, every, self.panels)

    # --- accesses ----------------------------------------------------------------------------

    def write(self, region: Region, who: Access, dtype: str, *, fenced: bool) -> None:
        """A write by `who`; `fenced`: through the async proxy, or where there is none."""
        last = region.of(self.last)
        written = self._written(region)
        known = written is not None and written[1] <= who.clock[written[0]]
        if not known and np.count_nonzero(late := who.clock.take(last[AGENT]) < last[EPOCH]):
            other = int(last[PATH][late][0])
            self.report("write_race", who.path, other,
                        "writes where another write is not known to be done", who.part)  # fmt: skip
        for agent, log in enumerate(self.reads):
            if log is None or agent == who.part or self.newest[agent] <= who.clock[agent]:
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
        if any(region.start <= place < region.stop for place in self.barrier) and np.count_nonzero(
            np.isin(region.of(self.granules), [*self.barrier])
        ):
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
        codes = region.of(self.codes)
        if region.codes is None:
            codes[...] = _TYPES[dtype] | _PLACES
        elif not self.panels:
            codes[...] = region.codes
        elif np.count_nonzero(codes != region.codes):
            self._lay(region, codes, region.codes)
        region.of(self.fenced)[...] = 0 if fenced else UNFENCED
        if not fenced:
            first, stop = self.unfenced
            self.unfenced = (min(first, region.start), max(stop, region.stop))
        for start, stop in [*self.whole]:
            if start < region.stop and region.start < stop:
                del self.whole[start, stop]
        if region.shape is None:
            self.whole[region.start, region.stop] = (who.agent, who.epoch, region, fenced)

    def read(self, region: Region, who: Access, dtype: str, *, through_async: bool) -> None:
        """A read by `who`, whose clock must know every byte's last write."""
        last = region.of(self.last)
        written = self._written(region)
        known = written is not None and written[3] and 0 < written[1] <= who.clock[written[0]]
        if not known:
            late = (who.clock.take(last[AGENT]) < last[EPOCH]) | (last[EPOCH] == 0)
            if np.count_nonzero(late):
                self._early(region, last, late, who)
                return  # a read of nothing is not a read to be kept safe
        if not known or written is None or written[2] is not region:
            self._check_codes(region, last, who, dtype)
        if through_async and not known:
            self._check_fence(region, last, who, "reads")
        self.newest[who.agent] = max(self.newest[who.agent], who.epoch)
        log = self.reads[who.agent]
        if log is None:
            log = self.reads[who.agent] = np.zeros((4, self.last.shape[1]), np.int32)
        place = region.of(log)
        for row, value in enumerate((who.epoch, who.path, who.step, who.part)):
            place[row] = value
        last[SEEN] |= 1 << (who.part % 31)

    def _written(self, region: Region) -> tuple[int, int, Region, bool] | None:
        """The one write that has last written all of a region: its agent, its epoch, what else it
        wrote, and whether that came through the async proxy. What is known of it need not be
        looked for granule by granule."""
        for (start, stop), written in self.whole.items():
            if start <= region.start and region.stop <= stop:
                return written
        return None

    def _check_codes(self, region: Region, last: np.ndarray, who: Access, dtype: str) -> None:
        found = region.of(self.codes)
        other = found != (_TYPES[dtype] | _PLACES if region.codes is None else region.codes)
        if np.count_nonzero(other):
            kind = int(found[other][0]) & -1 << _TYPE_AT
            what = (
                "what was written as a tile of another shape or start: its elements lie elsewhere"
                if kind in (0, _TYPES[dtype])
                else f"{dtype} where another element type was written"
            )
            self.report(
                "punned_read", who.path, int(last[PATH][other][0]), f"reads {what}", who.part
            )

    def _lay(self, region: Region, codes: np.ndarray, made: np.ndarray) -> None:
        """Codes of a tile that comes where something else was. What the hardware still holds of
        that in other granules is not kept here any more: reading it is a finding."""
        places = (made & _PLACES) >> _PLACE_AT
        now, before = region.of(self.granules), self.lies[places]
        stale = (before != now) & (self.codes[before] & _PLACES == made & _PLACES)
        self.codes[before[stale]] = 0
        self.lies[places] = now
        codes[...] = made

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
        self.barrier.add(offset // GRANULE)
        if self.last[EPOCH, offset // GRANULE]:
            other = int(self.last[PATH, offset // GRANULE])
            self.report("write_race", path, other, "sets an mbarrier up inside a tile", who.part)

    def fence(self, part: int, agents: tuple[int, ...], epoch: int) -> None:
        """The writes of these agents are in order for the async proxy, from `epoch` on."""
        mine = np.isin(self.last[AGENT], agents) & (self.fenced == UNFENCED)
        self.fenced[mine] = epoch
