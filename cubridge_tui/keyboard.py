"""Reads the terminal's bytes so that none of them can end the reading."""

from __future__ import annotations

import os
import select
from codecs import getincrementaldecoder

# Textual's own input thread ends at a byte that is no UTF-8 (a click right of column 95 where the
# terminal reports them the oldest way, a Latin-1 paste), and at a few sequences that its parser
# counts on to be well made: https://github.com/Textualize/textual/issues/6456. What reads bytes is
# a public method; only the parser is not.
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Paste, Resize
from textual.message import Message

CHUNK = 4096
LARGEST = 4096  # columns or rows: a report of more is no size of a terminal
FLOOD = 1024  # characters that come at once: nobody types them, the terminal marks no paste
BEGIN, END = "\x1b[200~", "\x1b[201~"  # of what is pasted
TICK = 0.1  # seconds after which a lone escape is a key
STALLED = 50  # ticks without a character after which a paste without an end has ended


class KeyboardDriver(LinuxDriver):
    """Textual's driver for terminals, deaf to nothing."""

    def run_input_thread(self) -> None:
        """Read, decode and parse until the app ends; what cannot be read is passed over."""
        decoder = getincrementaldecoder("utf-8")("replace")
        keys = Keystrokes()
        while not self.exit_event.is_set():
            ready, _, _ = select.select([self.fileno], [], [], TICK)
            data = os.read(self.fileno, CHUNK) if ready else b""
            if ready and not data:  # the end of a piped input
                self.exit_event.wait(TICK)
            for message in keys.read(decoder.decode(data)):
                self.process_message(message)


class Keystrokes:
    """Characters as Textual's messages; after a sequence that its parser cannot take, a new one.

    What is pasted is text alone: Textual's parser takes an escape in it for the begin of a sequence
    and what follows for keys, so a log that is pasted would accept hunks.
    """

    def __init__(self) -> None:
        self._parser = XTermParser()
        self._last = ""  # characters, as many as `BEGIN` has
        self._pasted: str | None = None  # what came since it
        self._silence = 0  # reads of nothing, one after the other

    def read(self, text: str) -> list[Message]:
        """The messages that end in `text`, or whose time is over."""
        if len(text) >= FLOOD and self._pasted is None and "\x1b" not in text:
            return [Paste(text.replace("\x00", ""))]
        self._silence = 0 if text else self._silence + 1
        if self._pasted is not None and self._silence >= STALLED:
            text = END
        found: list[Message] = []
        while text:
            if self._pasted is not None:
                content, end, rest = (self._pasted + text).partition(END)
                self._pasted, text = (None, rest) if end else (content, "")
                if end:
                    self._fed(end)  # the parser, which was given nothing since, ends it too
                    found.append(Paste(content.replace("\x00", "").replace("\x1b", "␛")))
                continue
            # One by one: after a failure the parser says nothing of how far it was.
            found += self._fed(text[0])
            self._last = (self._last + text[0])[-len(BEGIN) :]
            text = text[1:]
            if self._last == BEGIN:
                self._pasted = ""
        found += self._fed("")
        return [message for message in found if not _impossible(message)]

    def _fed(self, text: str) -> list[Message]:
        try:
            return list(self._parser.feed(text) if text else self._parser.tick())
        except Exception:
            self._parser = XTermParser()
            return []


def _impossible(message: Message) -> bool:
    """Whether it is a size that no terminal has: a screen of it would take all memory."""
    if not isinstance(message, Resize):
        return False
    size = message.size
    return not (0 < size.width <= LARGEST and 0 < size.height <= LARGEST)
