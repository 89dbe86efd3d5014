"""Key to repaint: `python benchmarks/app_keys.py`; `app_budgets.py` runs it and writes the results.
`--kind` and `--load` measure some rows only.

Four panes of 5,000 lines at 300 x 80, headless, in three situations: idle; G2 running in the torch
child; nvcc compiling every specialisation. In the last two a stream of 200 lines a second arrives
as well, as a model's or a compiler's does, and what ends is begun again until all keys were
pressed. A key's time goes from its arrival to the end of the last repaint that it causes, the codes
for the terminal included. Wall time is what a person feels on this machine with all that it does;
CPU time is that of the app's own process, all its threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from machine_state import Watched  # noqa: E402
from textual import events  # noqa: E402
from textual.scroll_view import ScrollView  # noqa: E402

LINES, KEYS, BUDGET_MS = 5000, 60, 35
STREAM_SECONDS = 0.005
PACE_SECONDS = 0.07  # between a repaint and the next key
FAR = "gemm(s, sQ"  # stands once in a copy of the text
SITUATIONS = ("idle", "G2", "nvcc")
# What is pressed for each kind of key, over and over.
KINDS = {
    "cursor": ("j", "j", "k"),
    "page": ("pagedown",),
    "page seen before": ("pagedown", "pageup"),
    "other pane": ("tab",),
    "follow in every pane": ("n",),  # to an op far away, in all four
    "layout": ("1", "0", "z", "z"),
    "overview of 200 hunks": ("j", "j", "k", "pagedown", "k", "pageup"),
    "timeline of 1,000 events": ("right", "down", "right", "plus", "up", "minus"),
}
HUNKS, EVENTS = 200, 1000


def summary(name: str, wall: list[float], cpu: list[float], budget: float) -> dict[str, Any]:
    """Median and 95th percentile (nearest rank), in milliseconds."""

    def at(values: list[float], share: float) -> float:
        return round(sorted(values)[max(math.ceil(share * len(values)) - 1, 0)], 1)

    return {
        "name": name, "runs": len(wall), "budget_ms": budget,
        "wall_p50_ms": at(wall, 0.5), "wall_p95_ms": at(wall, 0.95),
        "cpu_p50_ms": at(cpu, 0.5), "cpu_p95_ms": at(cpu, 0.95),
    }  # fmt: skip


class Repaints:
    """The times from a key to the end of what it makes the screen paint.

    The app's own `_display` is watched; Textual's pilot is no clock, as it waits until the whole
    process is at rest.
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        self._ends: list[tuple[float, float]] = []
        self._display = app._display
        app._display = self._painted

    def _painted(self, screen: Any, renderable: Any) -> None:
        self._display(screen, renderable)
        if renderable is None:
            return  # nothing had changed: nothing is sent
        if hasattr(renderable, "render_segments"):
            renderable.render_segments(self.app.console)  # what a terminal would be sent
        self._ends.append((time.perf_counter(), time.process_time()))

    async def press(self, key: str) -> tuple[float, float]:
        """Wall and CPU milliseconds of one key that moves something."""
        before = self._place()
        self._ends.clear()
        begin, begun = time.perf_counter(), time.process_time()
        self.app.post_message(events.Key(key, key if len(key) == 1 else None))
        async with asyncio.timeout(60):
            while self._place() == before or not self._ends or self._unpainted():
                await asyncio.sleep(0.001)
        end, ended = self._ends[-1]
        return 1000 * (end - begin), 1000 * (ended - begun)

    def _place(self) -> tuple[Any, ...]:
        screen = self.app.action_screen
        grid = getattr(screen, "grid", None)
        panes = grid.panes.values() if grid else screen.query(ScrollView).results(ScrollView)
        at = [
            (p.scroll_offset, p.size, *(getattr(p, n, None) for n in ("cursor", "event", "scale")))
            for p in panes
        ]
        return self.app.focused, grid and grid._shown, *at

    def _unpainted(self) -> bool:
        """Whether anything waits to be handled or painted."""
        screen = self.app.screen
        waits = screen._dirty_widgets or screen._layout_required or screen._repaint_required
        widgets = (screen, *screen.walk_children())
        return (
            bool(waits or screen._scroll_required or screen._callbacks)
            or any(w._repaint_required for w in widgets)
            or any(not w._message_queue.empty() for w in (self.app, *widgets))
        )


class Load:
    """Work that goes on for as long as keys are pressed; `times` counts how often it was begun."""

    def __init__(self, app: Any, name: str, work: Callable[[], object] | None) -> None:
        self.app, self.name, self.work, self.times = app, name, work, 0

    async def keep(self) -> None:
        if self.work is not None and not self.app.jobs.busy:
            self.times += 1
            self.app.jobs.submit(self.name, self.work, lambda _: None)
            await asyncio.sleep(0.3)


async def kind_of_key(repaints: Repaints, kind: str, load: Load) -> dict[str, Any]:
    """Press the keys of a kind under a load."""
    wall: list[float] = []
    cpu: list[float] = []
    if "n" in KINDS[kind]:
        load.app.action_screen._search(FAR)
        await asyncio.sleep(0.3)  # its own repaint is no key's
    while len(wall) < KEYS:
        for key in KINDS[kind]:
            await load.keep()
            took, spent = await repaints.press(key)
            wall.append(took)
            cpu.append(spent)
            await asyncio.sleep(PACE_SECONDS)
    return summary(f"{kind}, {load.name}", wall[:KEYS], cpu[:KEYS], BUDGET_MS)


