"""Hunks explain themselves where they are decided, and all of them in a list."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge_tui.app import CuBridgeApp
from cubridge_tui.model.costs import Costs
from cubridge_tui.model.overview import hunk_rows
from cubridge_tui.model.rows import RowKind
from cubridge_tui.model.snapshot import View
from cubridge_tui.screens.adaptation.screen import AdaptationScreen
from cubridge_tui.screens.overview import OverviewScreen
from engine.service.views.costing import Cost, Where
from engine.types import DecisionKind, Stage
from tests.cubridge_tui.conftest import screen_text, settled

pytestmark = pytest.mark.usefixtures("no_warm_up")


async def pressed(app: CuBridgeApp, pilot: object, *keys: str) -> None:
    for key in keys:
        await pilot.pause(0.05)  # type: ignore[attr-defined]
        await pilot.press(key)  # type: ignore[attr-defined]
        await settled(app, pilot)


async def test_hunks_are_understood_and_decided_by_keys(proposed: tuple[Path, str]) -> None:
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        app.open_session(proposed[1])
        await settled(app, pilot)
        screen = app.screen
        assert isinstance(screen, AdaptationScreen) and screen.snap is not None
        screen.show_proposal()
        rows = screen.grid.leader.content.rows
        giver = next(h for _, h, _ in screen.snap.hunks if h.after.startswith("score_factor"))
        name = f"rules/{giver.id}"
        mine = [r.text for r in rows if r.hunk == name]
        assert any(x.startswith("why     a factor or a constant") for x in mine)
        assert any("-0.0577 = -2 log2(e) / 50" in x for x in mine)
        assert any("gives score_factor" in x for x in mine)

        # Rejecting what others read is said before a gate finds it.
        screen._to_head(name)
        await pressed(app, pilot, "x")
        reader = screen.snap.explained[name].users[0][0]
        assert f"{reader} reads its score_factor" in screen_text(app)
        screen._to_head(f"rules/{reader}")
        await pressed(app, pilot, "a")
        assert screen.snap.missing(f"rules/{reader}") == ((giver.id, "score_factor"),)
        head = next(
            r for r in screen.snap.panes[View.OPS][Stage.TARGET].rows
            if r.kind is RowKind.HEAD and r.hunk == f"rules/{reader}"
        )  # fmt: skip
        assert f"MISSES score_factor of {giver.id}, rejected" in head.text
        assert not any(
            r.kind is RowKind.NOTE and r.hunk == name for r in screen.grid.leader.given.rows
        )

        # The list: filtered while typing, accepted by clause, undone at one stroke.
        await pressed(app, pilot, "o")
        page = app.screen
        assert isinstance(page, OverviewScreen)
        count = len(screen.snap.all_hunks)
        assert f"{count} of {count} hunks: title" in screen_text(app)
        assert "! " + reader in screen_text(app)
        cap = next(h.id for _, h, _ in screen.snap.hunks if h.after.startswith("scale_log2 ="))
        old = next(r for r in hunk_rows(screen.snap, f"rules/{cap}") if r.kind is RowKind.DEL)
        assert [old.text[begin:end] for begin, end in old.changed] == ["args", "scale"]
        await pressed(app, pilot, "slash", *"mask")
        assert "with “mask”" in screen_text(app) and "hunks: " in screen_text(app)
        await pressed(app, pilot, "enter")
        wanted = set(page.shown.open)
        assert wanted and all("mask" in page.snap.hunk(n)[1].clause for n in wanted)  # type: ignore[index]
        await pressed(app, pilot, "A")
        assert not page.shown.open and wanted.isdisjoint(
            n for n in page.shown.names if page.snap.decision(n) is None
        )
        await pressed(app, pilot, "u")
        assert set(page.shown.open) == wanted
        await pressed(app, pilot, "X")
        rejected = [page.snap.decision(n) for n in page.shown.names]
        assert {d.kind for d in rejected if d is not None} == {DecisionKind.REJECTED}
        assert len(rejected) == len(page.shown.names) and None not in rejected
        await pressed(app, pilot, "X")
        assert "every hunk shown is rejected" in screen_text(app)
        await pressed(app, pilot, "u")
        assert set(page.shown.open) == wanted

        # Costs that come are shown in the list and under the heads.
        first = page.name_here
        where = Where("NVIDIA A100", "A100", "S 8192", 0.5, False)
        slow, fast = Cost(120.0, 10.0, 2.0, "b"), Cost(60.0, 20.0, 1.0, "b")
        screen.costs = Costs(where, {"expert": fast, "all": fast, first.split("/")[1]: slow})
        screen._show_costs()
        await pilot.pause()
        assert "+100%" in screen_text(app) and "time without" in screen_text(app)
        await pressed(app, pilot, "enter")
        assert app.screen is screen and screen.current_hunk() == first
        assert "without it" in screen_text(app)
    app.close()
