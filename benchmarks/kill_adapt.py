"""kill -9 `cubridge adapt` at random moments: the store opens, acknowledged events are there.

    python benchmarks/kill_adapt.py [--times 50] [--seed 0]

An event is acknowledged when the command says so: the narration line after each stage is printed
only once its events are on the disk.
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
from pathlib import Path

from engine.resources import specs_dir
from sessions.store import Store

GATE_OF = {"lifted": "G1", "target": "G2", "lowered": "G3", "verified": "G4"}


def one(folder: Path, delay: float) -> str:
    """Start an adaptation, kill it after `delay` seconds, and check the store; a line of words."""
    place = folder / "store.git"
    environ = os.environ | {"CUBRIDGE_STORE": str(place)}
    command = [
        sys.executable, "-m", "cubridge_tui", "adapt", "--kernel", "flash_fwd_sm80",
        "--spec", str(specs_dir() / "softcap_causal.py"), "--accept",
    ]  # fmt: skip
    said: list[str] = []
    with subprocess.Popen(
        command, env=environ, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        reader.start()
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGKILL)
        reader.join(2)
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
    return f"{state.count} events, {len(gates)} verdicts, {'accepted' if state.acceptance else ''}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--longest", type=float, default=9.0, help="seconds before the kill at most"
    )
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.times):
            delay = rng.uniform(0.1, args.longest)
            print(
                f"{number + 1:3} killed after {delay:4.1f} s: {one(Path(folder), delay)}",
                flush=True,
            )
    print(f"{args.times} kills, nothing acknowledged was lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
