"""A model's run as it goes, shared by the thread that asks, the one that judges, and the screen."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cubridge_tui.model.topics import Topic
from engine.llm.types import Heard, Kind, Message

if TYPE_CHECKING:
    from cubridge_tui.model.attempts import Answered

_TICK = 0.05


@dataclass(frozen=True, slots=True)
class Asking:
    """What the person wants: for what to ask, where, how often, in which words.

    `prompt` is a first prompt as the person edited it, in place of the one that is made.
    """

    topic: Topic | None = None  # what the session's state asks for
    url: str = ""
    model: str = ""
    instruction: str = ""
    rounds: int = 3
    candidates: int = 1
    prompt: tuple[Message, ...] | None = None


@dataclass(slots=True)
class Live:
    """A run as it goes: what came of the running answer, the attempts, and whether it waits."""

    cancel: threading.Event
    attempts: list[Answered] = field(default_factory=list)
    note: str = ""
    waiting: Answered | None = None
    began: float = 0.0
    first: float = 0.0  # when the running answer's first text came
    _parts: list[str] = field(default_factory=list)
    _size: int = 0
    _thought: int = 0
    _words: queue.Queue[str | None] = field(default_factory=queue.Queue)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def heard(self, heard: Heard) -> None:
        """From the thread of the request."""
        with self._lock:
            match heard.kind:
                case Kind.CONNECTING:
                    self._parts, self._size, self._thought = [], 0, 0
                    self.note, self.began, self.first = "connecting", time.monotonic(), 0.0
                case Kind.TEXT | Kind.REASONING:
                    self.first = self.first or time.monotonic()
                    if heard.kind is Kind.TEXT:
                        self._parts.append(heard.text)
                        self._size += len(heard.text)
                    else:
                        self._thought += len(heard.text)
                    self.note = ""
                case Kind.WAITING:
                    self.note = f"again in {heard.seconds:.0f} s: {heard.text}"
                case Kind.NOTE:
                    self.note = heard.text

    def text(self) -> str:
        """The running answer so far."""
        with self._lock:
            whole = "".join(self._parts)
            self._parts = [whole]
            return whole

    @property
    def size(self) -> tuple[int, int]:
        """Characters of the answer, and of the reasoning before it."""
        return self._size, self._thought

    def pace(self) -> str:
        """Seconds, characters, and what they are in tokens (four characters make one)."""
        now = time.monotonic()
        seconds = now - self.began if self.began else 0.0
        written, thought = self.size
        if not self.first:
            return f"{seconds:.0f} s, nothing came yet"
        per = (written + thought) / 4 / max(now - self.first, 0.1)
        reasoned = f" after {thought} of reasoning" if thought else ""
        return (
            f"{seconds:.0f} s, {written} characters{reasoned}, about "
            f"{(written + thought) // 4} tokens, {per:.0f} a second"
        )

    def attempted(self, attempt: Answered) -> None:
        self.attempts.append(attempt)

    def steer(self, attempt: Answered) -> str | None:
        """Wait for the person's line for the next round; None ends the rounds."""
        self.waiting = attempt
        try:
            while not self.cancel.is_set():
                with contextlib.suppress(queue.Empty):
                    return self._words.get(timeout=_TICK)
            return None
        finally:
            self.waiting = None

    def go_on(self, words: str | None) -> None:
        """The person's answer: a line, perhaps empty, or None to stop."""
        if self.waiting is not None:
            self._words.put(words)