async def idle(app: Any, pilot: Any) -> None:
    await pilot.pause()
    while app.jobs.busy:
        await asyncio.sleep(0.05)
    await pilot.pause()


def enlarge(screen: Any) -> None:
    """Every pane with 5,000 lines: its own text over and over, each copy with ops of its own."""
    snap = screen.snap
    around, blocks = {}, set()

    def of_copy(key: Any, copy: int) -> Any:
        return None if key is None else (key[0], (f"copy{copy}", *key[1]))

    panes: dict[Any, Any] = {}
    copies = 0
    for view, by_stage in snap.panes.items():
        panes[view] = {}
        for stage, text in by_stage.items():
            base = text.rows or next(t.rows for t in by_stage.values() if t.rows)
            copies = max(copies, LINES // len(base) + 1)
            rows = tuple(
                replace(
                    base[i % len(base)], number=i + 1,
                    key=of_copy(base[i % len(base)].key, i // len(base)),
                )
                for i in range(LINES)
            )  # fmt: skip
            panes[view][stage] = replace(text, rows=rows, version=f"large {stage}")
    for copy in range(copies):
        for key, place in snap.links.around.items():
            made = place._replace(
                loop=of_copy(place.loop, copy), worker=of_copy(place.worker, copy)
            )
            around[of_copy(key, copy)] = made
        blocks |= {of_copy(key, copy) for key in snap.links.blocks}
    links = replace(snap.links, around=around, blocks=frozenset(blocks))
    screen.show(replace(snap, panes=panes, links=links))


def many_hunks(screen: Any) -> Any:
    """All hunks in a list, each of them over and over with a name of its own."""
    from cubridge_tui.screens.overview import OverviewScreen

    snap = screen.snap
    hunks = [
        (proposal, replace(hunk, id=f"{hunk.id}x{n // len(snap.hunks)}"), decision)
        for n in range(HUNKS)
        for proposal, hunk, decision in (snap.hunks[n % len(snap.hunks)],)
    ]
    screen.snap = replace(snap, hunks=tuple(hunks))
    return OverviewScreen(screen, "")


def many_events(screen: Any) -> Any:
    """Two timelines of the same eight lanes, a thousand events in all."""
    from cubridge_tui.screens.adaptation.cost_screen import CostScreen
    from engine.cost.timeline.events import KINDS as EVENT_KINDS
    from engine.cost.timeline.events import Event, Timeline

    events = tuple(
        Event(n % 8, "map", EVENT_KINDS[n % 5], 90.0 * (n // 8), 90.0 * (n // 8) + 80.0)
        for n in range(EVENTS // 2)
    )
    lanes = tuple(f"warpgroup {n}" for n in range(8))
    made = Timeline("k", lanes, events, (0.0, 2000.0), 2000.0, 2000.0, 1, {"tensor cores": 0.5})
    name = screen.snap.state.hashes["target"]
    screen.costs = replace(screen.costs, timelines={"expert": made, name: made})
    return CostScreen(screen)


SCREENS = {"overview of 200 hunks": many_hunks, "timeline of 1,000 events": many_events}


async def measure(kinds: Collection[str], situations: Collection[str]) -> list[dict[str, Any]]:
    from cubridge_tui.app import CuBridgeApp
    from cubridge_tui.desk import begin
    from cubridge_tui.steady import steady
    from engine.service.session.workbench import Bench, cache_dir, find_spec
    from sessions.store import Store

    with Bench(Store.open()) as bench:
        session = begin(bench, "flash_fwd_sm80", find_spec("softcap_causal"), "bench")
    steady()  # as the app on a terminal is
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
        screen.job("prepare", desk.work.lower)
        await idle(app, pilot)
        screen.job("look", desk.snapshot, quiet=True)
        await idle(app, pilot)
        enlarge(screen)
        await pilot.pause(0.5)
        repaints = Repaints(app)

        def compile_anew() -> object:
            shutil.rmtree(cache_dir() / "build", ignore_errors=True)
            return desk.work.judge_lowered(desk.work.lower())

        loads = (
            Load(app, "idle", None),
            Load(app, "G2 and a stream", desk.work.judge_target),
            Load(app, "nvcc and a stream", compile_anew),
        )
        for load in loads:
            if load.name.split()[0] not in situations:
                continue
            if load.work is not None:
                streaming.set()
            for kind in kinds:
                screen.grid.leader.go_to(0)
                screen._search("")
                snap = screen.snap
                if kind in SCREENS:
                    await app.push_screen(SCREENS[kind](screen))
                await asyncio.sleep(0.3)
                with Watched() as seen:
                    row = await kind_of_key(repaints, kind, load)
                if kind in SCREENS:
                    app.pop_screen()
                    screen.snap = snap
                out.append({**row, **seen.found})
            streaming.clear()
            app.jobs.stop()
            await idle(app, pilot)
            for row in out[-len(kinds) :]:
                row["load_begun"] = load.times
    app.close()
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these keys")
    parser.add_argument("--load", choices=SITUATIONS, action="append", help="only beside these")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cubridge-bench-") as folder:
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            os.environ[name] = f"{folder}/{name.lower()}"
        os.environ["CUBRIDGE_STORE"] = f"{folder}/store.git"
        rows = asyncio.run(measure(args.kind or [*KINDS], args.load or SITUATIONS))
        print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
