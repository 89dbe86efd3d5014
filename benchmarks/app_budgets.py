"""The app's budgets: first frame, and key to repaint with 5,000-line artifacts in all four panes.

`python benchmarks/app_budgets.py [--json FILE]`. Both wall and CPU time are measured: on a machine
that is busy with other work only the CPU time says something. The app runs headless at 300 x 80;
a key's time is from its press to the end of the repaint that it causes; the wall time of a key also
holds the test pilot's own waits (some 50 ms), its CPU time does not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINES = 5000
RUNS = 20


def p95(values: list[float]) -> float:
    """The 95th percentile, nearest rank."""
    return sorted(values)[max(int(len(values) * 0.95 + 0.999) - 1, 0)]


def summary(name: str, wall: list[float], cpu: list[float], budget: float) -> dict[str, Any]:
    return {
        "name": name, "runs": len(wall), "budget_ms": budget,
        "wall_p50_ms": round(sorted(wall)[len(wall) // 2], 1), "wall_p95_ms": round(p95(wall), 1),
        "cpu_p50_ms": round(sorted(cpu)[len(cpu) // 2], 1), "cpu_p95_ms": round(p95(cpu), 1),
    }  # fmt: skip


def first_frame(environment: dict[str, str]) -> dict[str, Any]:
    """From the start of Python to the start screen on the terminal."""
    sys.path.insert(0, str(ROOT))
    from tests.cubridge_tui.terminal import Terminal

    wall: list[float] = []
    cpu: list[float] = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        with Terminal(environment, 120, 40) as terminal:
            terminal.wait_for("Next:")
            wall.append(1000 * (time.perf_counter() - begin))
            stat = Path(f"/proc/{terminal.process.pid}/stat").read_text()
            fields = stat.rsplit(")", 1)[1].split()
            ticks = int(fields[11]) + int(fields[12])
            cpu.append(1000 * ticks / os.sysconf("SC_CLK_TCK"))
    return summary("first frame", wall, cpu, 1200)


async def keys() -> list[dict[str, Any]]:
    """Keys on panes of 5,000 lines each."""
    from cubridge_tui.app import CuBridgeApp
    from cubridge_tui.desk import begin
    from engine.service.bench import Bench, find_spec
    from engine.types import Stage
    from sessions.store import Store

    with Bench(Store.open()) as bench:
        session = begin(bench, "flash_fwd_sm80", find_spec("softcap_causal"), "bench")
    app = CuBridgeApp(session=session)
    out: list[dict[str, Any]] = []
    async with app.run_test(size=(300, 80)) as pilot:
        while getattr(app.action_screen, "snap", None) is None:
            await pilot.pause(0.05)
        screen: Any = app.action_screen
        source = screen.snap.panes[screen.view][Stage.SOURCE]
        rows = tuple(
            replace(source.rows[i % len(source.rows)], number=i + 1, key=("lifted", ("f", i)))
            for i in range(LINES)
        )
        panes = {
            view: {stage: replace(source, rows=rows) for stage in by_stage}
            for view, by_stage in screen.snap.panes.items()
        }
        screen.show(replace(screen.snap, panes=panes))
        await pilot.pause(0.5)
        for name, key in (("cursor down", "j"), ("page down", "pagedown"), ("other pane", "tab")):
            wall: list[float] = []
            cpu: list[float] = []
            for _ in range(2 * RUNS):
                start, begun = time.perf_counter(), time.process_time()
                await pilot.press(key)
                wall.append(1000 * (time.perf_counter() - start))
                cpu.append(1000 * (time.process_time() - begun))
            out.append(summary(f"key to repaint: {name}", wall, cpu, 50))
    app.close()
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keys-only", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.keys_only:
        print(json.dumps(asyncio.run(keys())))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        names = ("XDG_STATE_HOME", "XDG_CONFIG_HOME")
        environment = {name: f"{folder}/{name}" for name in names}
        environment["CUBRIDGE_STORE"] = f"{folder}/store.git"
        rows = [first_frame(environment)]
        made = subprocess.run(
            [sys.executable, __file__, "--keys-only"], cwd=ROOT, check=True, capture_output=True,
            env={**os.environ, **environment, "PYTHONPATH": str(ROOT)}, text=True,
        )  # fmt: skip
        rows += json.loads(made.stdout.splitlines()[-1])
    for row in rows:
        print(
            f"{row['name']:<32} wall p50 {row['wall_p50_ms']:7.1f} p95 {row['wall_p95_ms']:7.1f} ms"
            f"   cpu p50 {row['cpu_p50_ms']:7.1f} p95 {row['cpu_p95_ms']:7.1f} ms"
            f"   budget {row['budget_ms']} ms"
        )
    if args.json:
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        load = os.getloadavg()[0]
        result = {"machine": machine, "load": round(load, 1), "rows": rows}
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
