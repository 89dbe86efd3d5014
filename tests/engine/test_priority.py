"""Work in sessions of their own gives way to the session that paints, not only inside its own."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from engine.build import process
from engine.child.client import Child
from engine.priority import CHILD_NICENESS

SECONDS = 60.0


def group_of(pid: int | str) -> int | None:
    """The nice value of a process's autogroup; None where this kernel has none."""
    try:
        words = Path(f"/proc/{pid}/autogroup").read_text().split()
    except OSError:
        return None
    return int(words[-1]) if words else None


needs_autogroups = pytest.mark.skipif(
    group_of("self") is None, reason="this kernel groups no sessions"
)

# A tool's own child, in a process group of its own as ninja's are, says its group's nice value
# once that is not what a new session has.
GRANDCHILD = """
import subprocess, sys
inner = '''
import time
end = time.monotonic() + 60
while (nice := open("/proc/self/autogroup").read().split()[-1]) == "0" and time.monotonic() < end:
    time.sleep(0.01)
print(nice)
'''
subprocess.run([sys.executable, "-c", inner], process_group=0, check=True)
"""


@needs_autogroups
@pytest.mark.parametrize("niceness", [process.NICENESS, 3])
def test_a_tool_and_all_that_it_starts_give_way(tmp_path: Path, niceness: int) -> None:
    ours = group_of("self")
    argv = [sys.executable, "-c", GRANDCHILD]
    done = process.run(argv, cwd=tmp_path, environ=os.environ, niceness=niceness)
    assert (done.output.strip(), group_of("self")) == (str(niceness), ours)


@needs_autogroups
def test_the_process_that_runs_specs_gives_way() -> None:
    ours = group_of("self")
    with Child() as child:
        child.start()
        assert child.pid is not None
        end = time.monotonic() + SECONDS
        while group_of(child.pid) != CHILD_NICENESS and time.monotonic() < end:
            time.sleep(0.01)
        assert (group_of(child.pid), group_of("self")) == (CHILD_NICENESS, ours)


def test_what_the_kernel_refused_for_now_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    enough = tmp_path / "enough"

    def refused_twice(niceness: int, leader: int) -> bool:
        asked.append((niceness, leader))
        if len(asked) > 2:
            enough.touch()
        return enough.exists()

    monkeypatch.setattr(process, "stand_back", refused_twice)
    waits = "import os, sys, time\nprint(os.getpid(), flush=True)\n"
    waits += "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint('more')\n"
    argv = [sys.executable, "-c", waits, str(enough)]
    done = process.run(argv, cwd=tmp_path, environ=os.environ, niceness=7, limit=SECONDS)
    assert asked == [(7, int(done.output.split()[0]))] * 3
