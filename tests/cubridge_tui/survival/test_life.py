"""The app's life in a real terminal: signals, a closed terminal, quitting during work, colours.

Starting costs more than looking, so each start serves several questions.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from engine.types import Stage
from tests.cubridge_tui.made import placed
from tests.cubridge_tui.terminal import Terminal

TRUECOLOUR = re.compile(rb"\x1b\[[0-9;]*[34]8;2;")
INDEXED = re.compile(rb"\x1b\[[0-9;]*[34]8;5;")


@pytest.fixture
def placed_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A session with a proposal, in the store that the app opens."""
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    return placed(path, Stage.TARGET)


def children_of(pid: int) -> set[int]:
    """Every process that descends from `pid`, whatever session it is in."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                )
            except OSError:
                continue
    found: set[int] = set()
    while more := {c for c, p in parents.items() if (p == pid or p in found) and c not in found}:
        found |= more
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that still run (a zombie does not)."""
    out = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z":
            out.add(pid)
    return out


def gone(pids: set[int], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pids)


def test_sigterm_restores_the_terminal_and_no_color_means_none(placed_session: str) -> None:
    env = {"NO_COLOR": "1", "COLORTERM": "truecolor"}
    with Terminal(env, 120, 40, ("--session", placed_session)) as terminal:
        terminal.wait_for("Lower to CUDA")
        terminal.type("]", "d", "z", "ctrl+z")
        assert "no shell started this that could go on with it" in terminal.text
        assert re.search(r"^ *\d* *R\+", terminal.text, re.M), terminal.text
        terminal.type(
            "/", "Q", "escape", "?", "escape", "i", "escape", "e", "escape", ":", "escape"
        )
        assert not coloured(terminal.raw)
        started = children_of(terminal.process.pid)
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.ended() == 128 + signal.SIGTERM
        assert terminal.restored
        assert gone(started)


def test_what_is_continued_is_painted_again(placed_session: str) -> None:
    with Terminal({}, 100, 30, ("--session", placed_session)) as terminal:
        terminal.wait_for("Lower to CUDA")
        terminal.pump(1.0)
        before = terminal.text
        os.kill(terminal.process.pid, signal.SIGTSTP)
        deadline = time.monotonic() + 20
        while not stopped(terminal.process.pid):
            assert time.monotonic() < deadline
            terminal.pump(0.1)
        assert terminal.restored
        terminal.screen.reset()  # the emulator has one screen: a shell would have written on it
        os.kill(terminal.process.pid, signal.SIGCONT)
        terminal.wait_for("Lower to CUDA")
        terminal.pump(1.0)
        assert terminal.text == before
        terminal.type("q")
        assert terminal.ended() == 0


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def coloured(raw: bytes) -> set[int]:
    """The SGR codes in what was written that name a colour, the terminal's own ones included."""
    names = {*range(30, 50), *range(90, 108)}
    found = re.findall(rb"\x1b\[([0-9;:]*)m", raw)
    assert found
    return {int(n) for codes in found for n in re.split(rb"[;:]", codes) if n} & names


def test_sighup_ends_it_and_256_colours_are_respected(placed_session: str) -> None:
    env = {"COLORTERM": "", "TERM": "xterm-256color"}
    with Terminal(env, 80, 24, ("--session", placed_session)) as terminal:
        terminal.wait_for("Lower to CUDA")
        terminal.type("]")
        assert not TRUECOLOUR.search(terminal.raw) and INDEXED.search(terminal.raw)
        started = children_of(terminal.process.pid)
        os.kill(terminal.process.pid, signal.SIGHUP)
        assert terminal.ended() == 128 + signal.SIGHUP
        assert terminal.restored
        assert gone(started)


def test_sigint_from_outside_ends_it_as_such(placed_session: str) -> None:
    """Its own ctrl+c is a key, and cancels a job."""
    with Terminal({}, 80, 24, ("--session", placed_session)) as terminal:
        terminal.wait_for("Lower to CUDA")
        terminal.type("ctrl+c")
        assert terminal.process.poll() is None
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.ended() == 128 + signal.SIGINT
        assert terminal.restored


