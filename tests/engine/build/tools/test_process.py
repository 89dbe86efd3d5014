"""Children end: by themselves, at a limit, at once on cancel, with everything they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from engine.build.tools import watchdog
from engine.build.tools.process import NICENESS, run
from engine.errors import Interrupted, MissingTool

ROOT = Path(__file__).resolve().parents[4]

# A child that starts a grandchild in a process group of its own, as ninja does, which ignores
# SIGTERM, and that waits for it.
STUBBORN = '''
import os, subprocess, sys, time
inner = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""
child = subprocess.Popen([sys.executable, "-c", inner], process_group=0)
print(os.getpid(), child.pid, flush=True)
child.wait()
'''


# The same, in a session of its own as a GPU job's children are, and one below that, which the
# session's leader does not wait for.
SCATTERED = '''
import os, subprocess, sys, time
inner = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
low = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
print(os.getpid(), low.pid, flush=True)
print("ready", flush=True)
time.sleep(600)
"""
print(os.getpid(), flush=True)
subprocess.Popen([sys.executable, "-c", inner], start_new_session=True).wait()
'''
# A process that runs it, in a thread that is not its first.
RUNS = """
import os, sys, threading
from pathlib import Path
from engine.build.tools.process import run
work = lambda: run([sys.executable, "-c", sys.argv[1]], cwd=Path.cwd(), environ=os.environ,
                   on_line=lambda line: print(line, flush=True))
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
# A process that runs a tool which leaves something behind, and what it says once that has ended. It
# ends by itself, or runs something more and waits to be killed.
LEAVES = """
import os, sys
from pathlib import Path
from engine.build.tools.process import run
daemon, scattered, how = sys.argv[1:]
go = lambda code: run([sys.executable, "-c", code], cwd=Path.cwd(), environ=os.environ,
                      on_line=lambda line: print(line, flush=True))
assert go(daemon).ok
if how == "killed":
    go(scattered)
print("ready", flush=True)
if how == "exits at once":
    os._exit(0)
"""
# A tool that leaves something in a session of its own, as the server of a compiler cache is.
DAEMON = """
import subprocess, sys
null = subprocess.DEVNULL
p = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=null,
                     stdout=null, stderr=null, start_new_session=True)
print(p.pid)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[0] not in "ZX"
    return False


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.05)


def test_output_and_exit_code(tmp_path: Path) -> None:
    lines: list[str] = []
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    done = run(python(code), cwd=tmp_path, environ=os.environ, on_line=lines.append)
    assert (done.returncode, done.ok, done.output) == (3, False, "out\nerr\n")
    assert lines == ["out", "err"]


def test_it_runs_with_low_priority_in_its_own_session(tmp_path: Path) -> None:
    code = "import os, time; time.sleep(0.2); print(os.nice(0), os.getsid(0) == os.getpid())"
    done = run(python(code), cwd=tmp_path, environ=os.environ)
    assert done.output.split() == [str(max(NICENESS, os.nice(0))), "True"]


def test_cancel_ends_everything_at_once(tmp_path: Path) -> None:
    cancel = threading.Event()
    pids: list[int] = []
    cancelled_at = 0.0

    def see(line: str) -> None:
        nonlocal cancelled_at
        if line == "ready":
            cancelled_at = time.monotonic()
            cancel.set()
        else:
            pids.extend(map(int, line.split()))

    with pytest.raises(Interrupted):
        run(python(STUBBORN), cwd=tmp_path, environ=os.environ, cancel=cancel, on_line=see)
    assert time.monotonic() - cancelled_at < 3
    assert len(pids) == 2
    assert not any(map(alive, pids))


def test_a_limit_ends_it(tmp_path: Path) -> None:
    code = "import time; print('begun', flush=True); time.sleep(60)"
    done = run(python(code), cwd=tmp_path, environ=os.environ, limit=0.5)
    assert done.timed_out and not done.ok
    assert done.seconds < 5


def test_cancel_ends_what_runs_in_other_sessions(tmp_path: Path) -> None:
    cancel = threading.Event()
    pids: list[int] = []

    def see(line: str) -> None:
        if line == "ready":
            cancel.set()
        else:
            pids.extend(map(int, line.split()))

    with pytest.raises(Interrupted):
        run(python(SCATTERED), cwd=tmp_path, environ=os.environ, cancel=cancel, on_line=see)
    assert len(pids) == 3
    assert not any(map(alive, pids))


def test_a_killed_parent_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUNS, SCATTERED],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pids: list[int] = []
        for line in parent.stdout:
            if line.strip() == "ready":
                break
            pids.extend(map(int, line.split()))
        assert len(pids) == 3 and all(map(alive, pids))
        parent.send_signal(signal.SIGKILL)
        wait_until_gone(pids)


def test_a_process_that_ends_while_a_thread_runs_something_leaves_nothing(tmp_path: Path) -> None:
    code = RUNS.replace("thread.join()", "sys.stdin.read(1); os._exit(0)")
    with subprocess.Popen(
        [sys.executable, "-c", code, SCATTERED],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        pids: list[int] = []
        for line in parent.stdout:
            if line.strip() == "ready":
                break
            pids.extend(map(int, line.split()))
        parent.stdin.close()
        wait_until_gone(pids)


def test_a_run_within_a_run_carries_both_marks() -> None:
    assert watchdog.marked({"A": "1"}, "x") == {"A": "1", watchdog.VARIABLE: "x"}
    assert watchdog.marked({watchdog.VARIABLE: "x"}, "y")[watchdog.VARIABLE] == "x y"


@pytest.mark.parametrize("how", ["returns", "exits at once", "killed"])
def test_what_ends_by_itself_leaves_what_it_meant_to_leave(tmp_path: Path, how: str) -> None:
    """ssh's shared connection is one such: a later run uses it, and a later CuBridge too."""
    mark = uuid.uuid4().hex
    environ = watchdog.marked({**os.environ, "PYTHONPATH": str(ROOT)}, mark)
    try:
        with subprocess.Popen(
            [sys.executable, "-c", LEAVES, DAEMON, SCATTERED, how],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        ) as parent:
            assert parent.stdout is not None
            said = list(iter(parent.stdout.readline, "ready\n"))
            left, *running = map(int, " ".join(said).split())
            watching = watchdogs_of(mark)
            assert watching and alive(left) and all(map(alive, running))
            assert len(running) == (3 if how == "killed" else 0)
            parent.kill() if how == "killed" else parent.wait()
            wait_until_gone([*running, *watching])
        assert alive(left)
    finally:
        watchdog.end_carriers(mark)


def watchdogs_of(mark: str) -> list[int]:
    """The watchdogs among what carries the mark."""
    name = watchdog.__file__.encode()
    return [p for p in watchdog.carriers(mark) if name in Path(f"/proc/{p}/cmdline").read_bytes()]


def test_only_runs_that_are_not_over_are_ended() -> None:
    a, b, c = (uuid.uuid4().hex for _ in range(3))
    lines = [f"{line}\n".encode() for line in (f"+{a}", f"+{b}", f"-{a}", f"-{c}", f"+{c}")]
    assert watchdog.unfinished("", lines) == [b, c]
    assert watchdog.unfinished(a, []) == [a]
    assert watchdog.unfinished("", [b"+\n", b"+1\n", b"\n", b"what else comes", b"\xff"]) == []


def test_no_mark_ends_all_that_runs() -> None:
    for mark in ("", "1", "PATH"):
        with pytest.raises(ValueError, match="no mark of a run"):
            watchdog.end_carriers(mark)


def test_an_error_in_the_caller_leaves_nothing(tmp_path: Path) -> None:
    pids: list[int] = []

    def see(line: str) -> None:
        if line == "ready":
            raise ZeroDivisionError
        pids.extend(map(int, line.split()))

    with pytest.raises(ZeroDivisionError):
        run(python(STUBBORN), cwd=tmp_path, environ=os.environ, on_line=see)
    assert pids and not any(map(alive, pids))


def test_output_without_end_is_read_but_not_kept(tmp_path: Path) -> None:
    code = "import sys\nfor _ in range(40): sys.stdout.write('x' * (1 << 20))"
    done = run(python(code), cwd=tmp_path, environ=os.environ)
    assert done.ok
    assert 16 << 20 <= len(done.output) < 17 << 20


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match="cannot be started"):
        run([str(tmp_path / "no")], cwd=tmp_path, environ=os.environ)
