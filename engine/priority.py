"""Long work, behind what a person waits for in front of a screen.

Linux weighs a process by its nice value only among those of its own autogroup, which each session
is; between sessions the groups' nice values count (see sched(7)). A compiler in a session of its
own takes half of a processor from the app, however nice the compiler itself is.
"""

from __future__ import annotations

import os
from contextlib import suppress

CHILD_NICENESS = 5  # of our own processes that compute


def stand_back(niceness: int, leader: int | None = None) -> bool:
    """Give way to others: this process and its session, or a child that leads a session.

    Only for a session that was made for this work, as all of it gives way. False where the kernel
    wants to be asked again later (it takes ten such requests a second).
    """
    with suppress(OSError):
        if leader is None:
            os.nice(niceness)
        else:
            os.setpriority(os.PRIO_PGRP, leader, niceness)
    try:
        with open(f"/proc/{leader or 'self'}/autogroup", "w", encoding="ascii") as group:
            group.write(str(niceness))
    except BlockingIOError:
        return False
    except OSError:  # no autogroups here, so the nice value counts; or the process is gone
        pass
    return True
