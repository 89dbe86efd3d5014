"""Lengths at which a tile schedule is held to its mask: every residue, both sides of every edge.

A tile becomes full, or holds its first kept pair, where a row and a key meet a bound of the mask:
at a length that follows from the tile, the rows of a part of a block, and a number that stands in
the mask or in the schedule. All of these are tried, the plainest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import lcm

NEAR = 2  # how far beside a number an edge may be written
MAX_NUMBERS = 8
MAX_LENGTH = 131_072
MAX_BOTH = 8192  # rows and keys of one size


@dataclass(frozen=True, slots=True)
class Extent:
    """Query rows of a block and of one of its parts (a warpgroup), and keys of a tile."""

    rows: int
    part: int
    keys: int


def sweep(at: Extent, numbers: Sequence[int]) -> list[tuple[int, int]]:
    """(Nq, Nk), what matters most first; `numbers` are those of the mask, then the schedule's."""
    found: list[int] = []
    for n in numbers:
        if 1 < n <= MAX_LENGTH and all(abs(n - other) >= NEAR for other in found):
            found.append(n)
    found = found[:MAX_NUMBERS]
    reaches = sorted((n for n in found if n <= MAX_BOTH // 2), reverse=True)
    ways = chain(
        _small(at, found),
        _beside(at, found),
        _residues(at),
        _beyond(at, reaches[:1], found),
        _squares(at, found),
        _beyond(at, reaches[1:], found),
    )
    return [pair for pair in dict.fromkeys(ways) if min(pair) >= 0 and _kept(*pair)]


def _kept(nq: int, nk: int) -> bool:
    short, long = sorted((nq, nk))
    return long <= 2 * MAX_LENGTH and short <= MAX_BOTH and nq > 0


def _around(*numbers: int) -> Iterable[int]:
    return dict.fromkeys(n + e for n in numbers for e in range(-NEAR, NEAR + 1))


def _small(at: Extent, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Lengths about a part, a block, a tile and each number."""
    rows = dict.fromkeys(
        (1, 2, *_around(at.part), *_around(at.rows), 2 * at.rows + 1, at.rows + at.part + 1)
    )
    for nk in dict.fromkeys((0, 1, *_around(at.keys), *_around(2 * at.keys))):
        yield from ((nq, nk) for nq in rows)
    for number in numbers:
        for length in _around(number):
            for other in (1, at.rows + 1, at.keys + 1, length):
                yield from ((other, length), (length, other))


def _residues(at: Extent) -> Iterator[tuple[int, int]]:
    """Every residue of Nk - Nq, with blocks that are whole and one that has one row."""
    wide = max(at.keys, at.part)
    for nq in dict.fromkeys((at.rows + 1, at.part + 1, 1, 2 * at.rows + 1)):
        yield from ((nq, nq + d) for d in range(-wide - NEAR, 2 * at.keys + NEAR))


def _beside(at: Extent, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Every residue from where Nk - Nq, Nq - Nk, is a number of the text on."""
    wide = max(at.keys, at.part) + NEAR
    for number in numbers:
        for d in range(number - NEAR, number + wide):
            yield from ((nq, nq + d) for nq in (at.rows + 1, 1))
            yield from ((nk + d, nk) for nk in (at.keys + 1, 1))


def _squares(at: Extent, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """As many rows as keys, or nearly: all that some specs allow, and the many blocks that meet a
    tile's edges in every way."""
    several = lcm(at.rows, at.keys)
    for n in _around(several + 1, *(m * n for n in numbers if n <= MAX_BOTH for m in (1, 2))):
        yield n, n
    for n in range(1, 2 * at.rows + max(at.keys, at.part)):
        yield n, n
    for number in numbers:
        for more in (at.part, at.keys, at.rows):
            yield from ((n, n) for n in _around(number + more, number + 2 * more))


def _beyond(
    at: Extent, reaches: Sequence[int], numbers: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Every residue of Nk - Nq, near none and near each number, where both lengths are beyond
    another number."""
    wide = max(at.keys, at.part) + NEAR
    for reach in reaches:
        long = reach + at.rows + 2 * at.keys + 1
        yield from ((long - d, long) for d in range(-wide, wide))
        for number in numbers:
            if number <= MAX_BOTH // 2:
                for d in range(number - NEAR, number + wide):
                    yield from ((long, long + d), (long + d, long))
