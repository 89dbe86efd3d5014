"""Which rows a block of threads has: the first as the source may write it, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.foreign.probe.fit import Column, Sum, solve

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """What one run saw of rows: of each visit its block's number, and the least and the largest row
    of its elements."""

    number: Array
    low: Array
    high: Array


def first_row(runs: Sequence[Block], columns: Sequence[Column]) -> tuple[Sum, int] | None:
    """The first row of a visit's block as a sum of what all threads of the block have alike, and
    how many rows a block has; None where blocks differ in that, or nothing in scope says it.

    Args:
        columns: their values at the visits of all runs, one run after the other.
    """
    firsts: list[Array] = []
    counts: set[int] = set()
    blocks: list[Array] = []
    before = 0
    for run in runs:
        numbers, inverse = np.unique(run.number, return_inverse=True)
        low = np.full(len(numbers), np.iinfo(np.int64).max)
        high = np.full(len(numbers), -1)
        np.minimum.at(low, inverse, run.low)
        np.maximum.at(high, inverse, run.high)
        counts |= set(map(int, high - low + 1))
        firsts.append(low[inverse])
        blocks.append(inverse + before)
        before += len(numbers)
    if len(counts) != 1:
        return None
    block, target = np.concatenate(blocks), np.concatenate(firsts).astype(np.float64)
    one = np.unique(block, return_index=True)[1]  # a visit of each block
    # All visits of a block have the value of that one.
    alike = [c for c in columns if c.bit < 0 and (c.values == c.values[one][block]).all()]
    found = solve(target, alike)
    return None if found is None else (found, counts.pop())
