"""Key to repaint while the engine works: `python benchmarks/app_under_load.py [--json FILE]`.

Four 5,000-line panes at 300 x 80, headless, in three situations: idle; G2 running in the torch
child; nvcc compiling every specialisation (a cache of its own). In the last two a stream of 200
lines a second arrives as well, as a model's or a compiler's does. Wall time says what a person
feels on this machine with all that it does; CPU time is this process's own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual import events

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
LINES, KEYS, BUDGET_MS = 5000, 60, 50
STREAM_SECONDS = 0.005
PACE_SECONDS = 0.07


def summary(name: str, wall: list[float], cpu: list[float], note: str = "") -> dict[str, Any]:
    """Median and 95th percentile (nearest rank), in milliseconds."""

    def at(values: list[float], share: float) -> float:
        return round(sorted(values)[max(int(len(values) * share + 0.999) - 1, 0)], 1)

    return {
        "name": name, "runs": len(wall), "budget_ms": BUDGET_MS, "note": note,
        "wall_p50_ms": at(wall, 0.5), "wall_p95_ms": at(wall, 0.95),
        "cpu_p50_ms": at(cpu, 0.5), "cpu_p95_ms": at(cpu, 0.95),
    }  # fmt: skip


class Repaints:
    """Times from a key to the end of the repaint that shows it, terminal codes included.

    The app's own `_display` is watched; Textual's pilot is no clock, as it waits until the whole
    process is at rest.
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        self._done = asyncio.Event()
        self._moved: Callable[[], bool] = lambda: False
        self._display = app._display
        app._display = self._painted

    def _painted(self, screen: Any, renderable: Any) -> None:
        self._display(screen, renderable)
        if hasattr(renderable, "render_segments"):
            renderable.render_segments(self.app.console)  # what a terminal would be sent
        if self._moved():
            self._done.set()

    async def press(self, key: str) -> tuple[float, float]:
        """Wall and CPU milliseconds of one key that moves the cursor or the focus."""
        before = self._place()
        self._moved = lambda: self._place() != before
        self._done.clear()
        character = key if len(key) == 1 else None
        begin, begun = time.perf_counter(), time.process_time()
        self.app.post_message(events.Key(key, character))
        await asyncio.wait_for(self._done.wait(), 10)
        return 1000 * (time.perf_counter() - begin), 1000 * (time.process_time() - begun)

    def _place(self) -> tuple[Any, Any]:
        return self.app.focused, getattr(self.app.focused, "cursor", None)


async def keys(app: Any, repaints: Repaints, name: str, busy: Callable[[], bool]) -> dict[str, Any]:
    """Press keys for as long as the situation lasts, some fifteen a second."""
    wall: list[float] = []
    cpu: list[float] = []
    for key in ["j", "k", "pagedown", "j", "tab", "pagedown"] * (KEYS // 6):
        if not busy():
            break
        took, spent = await repaints.press(key)
        wall.append(took)
        cpu.append(spent)
        await asyncio.sleep(PACE_SECONDS)
    note = "" if len(wall) == KEYS else f"it ended after {len(wall)} keys"
    return summary(name, wall or [0.0], cpu or [0.0], note)


async def idle(app: Any, pilot: Any) -> None:
    await pilot.pause()
    while app.jobs.busy:
        await asyncio.sleep(0.05)
    await pilot.pause()


def enlarge(screen: Any) -> None:
    """Every pane with 5,000 lines of its own text."""
    panes = {}
    for view, by_stage in screen.snap.panes.items():
        panes[view] = {}
        for stage, text in by_stage.items():
            base = text.rows or next(t.rows for t in by_stage.values() if t.rows)
            rows = tuple(
                replace(base[i % len(base)], number=i + 1, key=("lifted", ("f", i)))
                for i in range(LINES)
            )
            panes[view][stage] = replace(text, rows=rows, version=f"large {stage}")
    screen.show(replace(screen.snap, panes=panes))


async def measure() -> list[dict[str, Any]]:
    from cubridge_tui.app import CuBridgeApp
    from cubridge_tui.desk import begin
    from engine.service.bench import Bench, find_spec
    from sessions.store import Store

    with Bench(Store.open()) as bench:
        session = begin(bench, "flash_fwd_sm80", find_spec("softcap_causal"), "bench")
    app = CuBridgeApp(session=session)
    out: list[dict[str, Any]] = []
    streaming = threading.Event()

    def stream() -> None:
        count = 0
        while not app.jobs._closed:
            if streaming.is_set():
                count += 1
                app.jobs.progress(f"line {count}: s = keep(s, lambda i, j: j <= i) [/] " + "x" * 60)
            time.sleep(STREAM_SECONDS)

    async with app.run_test(size=(300, 80)) as pilot:
        await idle(app, pilot)
        screen: Any = app.action_screen
        threading.Thread(target=stream, daemon=True).start()
        desk = screen.open_desk
        for work in (desk.work.lift, desk.work.propose_by_rules):
            screen.job("prepare", work)
            await idle(app, pilot)
        desk.accept_rest(desk.work.state.proposals[0])
        screen.job("look", desk.snapshot, quiet=True)
        await idle(app, pilot)
        enlarge(screen)
        await pilot.pause(0.5)
        screen.grid.leader.focus()
        repaints = Repaints(app)
        out.append(await keys(app, repaints, "idle", lambda: True))
        for name, work in (
            ("G2 and a stream", desk.work.judge_target),
            ("nvcc and a stream", lambda: desk.work.judge_lowered(desk.work.lower())),
        ):
            streaming.set()
            screen.job(name, work)
            await asyncio.sleep(0.5)
            out.append(await keys(app, repaints, name, lambda: app.jobs.busy))
            streaming.clear()
            app.jobs.stop()
            await idle(app, pilot)
    app.close()
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", type=Path, help="also write the rows there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cubridge-bench-") as folder:
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            os.environ[name] = f"{folder}/{name.lower()}"
        os.environ["CUBRIDGE_STORE"] = f"{folder}/store.git"
        rows = asyncio.run(measure())
    for row in rows:
        print(
            f"{row['name']:<20} {row['runs']:3} keys  wall p50 {row['wall_p50_ms']:6.1f} p95 "
            f"{row['wall_p95_ms']:6.1f} ms   cpu p50 {row['cpu_p50_ms']:6.1f} p95 "
            f"{row['cpu_p95_ms']:6.1f} ms   budget {BUDGET_MS} ms  {row['note']}"
        )
    if args.json is not None:
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        result = {"machine": machine, "load": round(os.getloadavg()[0], 1), "rows": rows}
        args.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