def test_sixteen_colours_a_failing_editor_and_idleness(placed_session: str) -> None:
    env = {
        "COLORTERM": "", "TERM": "xterm-16color", "TEXTUAL_COLOR_SYSTEM": "standard",
        "EDITOR": "false",
    }  # fmt: skip
    with Terminal(env, 120, 40, ("--session", placed_session)) as terminal:
        terminal.wait_for("Lower to CUDA")
        terminal.type("]", "E")
        terminal.wait_for("false ended with 1")
        assert terminal.process.poll() is None
        assert "▶" in terminal.text
        assert not TRUECOLOUR.search(terminal.raw) and not INDEXED.search(terminal.raw)
        terminal.pump(4.0)  # the torch child is warm and quiet by now
        before, begin = ticks(terminal.process.pid), time.monotonic()
        terminal.pump(4.0)
        spent = (ticks(terminal.process.pid) - before) / os.sysconf("SC_CLK_TCK")
        assert spent / (time.monotonic() - begin) < 0.03
        terminal.type("q")
        assert terminal.ended() == 0 and terminal.restored


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_quitting_during_a_job_takes_under_a_second(placed_session: str, tmp_path: Path) -> None:
    """The compiler is one that never ends, with a child of its own."""
    slow = tmp_path / "cuda" / "bin" / "nvcc"
    slow.parent.mkdir(parents=True)
    slow.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "--version) echo 'Cuda compilation tools, release 13.0, V13.0.88';;\n"
        "--list-gpu-code) echo sm_80;;\n"
        "--dryrun) ;;\n"
        "*) sleep 300 & sleep 300;;\n"
        "esac\n"
    )
    slow.chmod(0o755)
    env = {"CUDA_HOME": str(slow.parent.parent), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with Terminal(env, 120, 40, ("--session", placed_session)) as terminal:
        terminal.wait_for("Lower to CUDA")
        terminal.type("s")
        deadline = time.monotonic() + 20
        while len(sleepers := named(terminal.process.pid, b"sleep")) < 2:
            assert time.monotonic() < deadline, f"no compiler runs:\n{terminal.text}"
            terminal.pump(0.1)
        started = children_of(terminal.process.pid)
        begin = time.monotonic()
        os.write(terminal.master, b"\x11")
        while terminal.process.poll() is None and time.monotonic() < begin + 10:
            terminal.pump(0.02)
        assert time.monotonic() - begin < 1.0
        terminal.pump(0.2)
        assert terminal.restored
        assert gone(started | sleepers, 2.0)


def named(pid: int, name: bytes) -> set[int]:
    """Descendants of `pid` whose command line begins with a name."""
    found = set()
    for child in children_of(pid):
        try:
            if Path(f"/proc/{child}/cmdline").read_bytes().startswith(name):
                found.add(child)
        except OSError:
            continue
    return found


def test_a_closed_terminal_leaves_nothing_spinning(placed_session: str) -> None:
    with Terminal({}, 100, 30, ("--session", placed_session)) as terminal:
        terminal.wait_for("Lower to CUDA", 60)
        started = children_of(terminal.process.pid)
        keep = os.dup(terminal.slave)
        os.close(terminal.slave)
        os.close(terminal.master)
        try:
            deadline = time.monotonic() + 10
            while terminal.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            assert terminal.process.poll() is not None, "it still runs without a terminal"
            assert gone(started)
        finally:
            terminal.master, terminal.slave = keep, os.open(os.devnull, os.O_RDONLY)


def test_two_apps_on_one_session(placed_session: str) -> None:
    with Terminal({}, 120, 40, ("--session", placed_session)) as first:
        first.wait_for("Lower to CUDA")
        with Terminal({}, 120, 40, ("--session", placed_session)) as second:
            second.wait_for("READ-ONLY")
            second.type("]", "x")
            assert "read-only" in second.text
            first.type("u")
            first.wait_for("Decide on")
            second.wait_for("Decide", 20)  # what the other one does is followed
            first.type("q")
            assert first.ended() == 0 and first.restored
            second.wait_for("this one writes now")
            with Terminal({}, 120, 40, ("--session", placed_session)) as third:
                third.wait_for("READ-ONLY")
                os.kill(second.process.pid, signal.SIGKILL)
                third.wait_for("this one writes now")
                assert "READ-ONLY" not in third.text
                third.type("A")
                third.wait_for("every hunk is decided")
                third.type("q")
                assert third.ended() == 0 and third.restored
