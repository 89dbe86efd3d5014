"""Children that may hang: their lines are read as they come, and silence ends them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Line = Callable[[dict[str, Any]], None]
MOST_OUTPUT = 200_000


@dataclass(frozen=True)
class Ended:
    """How a child ended. `output` is what it wrote besides its JSON lines (the last part)."""

    code: int
    output: str
    seconds: float
    silent: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.silent


def child_command(run_py: Path, *arguments: str) -> list[str]:
    """This Python with a safe path, running the job's `run.py` as a child."""
    return [sys.executable, "-u", str(run_py), "--child", *arguments]


class Child:
    """A process of its own session whose standard output is JSON lines."""

    def __init__(
        self, command: Sequence[str], cwd: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            command, cwd=cwd, env=dict(environ) if environ is not None else None,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self._rest = b""
        self._other: list[str] = []
        self._size = 0

    def send(self, text: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()

    def follow(
        self, on_line: Line, silence: float, until: Callable[[dict[str, Any]], bool] | None = None
    ) -> Ended | None:
        """Read lines until the child ends, is silent for `silence` seconds, or `until` is true.

        None when `until` stopped it: the child still runs.
        """
        stream = self.process.stdout
        assert stream is not None
        heard = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while True:
                if not selector.select(0.2):
                    if time.monotonic() - heard > silence:
                        self.end()
                        return self._ended(silent=True)
                    continue
                data = os.read(stream.fileno(), 1 << 16)
                heard = time.monotonic()
                if not data:
                    break
                *lines, self._rest = (self._rest + data).split(b"\n")
                stop = False
                for raw in lines:
                    event = self._event(raw)
                    if event is None:
                        continue
                    on_line(event)
                    stop = stop or (until is not None and until(event))
                if stop:
                    return None
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.end()
        return self._ended(silent=False)

    def _event(self, raw: bytes) -> dict[str, Any] | None:
        text = raw.decode("utf-8", "replace")
        if text.startswith("{"):
            try:
                event = json.loads(text)
            except ValueError:
                event = None
            if isinstance(event, dict) and "event" in event:
                return event
        if text and self._size < MOST_OUTPUT:
            self._other.append(text)
            self._size += len(text)
        return None

    def _ended(self, silent: bool) -> Ended:
        self.end()
        text = "\n".join(self._other)
        code = self.process.returncode if self.process.returncode is not None else -1
        return Ended(code, text[-6000:], time.monotonic() - self.begin, silent)

    def end(self) -> None:
        """End the child and all of its session."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:400] if lines else "no message"
