"""Where the time goes: timelines that come from the process that predicts, units and rates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.app import CuBridgeApp
from cubridge_tui.model.costs import Costs
from cubridge_tui.screens.adaptation.cost_bars import cost_chart
from cubridge_tui.screens.adaptation.cost_screen import CostScreen
from cubridge_tui.screens.adaptation.screen import AdaptationScreen
from engine.cost.timeline.events import Event, Timeline
from engine.service.views.costing import Cost, Where
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import gpu_details, placed

pytestmark = pytest.mark.usefixtures("no_warm_up")
TILE = Timeline(
    "flash_fwd", ("warpgroup 1", "warpgroup 1, matmuls"),
    (
        Event(0, "mma_wait", "waits", 0.0, 400.0), Event(1, "gemm_async", "matmuls", 0.0, 380.0),
        Event(0, "map", "softmax", 400.0, 900.0), Event(0, "wait", "barriers", 900.0, 924.0),
    ),
    (0.0, 924.0), 924.0, 900.0, 1, {"tensor cores": 0.42, "special functions": 0.2},
)  # fmt: skip


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "store.git"))
    return placed(tmp_path / "store.git")


async def opened(app: CuBridgeApp, pilot: Any, session: str) -> tuple[AdaptationScreen, CostScreen]:
    app.open_session(session)
    await settled(app, pilot)
    screen = app.screen
    assert isinstance(screen, AdaptationScreen)
    await pilot.press("C")
    await settled(app, pilot)
    page = app.screen
    assert isinstance(page, CostScreen)
    return screen, page


def known(screen: AdaptationScreen, target: Timeline) -> Costs:
    assert screen.snap is not None
    name = screen.snap.state.hashes["target"]
    where = Where("NVIDIA H100", "H100", "S 8192 B 2 heads 32 D 128", 0.5, False)
    costs = {"expert": Cost(100.0, 600.0, 1.0, "b"), name: Cost(120.0, 500.0, 1.0, "b")}
    return Costs(where, costs, {"expert": TILE, name: target})


async def test_the_expert_s_timeline_stands_above_the_target_s(session: str) -> None:
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        screen, page = await opened(app, pilot, session)
        assert "expert is being simulated; target is being simulated" in screen_text(app)
        assert "no measured points" in screen_text(app)
        screen.costs = known(screen, replace(TILE, tile=1300.0, predicted=1300.0, resident=2))
        screen._show_costs()
        await pilot.pause()
        text = screen_text(app)
        expert = text.index("expert: a key tile takes 924 cycles; the cost model says 900 (+2.7%)")
        target = text.index("target: a key tile takes 1,300 cycles; the cost model says 1,300 (+0")
        assert expert < target and "2 blocks beside each other" in text and "schematic" in text
        assert "map▓" in text and "gemm_async█" in text and "600.0 TFLOP/s" in text
        assert "42%" in text

        # From event to event, lane to lane; closer and wider.
        assert "warpgroup 1: waits at mma_wait, 400 cycles, from 0 to 400" in text
        await pilot.press("right")
        assert "warpgroup 1: map (softmax" in screen_text(app)
        await pilot.press("up")
        assert page.pane.lane == 0
        await pilot.press("home", "down")
        assert "warpgroup 1, matmuls: gemm_async (matmul), 380 cycles" in screen_text(app)
        before = page.pane.cycles
        await pilot.press("plus")
        assert page.pane.cycles == before / 2
        await pilot.press("minus", "minus", "minus", "minus")
        assert "all of it is in sight" in screen_text(app)
        await pilot.press("down", "down", "down", "end")
        assert page.pane.lane == 3 and page.pane.event is not None
        await pilot.press("escape")
        assert app.screen is screen
    app.close()


async def test_the_mouse_does_all_that_keys_do(session: str) -> None:
    app = CuBridgeApp()
    async with app.run_test(size=(80, 24)) as pilot:
        screen, page = await opened(app, pilot, session)
        screen.costs = known(screen, Timeline(problem="it cannot be followed"))
        screen._show_costs()
        await pilot.pause()
        assert "target: no timeline, it cannot be followed" in screen_text(app)
        pane = page.pane
        at = round(600 / pane.cycles)
        await pilot.click(pane, offset=(pane.name_width + at, 2))
        assert "wg 1" in screen_text(app) and "map (softmax" in screen_text(app)
        rows = screen_text(app).split("\n")
        keys = len(rows) - 1
        before = pane.cycles
        await pilot.click(offset=(rows[keys].index("closer"), keys))
        assert pane.cycles < before
        await pilot.click(offset=(rows[keys].index("back"), keys))
        await pilot.pause()
        assert app.screen is screen
    app.close()


def test_measured_points_stand_beside_what_was_predicted() -> None:
    case = "S 8192 B 2 heads 32 D 128"
    details = gpu_details()
    where = Where("NVIDIA H100", "H100", case, 0.5, False)
    costs = Costs(where, {"expert": Cost(1.0, 700.0, 1.0, "b"), "t": Cost(1.0, 500.0, 1.0, "b")})
    chart = cost_chart(costs, "t", [("expert", TILE), ("target", TILE)], details, 120)
    text = "\n".join(r.text for r in chart.rows)
    assert "CuBridge, measured" in text and "◆" in text and "measured on NVIDIA H100 80GB" in text
    narrow = cost_chart(costs, "t", [("expert", TILE)], details, 76)
    assert all(len(r.text) <= 76 for r in narrow.rows if "TFLOP/s  " not in r.text)
    assert "half of what was measured is predicted within ±8%" in " ".join(
        " ".join(r.text for r in narrow.rows).split()
    )
    elsewhere = replace(costs, where=replace(where, name="A100"))
    text = "\n".join(r.text for r in cost_chart(elsewhere, "t", [], details, 120).rows)
    assert "◆" not in text and f"{case} on H100" in text
