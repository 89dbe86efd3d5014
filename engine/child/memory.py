"""How much memory a process and what it started hold, and how much they may."""

from __future__ import annotations

import os
from pathlib import Path

from engine.child.family import descendants

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


def resident(pid: int, limit: int = 0) -> int:
    """Resident bytes of a process and of all that it started; 0 where /proc does not say.

    What they share counts once, where the kernel tells; within `limit`, where the plain sum is, it
    may count for each: to ask takes the kernel a walk through all their pages. RLIMIT_AS would do
    without watching, and would break CUDA, which maps address space freely.
    """
    members = (pid, *descendants(pid))
    plain = sum(map(_alone, members))
    return plain if plain <= limit or len(members) == 1 else sum(map(_share, members))


def _alone(pid: int) -> int:
    words = _words(f"/proc/{pid}/statm")
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0


def _share(pid: int) -> int:
    """The process's proportional share of memory, else all that it has resident."""
    words = _words(f"/proc/{pid}/smaps_rollup")
    if "Pss:" in words[:-1]:
        return int(words[words.index("Pss:") + 1]) * 1024
    return _alone(pid)


def _words(file: str) -> list[str]:
    try:
        with open(file) as opened:
            return opened.read().split()
    except OSError:  # it has ended, or /proc is not there
        return []
