"""What works beside an app gives way to it, though each tool runs in a session of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.build.tools import process
from engine.child.environment import child_command, child_environment
from engine.priority import NICENESS, standing_back

SECONDS = 60.0
ROOT = Path(__file__).resolve().parents[2]


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

# Runs a tool whose child, in a process group of its own as ninja's are, says its session's group
# once it is `wanted`, or what it is after a minute.
RUNS = """
import os, sys
from pathlib import Path
from engine.build.tools.process import run
from engine.priority import stand_back
if wanted := int(sys.argv[1]):
    while not stand_back(wanted):
        pass
tool = '''
import subprocess, sys
child = \"\"\"
import sys, time
end = time.monotonic() + 60
def group():
    return open("/proc/self/autogroup").read().split()[-1]
while group() != sys.argv[1] and time.monotonic() < end:
    time.sleep(0.01)
print(group())
\"\"\"
subprocess.run([sys.executable, "-c", child, sys.argv[1]], process_group=0, check=True)
'''
argv = [sys.executable, "-c", tool, sys.argv[1]]
print(run(argv, cwd=Path.cwd(), environ=os.environ).output, end="")
"""


@needs_autogroups
@pytest.mark.parametrize("niceness", [0, NICENESS, 3])
def test_a_tool_and_all_that_it_starts_give_way_as_who_runs_it(niceness: int) -> None:
    ours = group_of("self")
    argv = [sys.executable, "-c", RUNS, str(niceness)]
    done = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, check=True, start_new_session=True
    )
    assert (done.stdout.strip(), group_of("self")) == (str(niceness), ours)


@needs_autogroups
def test_g3_beside_an_app_gives_way() -> None:
    ours = group_of("self")
    with subprocess.Popen(
        child_command("engine.gates.g3_source.g3_process"), env=child_environment(),
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
    ) as judge:  # fmt: skip
        end = time.monotonic() + SECONDS
        while group_of(judge.pid) != NICENESS and time.monotonic() < end:
            time.sleep(0.01)
        assert (group_of(judge.pid), group_of("self")) == (NICENESS, ours)
        judge.kill()


def test_what_the_kernel_refused_for_now_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    enough = tmp_path / "enough"

    def refused_twice(niceness: int, session: int) -> bool:
        asked.append((niceness, session))
        if len(asked) > 2:
            enough.touch()
        return enough.exists()

    monkeypatch.setattr(process, "standing_back", lambda: 7)
    monkeypatch.setattr(process, "stand_back", refused_twice)
    waits = "import os, sys, time\nprint(os.getpid(), flush=True)\n"
    waits += "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint('more')\n"
    argv = [sys.executable, "-c", waits, str(enough)]
    done = process.run(argv, cwd=tmp_path, environ=os.environ, limit=SECONDS)
    assert asked == [(7, int(done.output.split()[0]))] * 3


def test_who_does_not_stand_back_is_not_nice() -> None:
    assert standing_back() == (group_of("self") or 0)
