"""Puts other scores in the place of the kernel's own, and looks whether its output is theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.errors import InputError
from engine.foreign.cases import complete
from engine.foreign.compile import Compiled
from engine.foreign.probe.coverage import Held
from engine.foreign.probe.meanings import End, ended
from engine.foreign.probe.run import Bench, Sizes, attention, random_inputs, scores
from engine.foreign.probe.tracks import Track, tracks
from engine.ptx.isa.observe import THREAD_BITS, Observer

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
    if not error <= _bound(bench):
        return (
            f"holds every score, but other scores put there are not what the output is made of "
            f"(error {error:.2g}): it is read elsewhere, or was read before"
        )
    return ""


def infinite(bench: Bench, compiled: Compiled, places: Sequence[Held], scale: float) -> bool:
    """Whether nothing but scores and -inf stands at places in the kernel's own cases, whose lengths
    may end inside of a tile: no large finite number, which what is added to scores may outbid.

    Args:
        scale: the softmax's, at which the places were found.
    """
    for case in bench.asked.sizes:
        sizes = complete(bench.entry, case)
        q, k, v = random_inputs(sizes, 2)
        observer = Observer()
        try:
            bench.run(compiled, sizes, q, k, v, observer)
        except InputError:
            return False
        seen, own = tracks(observer), scores(q, k)
        for one in places:
            if one.look in seen:
                limit = 1.01 * np.abs(own).max() * abs(one.factor_at(bench.scale(sizes), scale))
                values = seen[one.look].floats_of(one.words)
                if not (np.isneginf(values) | (np.abs(values) <= limit)).all():
                    return False
    return True


def halves(bench: Bench, compiled: Compiled, sizes: Sizes, sums: End, keep: Array) -> str:
    """Why a variable is not the sum that O is divided by, "" where it is: twice of it was written
    and O became half."""
    q, k, v = random_inputs(sizes, 2)

    def twice(place: int, word: int, threads: Array, bits: Array) -> Array:
        if place != sums.look:
            return bits
        return (bits.astype(np.uint32).view(np.float32) * np.float32(2)).view(np.uint32)

    outputs, _ = bench.run(compiled, sizes, q, k, v, Observer(change=twice))
    expected = attention(scores(q, k) * bench.scale(sizes), keep, v) / 2
    error = np.abs(outputs["o"] - expected).max()
    return "" if error <= _bound(bench) else f"twice of it there does not halve O ({error:.2g})"


def enters(
    bench: Bench, compiled: Compiled, sizes: Sizes, most: End, sums: End, keep: Array
) -> str:
    """Why a variable is not the maximum that weights are taken by, "" where it is: a larger one was
    written, O stayed, and the rows' sums were of the smaller weights."""
    q, k, v = random_inputs(sizes, 2)
    own = scores(q, k) * bench.scale(sizes)
    top = float(own.max()) + 2

    def raised(place: int, word: int, threads: Array, bits: Array) -> Array:
        if place != most.look:
            return bits
        now = np.maximum(bits.astype(np.uint32).view(np.float32), np.float32(top * most.times))
        return np.asarray(now).view(np.uint32)

    observer = Observer(change=raised)
    outputs, _ = bench.run(compiled, sizes, q, k, v, observer)
    error = np.abs(outputs["o"] - attention(own, keep, v)).max()
    if not error <= _bound(bench):
        return f"a larger one there changes O ({error:.2g}): it was read before, or is kept besides"
    weights = np.where(keep, np.exp(own - top), 0).sum(-1)
    if ended(tracks(observer)[sums.look], weights) < 1:
        return "a larger one there does not change the row's sum: no weight is taken by it"
    return ""


def _bound(bench: Bench) -> float:
    return 3e-2 if bench.half else 1e-3


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
