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

    `at` indexes an array of shape [2, all threads] and is a slice where the threads are neighbours,
    since a slice copies nothing.
    """

    __slots__ = ("__dict__", "at", "bases", "parties", "threads")

    def __init__(self, threads: Ints) -> None:
        self.threads = threads
        first, last = int(threads[0]), int(threads[-1])
        near = last - first + 1 == len(threads)
        self.at: Any = (slice(None), slice(first, last + 1) if near else threads)
        # What is known of these lanes by who asks for it, for as long as it holds.
        self.parties: dict[Any, Any] = {}
        self.bases: dict[tuple[int, int], Ints] = {}

    def __len__(self) -> int:
        return len(self.threads)

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
