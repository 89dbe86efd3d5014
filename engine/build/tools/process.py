"""Run a tool as a child: its own session, low priority, output captured, ended at once on cancel.

A build tool starts processes of its own, ninja even in process groups of their own and a job in
sessions of their own, so ending a child means ending everything in its session and all that carries
its mark. When this process is killed outright, a watchdog does the same for what had not ended.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.build.tools import watchdog
from engine.errors import Interrupted, MissingTool
from engine.priority import stand_back, standing_back

NICENESS = 10
_TICK = 0.05
_GRACE = 0.5
_MOST_OUTPUT = 16 << 20
_HAS_PROC = os.path.exists("/proc/self/environ")


@dataclass(frozen=True, slots=True)
class Finished:
    """How a child ended. `output` is stdout and stderr as they came; `timed_out` had a limit."""

    returncode: int
    output: str
    seconds: float
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    cancel: threading.Event | None = None,
    on_line: Callable[[str], None] | None = None,
    limit: float | None = None,
    niceness: int = NICENESS,
    lifeline: bool = False,
) -> Finished:
    """Run `argv` to its end.

    `on_line` sees each line of output as it comes; past 16 MiB output is read and dropped. `limit`
    is in seconds. Its session gives way to others as this process's does. With `lifeline` its
    standard input is a pipe that nothing is written to and that ends when this call does, or this
    process; else there is none.

    Raises:
        Interrupted: `cancel` was set; nothing of the child is left.
        MissingTool: the program cannot be started.
    """
    begin = time.monotonic()
    name = os.path.basename(argv[0])
    mark = uuid.uuid4().hex
    _tell_watchdog("+", mark)
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=watchdog.marked(dict(environ), mark),
            stdin=subprocess.PIPE if lifeline else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        _tell_watchdog("-", mark)
        raise MissingTool(
            f"{argv[0]} cannot be started: {error.strerror or error}",
            fix=f"install {name} again, or take it out of the way",
        ) from None
    with suppress(OSError):
        os.setpriority(os.PRIO_PGRP, process.pid, niceness)
    behind = standing_back()
    told = not behind or stand_back(behind, process.pid)
    chunks: list[bytes] = []
    timed_out, ended = False, False
    assert process.stdout is not None
    try:
        with selectors.DefaultSelector() as selector, process.stdout as stream:
            selector.register(stream, selectors.EVENT_READ)
            size, rest = 0, b""
            while True:
                if cancel is not None and cancel.is_set():
                    raise Interrupted(f"{name} was cancelled")
                told = told or stand_back(behind, process.pid)
                if limit is not None and time.monotonic() - begin > limit:
                    timed_out = True
                    break
                if not selector.select(_TICK):
                    continue
                data = os.read(stream.fileno(), 1 << 16)
                if not data:
                    break
                if size < _MOST_OUTPUT:
                    chunks.append(data)
                    size += len(data)
                if on_line is not None:
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        on_line(line.decode("utf-8", "replace"))
            if on_line is not None and rest:
                on_line(rest.decode("utf-8", "replace"))
        if not timed_out:
            _wait(process, cancel, name)
            ended = True
    finally:
        if process.stdin is not None:
            process.stdin.close()
        end_session(process)
        # What a tool that came to its own end has left elsewhere (ssh's shared connection) stays.
        if not ended and _HAS_PROC:
            watchdog.end_carriers(mark)
        _tell_watchdog("-", mark)
    output = b"".join(chunks).decode("utf-8", "replace")
    return Finished(process.returncode, output, time.monotonic() - begin, timed_out)


_watching = threading.Lock()
_lifeline: int | None = None  # the end of a pipe that the watchdog reads


def _tell_watchdog(sign: str, mark: str) -> None:
    """Say that a run begins (+) or is over (-); the first call starts the watchdog.

    The pipe's end is closed by the kernel when this process ends, and no child inherits it.
    """
    global _lifeline
    with _watching:
        if _lifeline is None:
            read, _lifeline = os.pipe()
            if _HAS_PROC:
                with suppress(OSError):
                    subprocess.run(
                        [sys.executable, "-I", "-S", watchdog.__file__, ""],
                        stdin=read,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                        check=False,
                    )
            os.close(read)
        # Shorter than what the kernel writes at once, so the lines of two threads never mix.
        with suppress(OSError):
            os.write(_lifeline, f"{sign}{mark}\n".encode())


def _wait(process: subprocess.Popen[bytes], cancel: threading.Event | None, name: str) -> None:
    """Wait for a child that closed its output."""
    while True:
        try:
            process.wait(_TICK)
            return
        except subprocess.TimeoutExpired:
            if cancel is not None and cancel.is_set():
                raise Interrupted(f"{name} was cancelled") from None


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a child that leads a session, and all that still runs in that session."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    for _ in range(50):
        members = _session_members(process.pid)
        if not members:
            break
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    process.wait()


def _session_members(session: int) -> list[int]:
    """The live processes of a session, from /proc (field 6 of stat; state Z is already dead)."""
    out = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat", "rb") as stat:
                # The command in parentheses may hold anything, so fields start after the last ')'.
                fields = stat.read().rsplit(b")", 1)[-1].split()
        except OSError:
            continue
        if len(fields) > 3 and fields[0] not in (b"Z", b"X") and int(fields[3]) == session:
            out.append(int(entry.name))
    return out
