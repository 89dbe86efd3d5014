"""The bench of keys measures what it says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import app_keys
from cubridge_tui.app import CuBridgeApp
from engine.types import Stage
from tests.cubridge_tui.conftest import settled
from tests.cubridge_tui.made import TableChild, placed
from tests.engine.transfer.recipes import VARIANTS


def test_percentiles_are_by_nearest_rank() -> None:
    row = app_keys.summary("x", [float(i) for i in range(1, 21)], [1.0] * 20, 50)
    assert (row["wall_p50_ms"], row["wall_p95_ms"], row["cpu_p95_ms"]) == (10.0, 19.0, 1.0)


async def test_a_key_is_timed_to_the_end_of_its_repaint_on_large_panes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CuBridgeApp, "_warm_up", lambda self: None)
    path = tmp_path / "store.git"
    app = CuBridgeApp(str(path), session=placed(path, Stage.LOWERED))
    app.bench.child = TableChild(VARIANTS["softcap_causal"])  # type: ignore[assignment]
    async with app.run_test(size=(300, 80)) as pilot:
        await settled(app, pilot)
        screen: Any = app.action_screen
        app_keys.enlarge(screen)
        await settled(app, pilot)
        panes = screen.grid.panes.values()
        assert all(len(p.content.rows) == app_keys.LINES for p in panes)
        repaints = app_keys.Repaints(app)
        for kind, keys in app_keys.KINDS.items():
            screen.grid.leader.go_to(0)
            screen._search(app_keys.FAR if "n" in keys else "")
            await settled(app, pilot)
            snap = screen.snap
            if kind in app_keys.SCREENS:
                await app.push_screen(app_keys.SCREENS[kind](screen))
                await settled(app, pilot)
            for key in keys:
                begin = time.perf_counter()
                wall, cpu = await repaints.press(key)
                assert 0 < wall <= 1000 * (time.perf_counter() - begin), kind
                assert cpu > 0
                assert not repaints._unpainted(), kind
                if kind == "cursor":  # its marks in all panes and its keys come with it
                    assert len(repaints._ends) == 1
            if kind in app_keys.SCREENS:
                app.pop_screen()
                screen.snap = snap
                await settled(app, pilot)
        # Every copy of the text has ops of its own: a mark is one op's, in its own copy.
        rows = screen.grid.leader.content.rows
        screen.grid.leader.go_to(next(i for i in range(150, len(rows)) if rows[i].key is not None))
        await settled(app, pilot)
        marked = [i for i, mark in screen.grid.leader._links.items() if mark == "op"]
        assert marked and max(marked) - min(marked) < 200
        assert "worker" in screen.grid.leader._links.values()
    app.close()


async def test_a_load_that_ended_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CuBridgeApp, "_warm_up", lambda self: None)
    path = tmp_path / "store.git"
    app = CuBridgeApp(str(path), session=placed(path, Stage.LOWERED))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        ran: list[int] = []
        load = app_keys.Load(app, "work", lambda: ran.append(1))
        for count in (1, 2, 3):
            await load.keep()
            await settled(app, pilot)
            assert len(ran) == load.times == count
        nothing = app_keys.Load(app, "idle", None)
        await nothing.keep()
        assert nothing.times == 0
    app.close()
