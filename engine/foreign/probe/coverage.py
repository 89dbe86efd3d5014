"""Which observations hold scores, and which of them together hold each one once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from engine.foreign.probe.codes import Codes
from engine.foreign.probe.tracks import Track

Array = np.ndarray[Any, Any]
_MOST_TOGETHER = 3  # places of one hook
_MOST_CLASSES = 12
_MOST_PLACES = 8
_OF_A_CLASS = 2
_LOG2E = float(np.log2(np.e))


@dataclass(frozen=True, slots=True)
class Held:
    """The scores that stand at one observation.

    Args:
        look: its number.
        factor: what multiplies q . k there.
        words: which of the variable's words hold scores.
        pairs: [visits, words]: the pair's number, -1 where none is.
        covered: [pairs], which are there.
        replicas: how many threads hold each.
    """

    look: int
    factor: float
    words: tuple[int, ...]
    pairs: Array
    covered: Array
    replicas: int

    def factor_at(self, scale: float, own: float) -> float:
        """The factor where the softmax's scale is another one than `own`, at which it was found."""
        return self.factor if self.factor in (1.0, _LOG2E) else self.factor / own * scale


def held(look: int, track: Track, codes: Codes, factors: Sequence[float]) -> Held | str:
    """The scores of an observation; else why it is no place of such, "" where nothing looked so."""
    if track.kind not in (0, 1) or track.bits.shape[1] > 256:
        return ""
    values = track.floats
    reason = ""
    for factor in factors:
        pairs, other = codes.pairs(values, factor)
        good = (pairs >= 0).any(0) & ~other.any(0)
        if not good.any():
            continue
        words = tuple(track.words[int(w)] for w in np.flatnonzero(good))
        mine = pairs[:, good]
        there = mine >= 0
        who = np.broadcast_to(track.threads[:, None], mine.shape)[there]
        which = mine[there]
        total = int(np.prod(codes.shape))
        each = np.unique(who * total + which, return_counts=True)[1]
        if each.max() > 1:
            reason = f"a thread holds a score {each.max()} times"
            continue
        counts = np.bincount(which, minlength=total)
        replicas = np.unique(counts[counts > 0])
        if len(replicas) != 1:
            reason = f"{replicas.min()} to {replicas.max()} threads hold a score"
            continue
        return Held(look, factor, words, mine, counts > 0, int(replicas[0]))
    return reason


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and keys whose scores a block has at a time."""

    rows: int
    keys: int

    @staticmethod
    def of(found: Mapping[int, Held], seen: Mapping[int, Track], shape: tuple[int, ...],
           blocks: Callable[[Track], Array]) -> Tile:  # fmt: skip
        """The largest that stands at an observation: as many keys as it goes on by in a row from
        visit to visit. What each row has once, as its LSE, says nothing of tiles; where no row has
        two visits the keys are those of a visit.

        Args:
            shape: B, Hq, Nq, Nk; `blocks`: the block of each visit of a track.
        """
        sides, alone = [], [(1, 1)]
        for number, one in found.items():
            track = seen[number]
            came = blocks(track) * (int(track.visit.max()) + 1) + track.visit
            at = np.unique(came, return_inverse=True)[1].reshape(-1)
            row, key = one.pairs // shape[3] % shape[2], one.pairs % shape[3]
            rows, step = _longest(at, row, one.pairs >= 0), _step(track, one.pairs, shape[3])
            if step:
                sides.append((rows, step))
            alone.append((rows, _longest(at, key, one.pairs >= 0)))
        sides = sides or alone
        return Tile(max(rows for rows, _ in sides), max(keys for _, keys in sides))

    @property
    def least(self) -> int:
        """Keys of which each loop has some: of those that a block's own rows end in, with a tile
        more, and of those before."""
        return self.rows + 3 * self.keys

    @property
    def whole(self) -> int:
        """Lengths of which multiples end where tiles do."""
        return math.lcm(self.rows, self.keys)


def _longest(group: Array, values: Array, there: Array) -> int:
    """How many numbers from the least to the largest of a group, where there are most."""
    low, high = np.full(group.max() + 1, 1 << 40), np.full(group.max() + 1, -1)
    np.minimum.at(low, group, np.where(there, values, 1 << 40).min(1))
    np.maximum.at(high, group, np.where(there, values, -1).max(1))
    return int((high - low).max()) + 1


def _step(track: Track, pairs: Array, keys: int) -> int:
    """By how many keys most scores are away from the one before of their thread, element and row; 0
    where none has one before."""
    order = np.argsort(track.key, kind="stable")
    who, before, after = track.threads[order], pairs[order][:-1], pairs[order][1:]
    both = (before >= 0) & (after >= 0) & (before // keys == after // keys)
    both &= (who[:-1] == who[1:])[:, None] & (before != after)
    steps, often = np.unique(np.abs(after - before)[both], return_counts=True)
    return int(steps[often.argmax()]) if len(steps) else 0


def worth(found: Sequence[Held], scale: float, needed: Array) -> list[Held]:
    """What is worth a closer look: of those that hold the same scores the first in the source, and
    where these are all that are needed the one after it; scaled ones first, and those with most
    scores."""
    classes: dict[tuple[float, bytes], list[Held]] = {}
    for h in found:
        classes.setdefault((h.factor, h.covered.tobytes()), []).append(h)
    ranked = sorted(
        classes.values(), key=lambda c: (c[0].factor != scale, -int(c[0].covered.sum()))
    )
    alone = [h for c in ranked
             for h in c[: 1 if (needed & ~c[0].covered).any() else _OF_A_CLASS]]  # fmt: skip
    return alone[:_MOST_PLACES]


def covers(found: Sequence[Held], needed: Array) -> Iterator[tuple[Held, ...]]:
    """Sets of observations that together hold each needed pair once, the fewest places first.

    Of places that hold the same pairs each is tried where one place is enough, and the first in
    the source where several are needed.
    """
    whole = [h for h in found if not (needed & ~h.covered).any()]
    for one in whole:
        yield (one,)
    classes: dict[tuple[float, bytes], Held] = {}
    for h in found:
        if h not in whole:
            classes.setdefault((h.factor, h.covered.tobytes()), h)
    parts = sorted(classes.values(), key=lambda h: -int(h.covered.sum()))[:_MOST_CLASSES]
    for size in range(2, _MOST_TOGETHER + 1):
        for some in combinations(parts, size):
            if len({h.factor for h in some}) > 1:
                continue
            count = sum(h.covered.astype(np.int8) for h in some)
            if int(np.max(count)) == 1 and not (needed & (count == 0)).any():
                yield tuple(sorted(some, key=lambda h: h.look))


def factors(scale: float) -> Mapping[float, str]:
    """What may multiply q . k, and how that is said."""
    return {scale: "scale", 1.0: "1", scale * _LOG2E: "scale * log2(e)", _LOG2E: "log2(e)"}
