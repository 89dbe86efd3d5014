"""Long work beside an app: its session gives way to the one that paints.

Linux weighs a process by its nice value only among those of its own autogroup, which each session
is; between sessions the groups' nice values count (see sched(7)). A compiler in a session of its
own takes half of a processor from the app, however nice the compiler itself is, and a new session's
group is not nice at all.
"""

from __future__ import annotations

from contextlib import suppress

NICENESS = 7  # of a session that works beside an app: a sixth of a processor that both want


def stand_back(niceness: int = NICENESS, session: int | None = None) -> bool:
    """Let the whole session of this process, or of another, give way to other sessions.

    Only for a session that was made for long work. False where the kernel wants to be asked again
    later: it takes ten such requests a second.
    """
    try:
        with open(f"/proc/{session or 'self'}/autogroup", "w", encoding="ascii") as group:
            group.write(str(niceness))
    except BlockingIOError:
        return False
    except OSError:  # no autogroups here, so processes' own nice values count; or it is gone
        pass
    return True


def standing_back() -> int:
    """How nice this process's session is: what a session that it starts should be too."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/autogroup") as group:
        return int(group.read().split()[-1])
    return 0
