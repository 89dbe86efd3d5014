"""Puts other scores in the place of the kernel's own, and looks whether its output is theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.foreign.compile import Compiled
from engine.foreign.coverage import Held
from engine.foreign.run import Bench, Sizes, attention, random_inputs
from engine.foreign.tracks import THREAD_BITS, Track
from engine.ptx.observe import Observer

Array = np.ndarray[Any, Any]
# Added to every third score: a weight that was taken by an older maximum overflows.
_HIGH = 200.0


def judge(
    bench: Bench, compiled: Compiled, sizes: Sizes, parts: Sequence[tuple[int, Held, Track]],
    keep: Array,
) -> str:  # fmt: skip
    """Why places are no hook, "" where they are one.

    Args:
        parts: each place's observation number, and what it held in the run with codes.
        keep: which keys each query looks at.
    """
    shape = tuple(sizes[n] for n in ("B", "Hq", "Nq", "Nk"))
    draw = np.random.default_rng(1)
    grid = np.add.outer(np.arange(shape[2]), np.arange(shape[3]))
    other = draw.standard_normal(shape) + _HIGH * (grid % 3 == 0)
    scale = bench.scale(sizes)
    put = _Put({number: _Table.of(one, track) for number, one, track in parts},
               (other * parts[0][1].factor / scale).astype(np.float32).reshape(-1))  # fmt: skip
    q, k, v = random_inputs(sizes, 2)
    observer = Observer(change=put)
    put.observer = observer
    outputs, _ = bench.run(compiled, sizes, q, k, v, observer)
    expected = attention(other, keep, v)
    error = np.abs(outputs["o"] - expected).max()
    bound = 3e-2 if bench.half else 1e-3
    if not error <= bound:
        return (
            f"holds every score, but other scores put there are not what the output is made of "
            f"(error {error:.2g}): it is read elsewhere, or was read before"
        )
    return ""


@dataclass(frozen=True, slots=True)
class _Table:
    """Which pair each thread's element is at each visit: [threads, visits, words], -1 for none."""

    first: int  # the launch's first thread
    pairs: Array
    words: dict[int, int]

    @staticmethod
    def of(one: Held, track: Track) -> _Table:
        first = int(track.threads.min()) >> THREAD_BITS << THREAD_BITS
        threads = track.threads - first
        pairs = np.full((int(threads.max()) + 1, int(track.visit.max()) + 1, len(one.words)), -1)
        pairs[threads, track.visit] = one.pairs
        return _Table(first, pairs, {w: k for k, w in enumerate(one.words)})


@dataclass(slots=True)
class _Put:
    """Writes scores where tables say that they stand."""

    tables: dict[int, _Table]
    scores: Array
    observer: Observer | None = None
    visits: dict[tuple[int, int], Array] = field(default_factory=dict)

    def __call__(self, place: int, word: int, threads: Array, bits: Array) -> Array:
        table = self.tables.get(place)
        launch = self.observer.launch << THREAD_BITS if self.observer else 0
        if table is None or word not in table.words or launch != table.first:
            return bits
        done = self.visits.setdefault((place, word), np.zeros(len(table.pairs), np.int64))
        visit = done[threads]
        done[threads] += 1
        pair = table.pairs[threads, np.minimum(visit, table.pairs.shape[1] - 1), table.words[word]]
        pair = np.where(visit < table.pairs.shape[1], pair, -1)
        new = self.scores[pair].view(np.uint32)
        return np.where(pair >= 0, new, bits.astype(np.uint32)).astype(bits.dtype)
