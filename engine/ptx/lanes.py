"""Which threads execute an instruction together: a selection out of all threads of a batch."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

WARP = 32

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


class Lanes:
    """Threads by number, rising. Thread `t` of block `b` of a batch is `b * threads + t`.

    `of` reads and `put` writes their part of an array of shape [2, all threads]. `near`: the
    threads are neighbours, so that a slice, which copies nothing, does it.
    """

    __slots__ = ("__dict__", "at", "bases", "near", "parties", "threads")

    def __init__(self, threads: Ints) -> None:
        self.threads = threads
        first, last = int(threads[0]), int(threads[-1])
        self.near = last - first + 1 == len(threads)
        self.at: Any = (slice(None), slice(first, last + 1) if self.near else threads)
        # What is known of these lanes by who asks for it, for as long as it holds.
        self.parties: dict[Any, Any] = {}
        self.bases: dict[tuple[int, int], Ints] = {}

    def __len__(self) -> int:
        return len(self.threads)

    def of(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """[2, all threads] -> [2, lanes]; `take` needs a sixth of the time of an index."""
        return array[self.at] if self.near else array.take(self.threads, 1)

    def put(self, array: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> None:
        """Writes [2, lanes]: one world after the other, in a third of the time of both at once."""
        if self.near:
            array[self.at] = values
        else:
            array[0][self.threads], array[1][self.threads] = values

    @cached_property
    def warps(self) -> Ints:
        """The warps that have a thread here, rising."""
        return np.unique(self.threads // WARP)

    @cached_property
    def warp_of(self) -> Ints:
        """The warp of each thread."""
        return self.threads // WARP

    @cached_property
    def whole(self) -> bool:
        """Whether each warp that has a thread here has all 32."""
        return len(self.threads) == WARP * len(self.warps)

    def base(self, threads: int, size: int) -> Ints:
        """Where the memory of each lane's block begins, with so many bytes for each `threads`."""
        found = self.bases.get((threads, size))
        if found is None:
            found = self.bases[threads, size] = self.threads // threads * size
        return found

    def where(self, mask: Bools) -> Lanes | None:
        """Those for which `mask` holds; None where there is none."""
        if mask.all():
            return self
        threads = self.threads[mask]
        return Lanes(threads) if len(threads) else None


def together(groups: list[Lanes]) -> Lanes:
    """The threads of all groups, which share none."""
    if len(groups) == 1:
        return groups[0]
    return Lanes(np.sort(np.concatenate([g.threads for g in groups])))
