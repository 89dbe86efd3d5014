"""One adaptation in tmux by keyboard alone, killed in the middle, each screen at three sizes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from engine.build.tools.toolchain import find_toolchain
from engine.errors import MissingTool

ROOT = Path(__file__).resolve().parents[2]
SIZES = ((80, 24), (120, 40), (200, 60))
pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.xdist_group("terminal"),  # in real time: one of these at once
]


class Tmux:
    """A shell in a tmux of its own, which goes to the next size wherever it is looked at."""

    def __init__(self, cwd: Path, environment: dict[str, str]) -> None:
        self.sizes = cycle(SIZES)
        columns, rows = next(self.sizes)
        self.mark = f"tmux-test-{uuid.uuid4().hex}"
        given = {
            **environment, "CUBRIDGE_TEST_MARK": self.mark, "PYTHONPATH": str(ROOT), "PS1": "$ ",
        }  # fmt: skip
        words = [w for name, value in given.items() for w in ("-e", f"{name}={value}")]
        self._tmux(
            "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(cwd), *words,
            "/bin/sh",
        )  # fmt: skip

    def _tmux(self, *words: str) -> str:
        # A runner of tests may name a size of its own, which the app would believe.
        inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        done = subprocess.run(
            ["tmux", "-L", self.mark, "-f", "/dev/null", *words],
            capture_output=True, text=True, check=True, timeout=20, env=inherited,
        )  # fmt: skip
        return done.stdout

    @property
    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def seen(self, pattern: str, seconds: float = 60.0) -> str:
        """The screen once it shows a pattern, which it shows at each of the sizes."""
        text = self.wait_for(pattern, seconds)
        for _ in SIZES[1:]:
            columns, rows = next(self.sizes)
            self._tmux("resize-window", "-x", str(columns), "-y", str(rows))
            time.sleep(0.4)  # until it is drawn anew
            text = self.wait_for(pattern)
        return text

    def wait_for(self, pattern: str, seconds: float = 60.0) -> str:
        """The screen once it shows a pattern."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, text := self.text):
            assert time.monotonic() < deadline, f"{pattern!r} never came:\n{text}"
            time.sleep(0.1)
        return text

    def type(self, *keys: str) -> None:
        """Keys, each after a glance at the screen."""
        for key in keys:
            time.sleep(0.4)
            self._tmux("send-keys", *(["-l", key] if len(key) == 1 else [key]))
        time.sleep(0.3)

    def line(self, text: str, end: str = "Enter") -> None:
        """A line of text and its end."""
        self._tmux("send-keys", "-l", text)
        time.sleep(0.2)
        self._tmux("send-keys", end)

    def app(self, *words: str) -> None:
        command = " ".join([sys.executable, "-P", "-m", "cubridge_tui", *words])
        self.line(f"clear; {command}; echo ENDED=$?")

    def processes(self) -> dict[int, str]:
        """The app's processes that live: those with our mark, but for tmux and its shell."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                if self.mark.encode() in (entry / "environ").read_bytes():
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if words.strip() not in ("/bin/sh", ""):
                        found[int(entry.name)] = words
            except OSError:
                continue
        return found

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self.mark, "kill-server"], check=False, timeout=20)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Tmux]:
    home = {n: str(tmp_path / n.lower()) for n in ("XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    environment = {
        **home, "CUBRIDGE_STORE": str(tmp_path / "store.git"),
        "GIT_AUTHOR_NAME": "Ana", "GIT_AUTHOR_EMAIL": "ana@example.org",
        "GIT_COMMITTER_NAME": "Ana", "GIT_COMMITTER_EMAIL": "ana@example.org",
    }  # fmt: skip
    mine = tmp_path / "mine"
    mine.mkdir()
    subprocess.run(["git", "init", "-q", str(mine)], check=True)
    tmux = Tmux(mine, environment)
    yield tmux
    tmux.close()
    for pid in tmux.processes():
        os.kill(pid, signal.SIGKILL)


def test_one_adaptation_by_keyboard_alone(shell: Tmux, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    try:
        find_toolchain()
    except MissingTool:
        pytest.skip("no nvcc here: without it G3 does not pass")
    shell.app()
    shell.seen("s adapts flash_fwd_sm80 to softcap_causal")
    shell.type("s")
    shell.seen("Lift the source and run G1")
    shell.type("s")
    shell.seen("G1 ?✓", 120)
    shell.type("s")
    shell.seen("Decide on")
    shell.type("A")
    shell.seen("Run G2")
    # Reject the hunk of the mask.
    shell.type("/")
    shell.line("and j <= i")
    shell.seen(r"[1-9]\d* lines match")
    shell.type("x")
    shell.seen("undo reject rules/h|every hunk is decided")
    shell.type("s")
    shell.seen("G2 ?✗", 180)
    shell.type("w")
    shown = shell.seen("here ▶ +rules/h")
    hunk = re.search(r"rules/(h\d+)", shown)
    assert hunk and "counterexample" in shown
    shell.type("Escape")
    shell.seen(f"▶{hunk[1]} ")
    # Killed in the middle, it opens at the same place.
    time.sleep(4)
    app = next(pid for pid, words in shell.processes().items() if "-m cubridge_tui" in words)
    os.kill(app, signal.SIGKILL)
    shell.wait_for("ENDED=137")
    shell.line("stty sane; tput rmcup", "C-j")  # the terminal is still raw: enter is no line end
    shell.app()
    shell.seen("enter opens the session")
    shell.type("Enter")
    shell.seen(f"▶{hunk[1]} ")
    shell.seen("G2 ?✗")
    shell.type("u")
    shell.seen("undone: rejected rules/")
    shell.type("s")
    shell.seen("G2 ?✓", 180)
    shell.type("s")
    shell.seen("G3 ?✓", 300)
    shell.type("K")
    shell.seen("accept at cpu-verified")
    shell.type("A")
    shell.seen("Accepted at cpu-verified")
    shell.type("C")
    shell.seen("Commit the package into your own repository as this folder")
    shell.type("Enter")
    shell.seen("commits exactly this")
    shell.type("C")
    shell.seen("committed as")
    shell.type("Escape", "Escape")
    shown = shell.seen("level cpu-verified")
    assert re.search(r"G1 ?✓.*G2 ?✓.*G3 ?✓.*G4 ?–", shown)
    begin = time.monotonic()
    shell.type("q")
    shell.wait_for("ENDED=0", 10)
    assert time.monotonic() - begin < 6
    # The terminal is as it was: no other screen, echo on, and nothing of the app is left.
    shell.line("echo back again")
    shell.wait_for(r"back again[\s\S]*back again", 10)
    deadline = time.monotonic() + 3
    while shell.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert shell.processes() == {}
    shell.line("clear; git log --oneline | cat; git status --short | cat")
    assert "softcap_causal" in shell.wait_for("softcap_causal")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cubridge_tui", "sessions", "list", "--json"],
        capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "CUBRIDGE_STORE": str(tmp_path / "store.git"), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    (session,) = json.loads(done.stdout)["sessions"]
    assert session["accepted"] == "cpu-verified" and session["level"] == "cpu-verified"
