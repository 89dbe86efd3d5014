"""All that a process has started, and an end to it: what leaves its session and its environment
behind stays a descendant, as long as its ancestor adopts orphans. And how much memory it holds."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 200  # of killing: each generation that was being born shows in the next one


def adopt_orphans() -> None:
    """Descendants whose parents end become this process's own children (Linux; else nothing)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int, most: int | None = None) -> list[int]:
    """Processes below `pid`, by /proc, ended ones that nobody waited for among them (they hold a
    place in the system's table too); none where /proc does not say, and no more than `most`."""
    found, pending = dict[int, None](), children(pid)
    while pending and (most is None or len(found) < most):
        current = pending.pop()
        if current not in found:
            found[current] = None
            pending += children(current)
    return list(found)


def end_descendants(pid: int) -> None:
    """Kill all below `pid`, which must not start more meanwhile (stopped, or the caller)."""
    for _ in range(_ROUNDS):
        below = [member for member in descendants(pid) if _lives(member)]
        if not below:
            return
        for member in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """Processes right below `pid`, the eldest first."""
    out: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that has ended
                out += map(int, (task / "children").read_text().split())
    return out


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


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
