"""What an observation saw, as arrays: a row for each time that a thread came by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from engine.ptx.isa.observe import THREAD_BITS, Events, Observer
from engine.ptx.memory import LOCAL

Array = np.ndarray[Any, Any]


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

    def floats_of(self, words: Sequence[int]) -> Array:
        """[visits, words] of some of the words."""
        return np.asarray(self.floats[:, np.searchsorted(self.words, words)])

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
    def of_own_memory(self) -> bool:
        """Whether a word is the upper half of an address of local memory."""
        return bool((self.bits == LOCAL >> 32).all(0).any())

    @property
    def key(self) -> Array:
        """[visits]: thread and visit as one number."""
        return self.threads << 20 | self.visit


def tracks(observer: Observer) -> dict[int, Track]:
    """The observations by number; one that was not executed is not there.

    Of one that several launches execute the words are those of all.
    """
    seen: dict[int, dict[int, list[tuple[int, Events]]]] = {}
    for (launch, place, word), events in sorted(observer.seen.items()):
        if events.threads:
            seen.setdefault(place, {}).setdefault(word, []).append((launch, events))
    visits: dict[tuple[int, ...], tuple[Array, Array]] = {}

    def visits_of(rows: Sequence[tuple[int, Events]]) -> tuple[Array, Array]:
        """The threads, and how often each came by; most observations share the arrays of these."""
        key = tuple(x for launch, e in rows for x in (launch, *map(id, e.threads)))
        if key not in visits:
            threads = np.concatenate([t + (n << THREAD_BITS) for n, e in rows for t in e.threads])
            visits[key] = threads, counted(threads)
        return visits[key]

    out: dict[int, Track] = {}
    for place, columns in seen.items():
        rows = [columns[word] for word in sorted(columns)]
        threads, visit = visits_of(rows[0])
        others = (visits_of(row)[0] for row in rows[1:])
        if any(o is not threads and not np.array_equal(threads, o) for o in others):
            continue
        bits, known = (
            np.stack([np.concatenate([x for _, e in row for x in part(e)]) for row in rows], axis=1)
            for part in (attrgetter("bits"), attrgetter("known"))
        )
        kind = next(iter(columns.values()))[0][1].kind
        out[place] = Track(kind, threads, visit, bits.astype(np.uint32), known,
                           tuple(sorted(columns)))  # fmt: skip
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
