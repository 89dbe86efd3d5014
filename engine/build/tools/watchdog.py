"""Ends what a process started when that process is gone, however it went: SIGKILL included.

A run's processes carry a mark in their environment, which all that they start inherits, in
whichever session or process group it runs. The watchdog is a process of its own that holds the
reading end of a pipe: when the last writer is gone it ends everything that carries the mark of a
run that is not over, and takes the folder away that it was told of. What a run left that came to
its own end (a compiler cache's server, ssh's shared connection) is not touched. It is a script of
its own too (the standard library alone), so that it can be carried to another machine:

    watchdog.py MARK [FOLDER [COMMAND ...]]

watches its standard input, and with a command becomes that command, marked. There a line `+MARK`
says that a run begins, and `-MARK` that nothing of it is to be ended any more; the run MARK, if it
is not empty, is not over until the input ends. Linux only: it reads /proc.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

VARIABLE = "CUBRIDGE_RUN"
_LEAST = 32  # characters of a mark: a short one might be in the environment of anything
_ROUNDS = 200
_PAUSE = 0.01


def marked(environ: dict[str, str], mark: str) -> dict[str, str]:
    """The environment of a process of the run `mark`, which may be within another run."""
    outer = environ.get(VARIABLE, "")
    return {**environ, VARIABLE: f"{outer} {mark}".strip()}


def carriers(mark: str) -> list[int]:
    """The live processes of this user that carry the mark."""
    needle = mark.encode()
    out = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError), open(f"/proc/{entry.name}/environ", "rb") as stream:
            # A dead process that nobody has waited for yet has no environment any more.
            if needle in stream.read():
                out.append(int(entry.name))
    return out


def end_carriers(mark: str) -> None:
    """Kill all that carries the mark, and what that starts meanwhile.

    Raises:
        ValueError: the mark is shorter than a UUID's 32 digits.
    """
    if len(mark) < _LEAST:
        raise ValueError(f"{mark!r} is no mark of a run: give it {_LEAST} digits")
    for _ in range(_ROUNDS):
        found = carriers(mark)
        if not found:
            return
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


def unfinished(mark: str, lines: Iterable[bytes]) -> list[str]:
    """The marks of the runs that are not over when the lines end, in the order of their begin."""
    marks = dict.fromkeys([mark] if mark else [])
    for line in lines:
        sign, name = line[:1], line[1:].strip().decode("ascii", "replace")
        if sign == b"+" and len(name) >= _LEAST:
            marks[name] = None
        elif sign == b"-":
            marks.pop(name, None)
    return list(marks)


def main(mark: str, folder: str = "", *command: str) -> int:
    # Not a child of the process that it watches: some parents kill their children when they end.
    if os.fork():
        if not command:
            return 0
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.execvpe(command[0], command, marked(dict(os.environ), mark))
    os.setsid()
    os.chdir("/")
    # Whoever reads what the command writes must not wait for this process too.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    with os.fdopen(0, "rb") as stream:
        marks = unfinished(mark, stream)
    for left in marks:
        end_carriers(left)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
