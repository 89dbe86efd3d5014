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

from engine.child.family import adopt_orphans, descendants, end_descendants

MOST = 256  # processes that a spec may have at a time
CROWDED = 213  # the keeper's exit code after it has ended more of them
_TICK_MS = 200  # a look at /proc takes half a millisecond, also while nothing is asked


def keep(requests: int) -> int:
    """Split off a worker, and return in it only: a descriptor that hangs up with the keeper.

    The keeper ends as the worker ends (its exit code, or its signal), with `CROWDED` after the
    worker has had more than `MOST` processes, or when nobody can write `requests` any more. Call it
    before any thread is started.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a starter may ignore it, and nobody could wait
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
    crowded = threading.Event()
    threading.Thread(target=_watch, args=(requests, worker, crowded), daemon=True).start()
    code = _wait(worker)
    _end_as(CROWDED if crowded.is_set() else code)


def _watch(requests: int, worker: int, crowded: threading.Event) -> None:
    """End the worker once it has too many processes, and everything once `requests` hangs up."""
    watch = select.poll()
    watch.register(requests, 0)
    while not watch.poll(_TICK_MS):
        # The worker is one of them.
        if len(descendants(os.getpid(), MOST + 2)) > MOST + 1:
            crowded.set()  # before the worker ends, which the main thread waits for
            # The group at once: what forks without end is born faster than it is found.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker, signal.SIGKILL)
            end_descendants(os.getpid())
            return
    end_with(requests)


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
