"""A small process above the one that runs specs: it outlives that one, however it ends, and then
ends all that it has started.

A spec may end its own process (os._exit, a fault in an extension, a signal to its group) while
something that it started runs on in a session of its own. That becomes a child of the keeper, not
of init, and is ended there.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import threading
from typing import NoReturn

from engine.child.family import adopt_orphans, end_descendants


def keep(requests: int) -> int:
    """Split off a worker, and return in it only: a descriptor that hangs up with the keeper.

    The keeper ends as the worker ends (its exit code, or its signal), or when nobody can write
    `requests` any more. Call it before any thread is started.
    """
    adopt_orphans()
    mine, kept = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(kept)
        os.setpgid(0, 0)  # a spec that kills its own group does not mean the keeper
        adopt_orphans()
        return mine
    os.close(mine)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # answers are the worker's: without it, their reader must see an end
    threading.Thread(target=end_with, args=(requests,), daemon=True).start()
    _end_as(_wait(worker))


def end_with(*descriptors: int) -> None:
    """Wait until one of the descriptors hangs up; then end this process, its group, and all that
    it has started."""
    watch = select.poll()
    for descriptor in descriptors:
        watch.register(descriptor, 0)  # a hang-up is reported without asking
    watch.poll()
    end_descendants(os.getpid())
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _wait(worker: int) -> int:
    """The worker's exit code, or the negative number of the signal that ended it."""
    while True:
        pid, status = os.wait()  # of orphans too: none stays a zombie
        if pid == worker:
            return os.waitstatus_to_exitcode(status)


def _end_as(code: int) -> NoReturn:
    end_descendants(os.getpid())
    if code < 0:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the worker's own dump is enough
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
