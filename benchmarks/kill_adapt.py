"""kill -9 `cubridge adapt` at random moments: the store opens, acknowledged events are there, and
nothing that it started is left.

    python benchmarks/kill_adapt.py [--times 50] [--seed 0] [--longest SECONDS]

Only the command's own process is killed, as a machine that is short of memory does it. An event
is acknowledged when the command says so: the narration line after each stage is printed only once
its events are on the disk. Each run has caches of its own, so that kills meet compilers too; the
moments are spread over what one whole adaptation takes, which is measured first.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.machine_state import Watched, described  # noqa: E402
from engine.build.tools import watchdog  # noqa: E402
from engine.resources import specs_dir  # noqa: E402
from sessions.store import Store  # noqa: E402

GATE_OF = {"lifted": "G1", "target": "G2", "lowered": "G3", "verified": "G4"}
LEAVES = 10.0  # seconds that what the command started has at most to end


def command_of() -> list[str]:
    return [
        sys.executable, "-m", "cubridge_tui", "adapt", "--kernel", "flash_fwd_sm80",
        "--spec", str(specs_dir() / "softcap_causal.py"), "--accept",
    ]  # fmt: skip


def environ_of(folder: Path, number: int, mark: str) -> dict[str, str]:
    """The store is one for all runs; the caches are this run's own."""
    environ = watchdog.marked(dict(os.environ), mark)
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ | {
        "CUBRIDGE_STORE": str(folder / "store.git"),
        "XDG_CACHE_HOME": str(folder / f"cache-{number}"),
    }


def whole(folder: Path) -> float:
    """Seconds of an adaptation that nobody kills."""
    begin = time.monotonic()
    environ = environ_of(folder, 0, uuid.uuid4().hex)
    subprocess.run(command_of(), env=environ, cwd=ROOT, check=True, capture_output=True)
    return time.monotonic() - begin


def one(folder: Path, number: int, delay: float) -> str:
    """Start an adaptation, kill it after `delay` seconds, and look at what is left; in words."""
    mark = uuid.uuid4().hex
    said: list[str] = []
    with subprocess.Popen(
        command_of(), env=environ_of(folder, number, mark), cwd=ROOT,
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        reader.start()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        process.wait()
        at_once = names_of(watchdog.carriers(mark))
        while left := watchdog.carriers(mark):
            names = names_of(left)
            assert time.monotonic() - killed < LEAVES, f"still there after {LEAVES} s: {names}"
            time.sleep(0.02)
        gone = time.monotonic() - killed
        reader.join(10)
    running = f"{', '.join(at_once)} gone after {gone:.2f} s" if at_once else "nothing ran"
    return f"{state_of(folder / 'store.git', said)}; {running}"


def state_of(place: Path, said: list[str]) -> str:
    """What the store holds; AssertionError where something that was told is not there."""
    session = next((line.split()[1] for line in said if line.startswith("session ")), None)
    if session is None:
        return "before the session"
    state = Store.open(place).load(session).state
    gates = {v.gate.value for v in state.verdicts}
    told = [line.split()[0] for line in said if line.split() and line.split()[0] in GATE_OF]
    for stage in told:
        assert GATE_OF[stage] in gates, f"{stage} was told and is lost: {gates}"
    if any(line.startswith("accepted") for line in said):
        assert state.acceptance is not None, "an acceptance was told and is lost"
    accepted = ", accepted" if state.acceptance else ""
    return f"{state.count} events, {len(gates)} verdicts{accepted}"


def names_of(pids: list[int]) -> list[str]:
    """The programs that these processes run, each once."""
    names = set()
    for pid in pids:
        try:
            names.add(Path(f"/proc/{pid}/comm").read_text().strip())
        except OSError:
            continue
    return sorted(names)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--longest", type=float, help="seconds before the kill at most; default: one adaptation's"
    )
    args = parser.parse_args()
    rng = random.Random(args.seed)
    print(", ".join(f"{name} {value}" for name, value in described().items()), flush=True)
    with tempfile.TemporaryDirectory() as place, Watched() as seen:
        folder = Path(place)
        longest = args.longest or whole(folder)
        print(f"kills within {longest:.1f} s", flush=True)
        for number in range(1, args.times + 1):
            delay = rng.uniform(0.1, longest)
            print(
                f"{number:3} killed after {delay:4.1f} s: {one(folder, number, delay)}", flush=True
            )
    print(", ".join(f"{name} {value:g}" for name, value in seen.found.items()))
    print(f"{args.times} kills, nothing acknowledged was lost, no process was left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
