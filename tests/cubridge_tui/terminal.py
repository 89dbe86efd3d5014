"""The app in a real pseudo-terminal, seen through a terminal emulator."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte

KEYS = {
    "enter": "\r", "escape": "\x1b", "tab": "\t", "up": "\x1b[A", "down": "\x1b[B",
    "ctrl+c": "\x03", "ctrl+z": "\x1a", "ctrl+q": "\x11", "ctrl+p": "\x10",
}  # fmt: skip


class Terminal:
    """A process on a pty of `columns` x `rows`; a context manager that ends it."""

    def __init__(
        self, environment: dict[str, str], columns: int = 120, rows: int = 40,
        arguments: tuple[str, ...] = (), cwd: Path | None = None,
    ) -> None:  # fmt: skip
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.master, self.slave = pty.openpty()
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, size)
        self.before = termios.tcgetattr(self.slave)
        self.raw = b""
        root = Path(__file__).resolve().parents[2]
        # Test runners set these for their own output; here the terminal alone says its size.
        inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cubridge_tui", *arguments],
            stdin=self.slave, stdout=self.slave, stderr=self.slave, cwd=cwd,
            env={**inherited, "PYTHONPATH": str(root), "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def pump(self, seconds: float = 0.05) -> None:
        """Take in what the process writes for a while."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self._read(left):
            pass

    def _read(self, seconds: float) -> bool:
        """Take in what is there within a while; whether anything was."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.raw += data
        self.stream.feed(_plain(data))
        return True

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def wait_for(self, words: str, seconds: float = 60.0) -> str:
        """The screen once it shows `words`."""
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert self.process.poll() is None, f"it ended:\n{self.text}"
            assert time.monotonic() < deadline, f"{words!r} never came:\n{self.text}"
            self.pump()
        return self.text

    def type(self, *keys: str) -> None:
        """Keys, each after a glance at the screen."""
        for key in keys:
            self.pump(0.4)
            os.write(self.master, KEYS.get(key, key).encode())
        self.pump(0.3)

    def ended(self, seconds: float = 10.0) -> int:
        """The exit status; all that the process wrote is taken in."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
            self.pump()
        # Its last words wait in the pty, up to 12 KB of them: a busy machine takes longer to read
        # them than any time that is set here.
        while self._read(0.2):
            pass
        return self.process.returncode

    @property
    def restored(self) -> bool:
        """Whether the terminal is as it was: cooked, main screen, mouse and paste reports off."""
        modes = termios.tcgetattr(self.slave)[:4] == self.before[:4]

        def last(on: bytes, off: bytes) -> bool:
            return self.raw.rfind(off) >= self.raw.rfind(on)

        pairs = [(f"\x1b[?{n}h".encode(), f"\x1b[?{n}l".encode()) for n in (1049, 1000, 1003, 2004)]
        return modes and all(last(on, off) for on, off in pairs) and (
            self.raw.rfind(b"\x1b[?25h") >= self.raw.rfind(b"\x1b[?25l")
        )  # fmt: skip

    def children(self) -> list[int]:
        """Processes of the app's session that still live."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                    environment = (entry / "environ").read_bytes()
                except OSError:
                    continue
                mine = f"CUBRIDGE_TEST_MARK={self.process.pid}".encode()
                if int(fields[3]) == self.process.pid or mine in environment:
                    found.append(int(entry.name))
        return [pid for pid in found if pid != self.process.pid]


def _plain(data: bytes) -> bytes:
    """Without what the emulator does not know and would print: kitty's keyboard sequences."""
    import re

    return re.sub(rb"\x1b\[[<>=?][0-9;]*u|\x1b\[\?[0-9;]*\$p|\x1b\[>[0-9;]*[mq]", b"", data)
