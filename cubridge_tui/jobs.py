"""One thread that does the blocking work, one job after another, while the screen stays alive.

A thread of our own and not Textual's pool: quitting must not wait for a compiler. Children of a job
end with the bench's `cancel` event, so `close` leaves none behind. What a person asked to be kept
is another matter: the app looks at `keeping` before it quits.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.errors import CuBridgeError, Interrupted

LOG_LINES = 5000
QUIT_SECONDS = 0.4


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended: its value, or the error in words. `cancelled` jobs have neither."""

    name: str
    value: Any = None
    error: CuBridgeError | None = None
    cancelled: bool = False
    seconds: float = 0.0


def elapsed(seconds: float) -> str:
    """`9 s`, `2 min 05 s`: empty below two seconds, which nobody waits for."""
    whole = int(seconds)
    if whole < 2:
        return ""
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    work: Callable[[], Any]
    done: Callable[[Outcome], None]
    quiet: bool
    keeps: bool


class Jobs:
    """The queue. `post` brings a call to the UI's thread; there `changed` is called on news, and
    `kept` when a job that keeps something has ended, before its `done`."""

    def __init__(
        self,
        cancel: threading.Event,
        post: Callable[..., None],
        changed: Callable[[], None],
        kept: Callable[[Outcome], None],
    ) -> None:
        self._cancel, self._post, self._changed, self._kept = cancel, post, changed, kept
        self._queue: queue.Queue[_Job | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="cubridge-jobs", daemon=True)
        self._closed = False
        self.running = ""  # the job that the screen speaks of; quick ones are not named
        self._line = ""
        self.since = 0.0
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self._waiting = 0
        self._keeping: deque[str] = deque()
        self._told = 0.0

    def start(self) -> None:
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return self._waiting > 0

    @property
    def keeping(self) -> str:
        """The first job by name, running or waiting, whose result would be lost by quitting now."""
        return self._keeping[0] if self._keeping else ""

    @property
    def line(self) -> str:
        """What the running job says, without the gate that it is named after, and for how long it
        has run."""
        ran = elapsed(time.monotonic() - self.since) if self.running else ""
        name, line = self.running.rpartition(" ")[2], self._line
        if name and line.startswith((f"{name}: ", f"{name} ")):
            line = line[len(name) :].lstrip(": ")
        return f"{line}  {ran}".strip()

    def submit(
        self,
        name: str,
        work: Callable[[], Any],
        done: Callable[[Outcome], None],
        *,
        quiet: bool = False,
        keeps: bool = False,
    ) -> None:
        """Do `work` on the thread, then `done` on the UI's. A quiet job is too short to name; one
        that `keeps` writes what the person decided or asked for into the store or a file."""
        self._waiting += 1
        if keeps:
            self._keeping.append(name)
        if not quiet:
            self.running, self._line, self.since = name, "", time.monotonic()
        self._queue.put(_Job(name, work, done, quiet, keeps))

    def progress(self, text: str) -> None:
        """A line from the running job; repaints at most some ten times a second."""
        self._line = text
        self.log.extend(text.split("\n"))
        now = time.monotonic()
        if now - self._told > 0.08:
            self._told = now
            self._call(self._changed)

    def stop(self) -> None:
        """Cancel the running job."""
        self._cancel.set()

    def close(self) -> None:
        """End the thread; a running job is cancelled and gets a moment to end its children."""
        self._closed = True
        self._cancel.set()
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(QUIT_SECONDS)

    def _run(self) -> None:
        while (job := self._queue.get()) is not None and not self._closed:
            begin = time.monotonic()
            if not job.quiet:
                self._cancel.clear()
                self.log.append(f"— {job.name}")
            try:
                outcome = Outcome(job.name, job.work())
            except Interrupted:
                outcome = Outcome(job.name, cancelled=True)
            except CuBridgeError as error:
                outcome = Outcome(job.name, error=error)
            except Exception as error:  # a fault in the engine is a message, never a dead app
                words = f"internal error in {job.name}: {type(error).__name__}: {error}"
                outcome = Outcome(job.name, error=CuBridgeError(words, fix="L shows the log"))
                self._log_traceback()
            seconds = time.monotonic() - begin
            outcome = Outcome(
                outcome.name, outcome.value, outcome.error, outcome.cancelled, seconds
            )
            if outcome.error is not None:
                self.log.extend(str(outcome.error).split("\n"))
            self._call(self._finish, job, outcome)

    def _log_traceback(self) -> None:
        import traceback

        self.log.extend(traceback.format_exc().rstrip("\n").split("\n"))

    def _finish(self, job: _Job, outcome: Outcome) -> None:
        self._waiting -= 1
        if not job.quiet:
            self.running = ""
            self._changed()
        if job.keeps:
            self._keeping.popleft()  # one after another, as they were submitted
            self._kept(outcome)
        job.done(outcome)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        if not self._closed:
            self._post(function, *arguments)
