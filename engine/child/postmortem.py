"""What the child's log says about how it ended: the line of the spec, and its last words.

The child writes Python's stacks into its log when it crashes and when it is asked to, from a
signal handler in C (`faulthandler`): that works inside an endless loop, inside C++ and without the
interpreter's lock, and raises nothing. What a spec prints is in the same log, so a line found here
is a hint to a person, never a reason for a verdict.
"""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any

ASK = signal.SIGUSR1
_TAIL = 65_536
_PATIENCE = 5.0
_MAX_WORDS = 300
_FRAME = re.compile(r'^  File "(.*)", line (\d+)', re.MULTILINE)
# The outermost frame of the main thread, which comes last, or the sign that there were too many.
_WHOLE = re.compile(rb"in _run_module_as_main\n|^  \.\.\.\n", re.MULTILINE)
_STACK = re.compile(
    r"^(Fatal Python error|Current thread 0x|Thread 0x|Stack \(most recent|Extension modules:)",
    re.MULTILINE,
)


def read_log(log: Any) -> str:
    """The end of the log."""
    if log is None:
        return ""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _TAIL))
    return bytes(log.read()).decode("utf-8", "replace")


def where_now(pid: int, session: int, log: Any) -> str:
    """Ask a running process of a session for its stacks: the log with them, or "" where there is
    none to ask, also where the number has become another process's."""
    if log is None:
        return ""
    before = log.seek(0, os.SEEK_END)
    if not _asked(pid, session):
        return ""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        time.sleep(0.02)
        log.seek(before)
        if _WHOLE.search(log.read(_TAIL)):
            break
    return read_log(log)


def _asked(pid: int, session: int) -> bool:
    try:
        process = os.pidfd_open(pid)  # this process, whatever becomes of its number
    except OSError:
        return False
    try:
        if os.getsid(pid) != session:
            return False
        signal.pidfd_send_signal(process, ASK)
    except OSError:
        return False
    finally:
        os.close(process)
    return True


def line_in(log: str, path: str) -> int | None:
    """The innermost line of the file in the newest stacks of the log."""
    # faulthandler escapes what is not ASCII and cuts names after 500 characters.
    name = path.encode("ascii", "backslashreplace").decode("ascii")[:500]
    begin = max((m.start() for m in re.finditer(r"^(Fatal|Current|Stack)", log, re.M)), default=0)
    for text in (log[begin:], log):
        for frame in _FRAME.finditer(text):
            if frame[1].removesuffix("...") == name:
                return int(frame[2])
    return None


def last_words(log: str) -> str:
    """The last line before the stacks: what a library said before it gave up."""
    found = _STACK.search(log)
    lines = (log[: found.start()] if found else log).strip().split("\n")
    return lines[-1][:_MAX_WORDS]
