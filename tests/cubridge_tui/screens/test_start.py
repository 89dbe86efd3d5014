"""The start screen: what it names is what its keys do, and one key opens one session."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge_tui import actions
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.screens.base import ActionScreen
from engine.types import Stage
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import placed

pytestmark = pytest.mark.usefixtures("no_warm_up")


async def test_keys_while_a_session_is_being_opened_open_no_second_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    placed(path, Stage.SOURCE)
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        start = app.action_screen
        assert start is not None and start.NAME == actions.START
        text = screen_text(app)
        assert "opens the session as left; s adapts flash_fwd_sm80 to softcap_causal" in text
        for action in ("begin", "open", "begin", "replay"):
            start.action_act(action)
        await settled(app, pilot)
        shown = [s.NAME for s in app.screen_stack if isinstance(s, ActionScreen)]
        assert shown == [actions.START, actions.ADAPTATION]
    app.close()
