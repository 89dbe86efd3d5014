"""Small processes above those that judge and run specs: they outlive them, however they end, and
then end all that they have started.

A spec may end its own process (os._exit, a fault in an extension, a signal to its group) while
something that it started runs on in a session of its own. That becomes a child of the keeper right
above, not of init, and is ended there; one that has come to its own end is waited for there, so
that it counts no more. There is such a keeper above each spec's process, and two, an inner and an
outer one, above the process that judges.

Should the inner keeper be killed, all that falls to the outer one; should the outer one be killed,
the inner one sees it and ends all. One that was stopped, or both, the kernel lets go on when
CuBridge ends. A spec that goes on to stop or to kill what guards it, or that leaves a daemon and
kills both at once, can be held by nothing that runs as the same user.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import select
import signal
import sys
import threading
from typing import NoReturn

from engine.child.family import adopt_orphans, descendants, end_descendants

MOST = 256  # processes that a spec may have at a time, among them ended ones that it must wait for
OURS = 3  # below the inner keeper: what judges, the keeper of a spec's process, and that process
CROWDED = b"crowded"
_PR_SET_DUMPABLE = 4
_TICK_MS = 200  # a look at /proc takes half a millisecond, also while nothing is asked


def keep(requests: int, reason: int) -> int:
    """Split off a worker, and return in it only: a descriptor that hangs up with its keeper.

    The keepers end as the worker ends (its exit code, or its signal), or when nobody can write
    `requests` any more. Once the worker has had more than `MOST` processes they end it, and write
    `CROWDED` into `reason`, which the worker does not have. Call it before any thread is started.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a starter may ignore it, and nobody could wait
    _go_on_at_the_end_of(requests)
    outer = _split_off((requests,))
    inner = _split_off((requests, outer), reason)
    os.close(outer)
    os.close(reason)
    return inner


def keep_spec(requests: int, answers: int) -> int:
    """Split off a process that runs a spec, and return in it only: a descriptor that hangs up with
    its keeper, which ends all that the spec has started as the spec's process ends, or when nobody
    can write `requests` any more. Both stay in the group of the process that asks. Of the
    descriptors that were open, the spec's process has these two and the standard ones.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    close_others(requests, answers)
    return _split_off((requests,), only_workers=(answers,), same_group=True)


def close_others(*kept: int) -> None:
    """Close all descriptors but the standard ones and these."""
    low = 3
    for high in (*sorted(kept), resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
        os.closerange(low, high)
        low = high + 1


def _go_on_at_the_end_of(requests: int) -> None:
    """Have the kernel continue this process, should it be stopped, when `requests` hangs up (and
    when something is written): no process has to be running for that (Linux; else nothing)."""
    if sys.platform == "linux":
        fcntl.fcntl(requests, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(requests, fcntl.F_SETSIG, signal.SIGCONT)
        flags = fcntl.fcntl(requests, fcntl.F_GETFL)
        fcntl.fcntl(requests, fcntl.F_SETFL, flags | os.O_ASYNC)


def _split_off(
    watched: tuple[int, ...],
    reason: int | None = None,
    only_workers: tuple[int, ...] = (),
    same_group: bool = False,
) -> int:
    """Fork, and return in the child only: a descriptor that hangs up with this process, which ends
    as the child ends, or with all below it when one of `watched` hangs up. The one that is given
    a `reason` counts processes. Descriptors in `only_workers` stay open in the child alone."""
    adopt_orphans()
    mine, kept = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(kept)
        if not same_group:
            os.setpgid(0, 0)  # a spec that kills its own group does not mean the keeper
        return mine
    os.close(mine)
    for descriptor in only_workers:
        os.close(descriptor)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # answers are the worker's: without it, their reader must see an end
    threading.Thread(target=_watch, args=(watched, worker, reason), daemon=True).start()
    code = _wait(worker)
    end_as(code)


def _watch(watched: tuple[int, ...], worker: int, reason: int | None) -> None:
    """End the worker once it has too many processes, and everything once a descriptor hangs up."""
    watch = select.poll()
    for descriptor in watched:
        watch.register(descriptor, 0)  # a hang-up is reported without asking
    while not watch.poll(None if reason is None else _TICK_MS):
        if reason is not None and len(descendants(os.getpid(), MOST + OURS + 1)) > MOST + OURS:
            os.write(reason, CROWDED)  # before the worker ends, which the main thread waits for
            _end_below(worker)
            return
    _end_below(worker)
    end_with(*watched)


def _end_below(worker: int) -> None:
    # The group at once: what forks without end is born faster than it is found.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)
    end_descendants(os.getpid())


def hide_memory(hidden: bool) -> None:
    """Whether other processes of this user, a spec's among them, are refused this one's memory and
    descriptors in /proc (Linux; else nothing)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, int(not hidden), 0, 0, 0)


def end_with(*descriptors: int) -> None:
    """Wait until one of the descriptors hangs up; then end this process, its group, and all that
    it has started."""
    watch = select.poll()
    for descriptor in descriptors:
        watch.register(descriptor, 0)
    watch.poll()
    end_descendants(os.getpid())
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _wait(worker: int) -> int:
    """The worker's exit code, or the negative number of the signal that ended it.

    The worker is not taken from the system's table: while its keepers live, its number is its own.
    """
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        if ended.si_pid == worker:
            exited = ended.si_code == os.CLD_EXITED
            return ended.si_status if exited else -ended.si_status
        os.waitpid(ended.si_pid, 0)  # an orphan: none stays a zombie


def end_as(code: int) -> NoReturn:
    """End this process and all below it with an exit code, or a signal's negative number."""
    end_descendants(os.getpid())
    if code < 0:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the worker's own dump is enough
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
