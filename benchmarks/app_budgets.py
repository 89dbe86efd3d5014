"""The app's budgets: first frame, and key to repaint: `python benchmarks/app_budgets.py`.

Writes benchmarks/results/app_budgets.json (`--json FILE`: another file). Wall time is what a person
waits on this machine with all that it does; CPU time is that of the app's own process. Each row
says how much of the processors the host kept for others meanwhile (steal), how much was idle, and
the load. The first frame is taken on a pseudo-terminal of 120 x 40; `app_keys.py` tells of keys.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from app_keys import summary  # noqa: E402
from machine_state import Watched, described  # noqa: E402

from tests.cubridge_tui.terminal import Terminal  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "app_budgets.json"
FIRST_FRAMES, FIRST_FRAME_MS = 20, 600
SHOWN = b"Next:"  # the decision line, which the start screen's first frame has


def first_frame(environment: dict[str, str]) -> tuple[float, float]:
    """From the start of Python to the start screen on the terminal: wall and CPU milliseconds."""
    begin = time.perf_counter()
    with Terminal(environment, 120, 40) as terminal:
        while SHOWN not in terminal.raw:
            if not select.select([terminal.master], [], [], 30)[0]:
                raise SystemExit(f"no first frame within 30 s:\n{terminal.raw[-2000:]!r}")
            terminal.raw += os.read(terminal.master, 65536)
        wall = 1000 * (time.perf_counter() - begin)
        stat = Path(f"/proc/{terminal.process.pid}/stat").read_text()
    fields = stat.rsplit(")", 1)[1].split()
    return wall, 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_frames() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="cubridge-bench-") as folder, Watched() as seen:
        environment = {n: f"{folder}/{n}" for n in ("XDG_STATE_HOME", "XDG_CONFIG_HOME")}
        environment["CUBRIDGE_STORE"] = f"{folder}/store.git"
        first_frame(environment)  # writes the bytecode, which the first start of all has to
        times = [first_frame(environment) for _ in range(FIRST_FRAMES)]
    wall, cpu = zip(*times, strict=True)
    return {**summary("first frame", [*wall], [*cpu], FIRST_FRAME_MS), **seen.found}


def keys() -> list[dict[str, Any]]:
    """In a process of its own: this one knows more than an app does."""
    command = [sys.executable, str(ROOT / "benchmarks" / "app_keys.py")]
    made = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    rows: list[dict[str, Any]] = json.loads(made.stdout.splitlines()[-1])
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", type=Path, default=RESULTS, help="where to write the rows")
    parser.add_argument("--only", choices=("first-frame", "keys"), help="measure only these")
    args = parser.parse_args()
    # Children write their bytecode as they do for a person; this process may be told otherwise.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows = [] if args.only == "keys" else [first_frames()]
    rows += [] if args.only == "first-frame" else keys()
    for row in rows:
        print(
            f"{row['name']:<42} {row['runs']:3} x  wall p50 {row['wall_p50_ms']:6.1f} p95 "
            f"{row['wall_p95_ms']:6.1f} ms  cpu p50 {row['cpu_p50_ms']:6.1f} p95 "
            f"{row['cpu_p95_ms']:6.1f} ms  budget {row['budget_ms']} ms  "
            f"steal {row['steal_percent']}% idle {row['idle_percent']}% load {row['load_before']}"
        )
    result = {"machine": described(), "rows": rows}
    args.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
