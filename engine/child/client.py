"""The parent's side: start the child, ask it things, stop it at once.

`Child.call` blocks; a `threading.Event` cancels it. A child that crashes, hangs past its limit or
grows past the memory limit is killed with its whole process group, and the next call starts a
fresh one.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from engine import errors
from engine.child.protocol import HEADER, encode
from engine.errors import CuBridgeError, Interrupted, Where

_TICK = 0.05
_GRACE = 1.0
DEFAULT_SECONDS = 120.0
Progress = Callable[[str], None]


class ChildFailed(CuBridgeError):
    """The child ended, hung or grew too large: the work it did is a failed verdict."""

    exit_code = 1


def default_memory_limit() -> int:
    """Bytes of resident memory a child may use: three quarters of the machine's."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return pages * size * 3 // 4


class Child:
    """A warm torch process. Use as a context manager, or call `close`."""

    def __init__(self, memory_limit: int | None = None) -> None:
        self._memory_limit = memory_limit or default_memory_limit()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the process (it imports torch while the caller goes on)."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        # The child's own package folder is the only path it gets from us: a user's `engine/` or
        # `torch.py` in the current folder is never imported (-P keeps the folder out).
        environment = dict(os.environ)
        environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
        environment["PYTHONSAFEPATH"] = "1"
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            environment.setdefault(name, "1")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "engine.child.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,
        )

    def close(self) -> None:
        """End the child and everything it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None

    def call(
        self,
        command: str,
        payload: dict[str, Any],
        *,
        seconds: float = DEFAULT_SECONDS,
        cancel: threading.Event | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """The child's answer.

        Raises:
            ChildFailed: the child crashed, hung or grew too large.
            Interrupted: `cancel` was set.
            CuBridgeError: what the command itself reports about its input.
        """
        with self._lock:
            self.start()
            process = self._process
            assert process is not None and process.stdin is not None
            try:
                process.stdin.write(encode({"command": command, "payload": payload}))
                process.stdin.flush()
                message = self._answer(process, command, seconds, cancel, progress)
            except BrokenPipeError:
                raise self._ended(command) from None
            except BaseException as error:
                if not isinstance(error, CuBridgeError) or isinstance(error, Interrupted):
                    self.close()
                raise
        if "error" in message:
            raise _rebuild(message["error"])
        result = message["result"]
        assert isinstance(result, dict)
        return result

    def _answer(
        self,
        process: subprocess.Popen[bytes],
        command: str,
        seconds: float,
        cancel: threading.Event | None,
        progress: Progress | None,
    ) -> dict[str, Any]:
        import json

        assert process.stdout is not None
        fd = process.stdout.fileno()
        deadline = time.monotonic() + seconds
        buffer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while True:
                while len(buffer) >= HEADER.size:
                    (size,) = HEADER.unpack_from(buffer)
                    if len(buffer) < HEADER.size + size:
                        break
                    body = bytes(buffer[HEADER.size : HEADER.size + size])
                    del buffer[: HEADER.size + size]
                    message = json.loads(body.decode("utf-8", "surrogatepass"))
                    if "progress" in message:
                        if progress is not None:
                            progress(str(message["progress"]))
                        continue
                    return dict(message)
                if cancel is not None and cancel.is_set():
                    raise Interrupted(f"{command} was cancelled")
                if time.monotonic() > deadline:
                    self.close()
                    raise ChildFailed(
                        f"{command} took longer than {seconds:.0f} s and was stopped",
                        fix="look for an endless loop or a very large size in the spec",
                    )
                used = _resident(process.pid)
                if used > self._memory_limit:
                    self.close()
                    raise ChildFailed(
                        f"{command} used {used / 2**30:.1f} GiB of memory and was stopped",
                        fix="make the tensors that the spec builds smaller",
                    )
                if selector.select(_TICK):
                    chunk = os.read(fd, 1 << 20)
                    if not chunk:
                        raise self._ended(command)
                    buffer += chunk

    def _ended(self, command: str) -> ChildFailed:
        process = self._process
        code = None
        tail = ""
        if process is not None:
            try:
                code = process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                code = None
            if self._log is not None:
                self._log.seek(0)
                lines = self._log.read().decode("utf-8", "replace").strip().split("\n")
                tail = lines[-1][:300] if lines else ""
        self.close()
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return ChildFailed(
            f"the process that runs specs and CuIR ended during {command} ({how})"
            + (f": {tail}" if tail else "")
        )


def _resident(pid: int) -> int:
    """Resident bytes of a process; 0 where /proc does not say. RLIMIT_AS would break CUDA."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def describe(error: CuBridgeError) -> dict[str, Any]:
    """An error as JSON, to be raised again on the other side."""
    where = error.where
    return {
        "type": type(error).__name__,
        "message": error.message,
        "fix": error.fix,
        "where": None if where is None else [where.file, where.line, where.column],
    }


def _rebuild(data: dict[str, Any]) -> CuBridgeError:
    kind = getattr(errors, str(data.get("type")), None)
    if not (isinstance(kind, type) and issubclass(kind, CuBridgeError)):
        kind = ChildFailed
    where = data.get("where")
    return kind(
        str(data.get("message", "")),
        where=Where(*where) if isinstance(where, list) else None,
        fix=data.get("fix"),
    )
