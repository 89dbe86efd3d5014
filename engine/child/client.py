"""The parent's side: start the child, ask it things, stop it at once.

`Child.call` blocks; a `threading.Event` cancels it. A child that crashes, hangs past its limit or
grows past the memory limit is killed with its whole process group, and the next call starts a
fresh one. Limits are kept from here alone: nothing is raised into code that runs in the child, so
none can be caught there and none can meet C++ halfway. A spec runs in a process below the child
that is split off for each command (see spec_process.py): what it leaves behind meets nothing else.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Self

from engine.child.environment import child_command, child_environment
from engine.child.family import children, default_memory_limit, end_descendants, resident
from engine.child.keeper import CROWDED, MOST
from engine.child.postmortem import last_words, line_in, read_log, where_now
from engine.child.wire import Broken, ChildEnded, encode, next_message, rebuild
from engine.errors import CuBridgeError, Interrupted, SpecError, Where

_TICK = 0.05
_GRACE = 5.0
DEFAULT_SECONDS = 120.0
SECONDS = {"recipe": 60.0}
STARTUP_SECONDS = 120.0
SPEC_KEYS = ("path", "spec")  # what a payload calls the spec that it is about
Progress = Callable[[str], None]


def start_server(log: IO[bytes], reason: int) -> subprocess.Popen[bytes]:
    """The server in a session of its own, with a pipe to it and one from it. It writes errors into
    `log`; its keepers write into the descriptor `reason` why they ended it."""
    environment = child_environment()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment.setdefault(name, "1")
    return subprocess.Popen(
        child_command("engine.torch_child.server", str(reason)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
        start_new_session=True,
        pass_fds=(reason,),
    )


class Child:
    """A warm torch process. Use as a context manager, or call `close`."""

    def __init__(self, memory_limit: int | None = None) -> None:
        self._memory_limit = memory_limit or default_memory_limit()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None
        self._lock = threading.Lock()
        self._worker: int | None = None  # the process that judges, below its keepers
        self._reason: int | None = None  # where its keepers say why they ended it

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
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._reason, reason = os.pipe()
        os.set_blocking(self._reason, False)
        try:
            self._process = start_server(self._log, reason)
        finally:
            os.close(reason)

    def close(self) -> None:
        """End the child and everything it started."""
        process, self._process = self._process, None
        worker, self._worker = self._worker, None
        reason, self._reason = self._reason, None
        if reason is not None:
            os.close(reason)
        if process is None:
            return
        if process.poll() is None:
            # Stopped first: it starts nothing more, and adopts what its descendants leave.
            process.send_signal(signal.SIGSTOP)
            if worker is not None:
                # At once: what forks without end is born faster than it is found one by one. Its
                # keepers do not wait for it, so the number is the worker's while they live.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker, signal.SIGKILL)
            end_descendants(process.pid)
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
        seconds: float | None = None,
        cancel: threading.Event | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """The child's answer, within `seconds` (by default what `SECONDS` allows the command) from
        the moment that the process is up and begins.

        Raises:
            SpecError: reading a spec crashed, hung or grew too large; or what is wrong with it.
            ChildEnded: another command crashed, hung or grew too large.
            ChildFailed: another command raised what it never should.
            Interrupted: `cancel` was set.
            CuBridgeError: what the command itself reports about its input.
        """
        with self._lock:
            self.start()
            process = self._process
            assert process is not None and process.stdin is not None
            job = _Job(command, payload, seconds or SECONDS.get(command, DEFAULT_SECONDS))
            try:
                process.stdin.write(encode({"command": command, "payload": payload}))
                process.stdin.flush()
                message = self._answer(process, job, cancel, progress)
            except BrokenPipeError:
                raise self._ended(job) from None
            except BaseException as error:
                if not isinstance(error, CuBridgeError) or isinstance(error, Interrupted):
                    self.close()
                raise
        if "error" in message:
            raise rebuild(message["error"])
        result = message.get("result")
        if not isinstance(result, dict):
            self.close()
            raise job.failure(_GARBLED)
        return result

    def _answer(
        self,
        process: subprocess.Popen[bytes],
        job: _Job,
        cancel: threading.Event | None,
        progress: Progress | None,
    ) -> dict[str, Any]:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        deadline = time.monotonic() + job.seconds + STARTUP_SECONDS
        buffer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while True:
                try:
                    while (message := next_message(buffer)) is not None:
                        if "began" in message:
                            # Starting Python and loading torch is not the command's own time.
                            job.began = True
                            deadline = time.monotonic() + job.seconds
                            self._worker = int(message["began"])
                            continue
                        if "progress" not in message:
                            return message
                        if progress is not None:
                            progress(str(message["progress"]))
                except Broken:
                    self.close()
                    raise job.failure(_GARBLED) from None
                if cancel is not None and cancel.is_set():
                    raise Interrupted(f"{job.command} was cancelled")
                if time.monotonic() > deadline:
                    raise self._stopped(
                        job, f"ran for more than {job.seconds:g} s and was stopped",
                        "shorten what runs at that line: torch ops for a Python loop, names for "
                        "dimensions that are fixed at large numbers",
                    )  # fmt: skip
                used = resident(process.pid, self._memory_limit)
                if used > self._memory_limit:
                    raise self._stopped(
                        job, f"used {used / 2**30:.1f} GiB of memory and was stopped",
                        "make the tensors that the spec builds smaller",
                    )  # fmt: skip
                if selector.select(_TICK):
                    chunk = os.read(fd, 1 << 20)
                    if not chunk:
                        raise self._ended(job)
                    buffer += chunk

    def _stopped(self, job: _Job, what: str, fix: str) -> CuBridgeError:
        """Kill the child in the middle of `job`; the error names the line that was running."""
        process, worker = self._process, self._worker
        dump = ""
        if process is not None and worker is not None:
            for running in _specs_below(worker) or [worker]:
                dump += where_now(running, process.pid, self._log)
        self.close()
        return job.failure(f"{job.subject} {what}", dump, fix)

    def _ended(self, job: _Job) -> CuBridgeError:
        """The error for a child that is gone."""
        process = self._process
        code = None
        log, crowded = "", False
        if process is not None:
            try:
                code = process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                code = None
            log, crowded = read_log(self._log), self._is_crowded()
        self.close()
        tail = last_words(log)
        ended, closed = "ended", False
        if code is None or (code == 1 and "Bad file descriptor" in tail):
            # It still runs and cannot be heard any more, or failed when it tried to answer.
            ended, closed = "cut off", True
            how = "it closed the file descriptors that answers go through"
        else:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if not job.began:
            return ChildEnded(
                f"the process that runs specs and CuIR ended before {job.command} began ({how})"
                + (f": {tail}" if tail else "")
            )
        if crowded:
            what = f"{job.subject} had more than {MOST} processes at a time and was stopped"
            return job.failure(what, fix="start no processes: a spec is run many times to be read")
        fix = "remove what ends or crashes Python: os._exit, a signal, an extension that faults"
        if closed:
            fix = "remove what closes files that the spec has not opened, such as os.close"
        if code == -signal.SIGKILL:
            fix = "if the machine ran out of memory, make the tensors that the spec builds smaller"
        what = f"{job.subject} {ended} the process that ran it ({how})"
        if code == -signal.SIGKILL and job.command != "recipe":  # nothing of ours kills itself
            what = f"the process that ran {job.subject} was killed ({how})"
        return job.failure(what + (f": {tail}" if tail else ""), log, fix)

    def _is_crowded(self) -> bool:
        """Whether the keepers ended the worker for the number of its processes."""
        with contextlib.suppress(BlockingIOError):
            return self._reason is not None and os.read(self._reason, len(CROWDED)) == CROWDED
        return False  # a keeper lives, and has not said so


@dataclass(slots=True)
class _Job:
    """One call: what was asked, for how long, and whether the command had begun."""

    command: str
    payload: dict[str, Any]
    seconds: float
    began: bool = False

    @property
    def subject(self) -> str:
        return "the spec" if self.command == "recipe" else f"the {self.command}"

    def failure(self, message: str, log: str = "", fix: str | None = None) -> CuBridgeError:
        """The error for a job that came to no answer, at the spec's line where the log names one.

        Reading a spec fails through the spec alone; what else runs says nothing of its subject.
        """
        path = _spec_of(self.payload)
        line = None if path is None else line_in(log, path)
        if self.command == "recipe" and path is not None:
            return SpecError(message, where=Where(path, line), fix=fix)
        where = Where(path, line) if path is not None and line is not None else None
        return ChildEnded(message, where=where, fix=fix)


_GARBLED = "what came back from the process that judges is no answer"


def _specs_below(worker: int) -> list[int]:
    """The processes that run specs: each the only child of a keeper that the worker started."""
    return [spec for keeper in children(worker) for spec in children(keeper)[:1]]


def _spec_of(payload: dict[str, Any]) -> str | None:
    return next((str(payload[key]) for key in SPEC_KEYS if payload.get(key)), None)
