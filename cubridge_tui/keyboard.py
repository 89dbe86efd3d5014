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
from textual.events import Resize
from textual.message import Message

CHUNK = 4096
LARGEST = 4096  # columns or rows: a report of more is no size of a terminal
TICK = 0.1  # seconds after which a lone escape is a key


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
    """Characters as Textual's messages; after a sequence that its parser cannot take, a new one."""

    def __init__(self) -> None:
        self._parser = XTermParser()

    def read(self, text: str) -> list[Message]:
        """The messages that end in `text`, or whose time is over."""
        found: list[Message] = []
        for character in (*text, ""):
            try:
                # One by one: after a failure the parser says nothing of how far it was.
                step = self._parser.feed(character) if character else self._parser.tick()
                found += step
            except Exception:
                self._parser = XTermParser()
        return [message for message in found if not _impossible(message)]


def _impossible(message: Message) -> bool:
    """Whether it is a size that no terminal has: a screen of it would take all memory."""
    if not isinstance(message, Resize):
        return False
    size = message.size
    return not (0 < size.width <= LARGEST and 0 < size.height <= LARGEST)
