"""Reads a `text/event-stream` body, as servers and the gateways before them really write it.

The SDK's own reader ends the stream with a JSON error at an event that holds an `id:` alone and at
the comments that gateways send as data, and it does not say that a comment came: a server that
says "still here" every ten seconds would look like a silent one.

Source: WHATWG HTML, 9.2.6 "Interpreting an event stream".
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field

DONE = "[DONE]"
# Events that say "still here", whatever their data is.
_PULSES = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})
# Only these end a line: the separators of Unicode may stand in a text.
_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Event:
    """One event that carries something: `name` is empty where the server gives none."""

    name: str
    data: str


@dataclass(slots=True)
class EventReader:
    """Takes the body as it comes, in parts of any size, and gives the events that it completes."""

    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8-sig")("replace")
    )
    _rest: str = ""
    _name: str = ""
    _data: list[str] = field(default_factory=list)

    def feed(self, part: bytes) -> list[Event]:
        """The events that end in this part."""
        text = self._rest + self._decoder.decode(part)
        # Half of a line end may be missing yet.
        held = "\r" if text.endswith("\r") else ""
        *lines, last = _LINE_END.split(text[: len(text) - len(held)])
        self._rest = last + held
        return [event for line in lines for event in self._line(line)]

    def end(self) -> list[Event]:
        """The event that the body ended in, with or without its empty line."""
        lines = _LINE_END.split(self._rest + self._decoder.decode(b"", True))
        self._rest = ""
        return [event for line in (*lines, "") for event in self._line(line)]

    def _line(self, line: str) -> list[Event]:
        if not line:
            name, data = self._name, "\n".join(self._data)
            self._name, self._data = "", []
            comment = not data.strip() or data.lstrip().startswith(":")
            return [] if comment or name.lower() in _PULSES else [Event(name, data)]
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if key == "data":
            self._data.append(value)
        elif key == "event":
            self._name = value
        return []  # a comment (no key), `id`, `retry`, or what no reader knows
