"""Children end: by themselves, at a limit, at once on cancel, with everything they started."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from engine.build.process import NICENESS, run
from engine.errors import Interrupted, MissingTool

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


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[0] not in "ZX"
    return False


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
