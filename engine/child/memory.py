"""How much memory a process and its children hold, and how much they may."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def default_memory_limit() -> int:
    """Bytes of resident memory a child may use: three quarters of the machine's, or of what the
    container that we run in is given."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    total = pages * size
    for file in _CGROUP_LIMITS:
        try:
            total = min(total, int(file.read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return total * 3 // 4


def resident(pid: int) -> int:
    """Resident bytes of a process and of its children; 0 where /proc does not say.

    RLIMIT_AS would do without watching, and would break CUDA, which maps address space freely.
    """
    total, pending, seen = 0, [pid], set[int]()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        try:
            with open(f"/proc/{current}/statm") as file:
                total += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            with open(f"/proc/{current}/task/{current}/children") as file:
                pending += map(int, file.read().split())
        except (OSError, IndexError, ValueError):
            continue
    return total
