"""What an observation saw, as arrays: a row for each time that a thread came by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.ptx.observe import Observer

Array = np.ndarray[Any, Any]
THREAD_BITS = 40  # a thread's number in the grid; above it the launch's


@dataclass(frozen=True, slots=True)
class Track:
    """One observation.

    Args:
        kind: of `observe.cuh`.
        threads: [visits], with the launch in the high bits.
        visit: [visits], how often the thread came by before.
        bits: [visits, words]; `known` is false where the two worlds differ.
        words: which of the variable's words these are.
    """

    kind: int
    threads: Array
    visit: Array
    bits: Array
    known: Array
    words: tuple[int, ...]

    @property
    def floats(self) -> Array:
        """[visits, words] in float64; nan where nothing is known."""
        values = self.bits.view(np.float32).astype(np.float64)
        return np.where(self.known, values, np.nan)

    @property
    def numbers(self) -> Array:
        """[visits]: a whole number, as its kind says; for a float its value."""
        word = self.bits[:, 0]
        if self.kind == 4:
            whole = word.astype(np.uint64) | self.bits[:, 1].astype(np.uint64) << np.uint64(32)
            return whole.view(np.int64).astype(np.float64)
        if self.kind == 1:
            return self.floats[:, 0]
        if self.kind == 5:
            return np.ascontiguousarray(self.bits).view(np.float64)[:, 0]
        return (word.view(np.int32) if self.kind == 2 else word).astype(np.float64)

    @property
    def key(self) -> Array:
        """[visits]: thread and visit as one number."""
        return self.threads << 20 | self.visit


def tracks(observer: Observer) -> dict[int, Track]:
    """The observations by number; one that was not executed is not there.

    Of one that several launches execute the words are those of all.
    """
    words: dict[int, dict[int, list[tuple[Array, Array, Array, int]]]] = {}
    for (launch, place, word), events in sorted(observer.seen.items()):
        if not events.threads:
            continue
        threads = np.concatenate(events.threads) + (launch << THREAD_BITS)
        row = (threads, np.concatenate(events.bits), np.concatenate(events.known), events.kind)
        words.setdefault(place, {}).setdefault(word, []).append(row)
    out: dict[int, Track] = {}
    for place, columns in words.items():
        joined = [tuple(np.concatenate([r[k] for r in rows]) for k in range(3))
                  for _, rows in sorted(columns.items())]  # fmt: skip
        threads = joined[0][0]
        if any(not np.array_equal(threads, other[0]) for other in joined[1:]):
            continue
        out[place] = Track(
            next(iter(columns.values()))[0][3], threads, counted(threads),
            np.stack([c[1].astype(np.uint32) for c in joined], axis=1),
            np.stack([c[2] for c in joined], axis=1), tuple(sorted(columns)),
        )  # fmt: skip
    return out


def counted(threads: Array) -> Array:
    """For each entry, how many before it are the same."""
    order = np.argsort(threads, kind="stable")
    ranked = threads[order]
    new = np.ones(len(ranked), np.bool_)
    new[1:] = ranked[1:] != ranked[:-1]
    starts = np.flatnonzero(new)
    position = np.arange(len(ranked))
    out = np.empty(len(ranked), np.int64)
    out[order] = position - np.repeat(starts, np.diff([*starts, len(ranked)]))
    return out
