"""Which observations hold scores, and which of them together hold each one once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


def worth(found: Sequence[Held], scale: float) -> list[Held]:
    """What is worth a closer look: of those that hold the same scores the first in the source, and
    the one after it; scaled ones first, and those with most scores."""
    classes: dict[tuple[float, bytes], list[Held]] = {}
    for h in found:
        classes.setdefault((h.factor, h.covered.tobytes()), []).append(h)
    ranked = sorted(
        classes.values(), key=lambda c: (c[0].factor != scale, -int(c[0].covered.sum()))
    )
    return [h for c in ranked for h in c[:_OF_A_CLASS]][:_MOST_PLACES]


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
    return {scale: "scale", 1.0: "1", scale * float(np.log2(np.e)): "scale * log2(e)",
            float(np.log2(np.e)): "log2(e)"}  # fmt: skip
