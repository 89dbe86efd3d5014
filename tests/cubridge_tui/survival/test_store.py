"""A store that cannot be written, one that is not ours, and many sessions opened one by one."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from cubridge_tui.actions import ACTIONS, SCREENS, actions_of, clashes
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.screens.adaptation import AdaptationScreen
from engine.types import Stage
from sessions.store import Store
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import TableChild, placed
from tests.engine.transfer.recipes import VARIANTS

pytestmark = pytest.mark.usefixtures("no_warm_up")


async def test_a_full_disk_loses_nothing_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.git"
    session = placed(path, Stage.TARGET)
    before = Store.open(path).load(session).state.count

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    app = CuBridgeApp(str(path), session=session)
    app.bench.child = TableChild(VARIANTS["softcap_causal"])  # type: ignore[assignment]
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settled(app, pilot)
        screen = app.screen
        assert isinstance(screen, AdaptationScreen)
        with monkeypatch.context() as patch:
            patch.setattr("sessions.writer.write_commit", full)
            await asyncio.sleep(0.2)
            await pilot.press("u")
            await settled(app, pilot)
            assert "NOT SAVED: 1 event" in screen_text(app)
            assert "full" in screen_text(app)
            assert Store.open(path).load(session).state.count == before
            # What was decided stands on the screen although it is not on the disk.
            assert screen.snap is not None and not screen.snap.state.undo
        screen._look()
        await settled(app, pilot)
        assert "NOT SAVED" not in screen_text(app)
        assert "saved now: 1 events" in screen_text(app)
        assert "not saved" not in screen_text(app)
    app.close()
    assert Store.open(path).load(session).state.count == before + 1


async def test_opening_and_leaving_sessions_keeps_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "store.git"
    session = placed(path, Stage.TARGET)
    app = CuBridgeApp(str(path))
    app.bench.child = TableChild(VARIANTS["softcap_causal"])  # type: ignore[assignment]

    def handles() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)
        counts = []
        for _ in range(4):
            app.open_session(session)
            await settled(app, pilot)
            await pilot.press("B")
            await settled(app, pilot)
            app.open_replay(session)
            await settled(app, pilot)
            await pilot.press("escape")
            await settled(app, pilot)
            counts.append(handles())
        assert counts[-1] <= counts[1] + 2, counts
    app.close()


def test_a_folder_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    from engine.errors import StoreError

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not touch")
    with pytest.raises(StoreError, match="not a CuBridge store"):
        CuBridgeApp(str(tmp_path / "mine"))


def test_every_action_has_a_plain_key_and_no_two_share_one() -> None:
    """Keys that terminals cannot tell apart, or do not send, are nowhere the only way."""
    undeliverable = {"ctrl+i", "ctrl+m", "ctrl+h", "ctrl+left_square_bracket"}
    assert clashes(ACTIONS) == []
    for screen in SCREENS:
        for action in actions_of(screen):
            assert action.keys, action.id
            assert not undeliverable & set(action.keys), action.id
            # Which a terminal or a person takes for one thing only.
            assert "ctrl+z" not in action.keys or action.id == "suspend"
            assert not any(k.startswith(("ctrl+shift+", "alt+", "super+")) for k in action.keys)


def test_every_action_has_its_method() -> None:
    from cubridge_tui import actions
    from cubridge_tui.screens.accept import AcceptScreen
    from cubridge_tui.screens.gpu import GpuScreen
    from cubridge_tui.screens.mask import MaskScreen
    from cubridge_tui.screens.replay import ReplayScreen
    from cubridge_tui.screens.start import StartScreen

    screens = {
        actions.START: StartScreen, actions.ADAPTATION: AdaptationScreen,
        actions.ACCEPT: AcceptScreen, actions.REPLAY: ReplayScreen, actions.MASK: MaskScreen,
        actions.GPU: GpuScreen,
    }  # fmt: skip
    for name, screen in screens.items():
        for action in actions_of(name):
            method = "do_" + action.id.replace("-", "_")
            assert hasattr(screen, method) or hasattr(CuBridgeApp, method), action.id
