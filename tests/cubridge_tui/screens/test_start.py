"""The start screen: what it names is what its keys do, and one key opens one session."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cubridge_tui import actions
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.screens.base import ActionScreen
from cubridge_tui.widgets.code_pane import CodePane
from engine.types import Stage
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import placed

pytestmark = pytest.mark.usefixtures("no_warm_up", "one_session")


@pytest.fixture
def one_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of one session, which the app opens."""
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    placed(path, Stage.SOURCE)


async def test_keys_while_a_session_is_being_opened_open_no_second_one() -> None:
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


async def test_slash_finds_a_row_of_any_list() -> None:
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(app, pilot)

        async def find(words: str) -> tuple[str | None, int]:
            await pilot.press("slash")
            await settled(app, pilot)
            await pilot.press("ctrl+u", *words, "enter")
            await settled(app, pilot)
            pane = app.screen.focused
            assert isinstance(pane, CodePane)
            return pane.id, pane.cursor

        specs = [spec.label for spec in app.action_screen.lists.specs]  # type: ignore[union-attr]
        assert await find("alibi") == ("specs", specs.index("alibi_causal"))
        assert "s adapts flash_fwd_sm80 to alibi_causal" in screen_text(app)
        kernels = [await find("sm90") for _ in range(2)]
        assert kernels[0][0] == "kernels"
        before = await find("softcap")
        assert before != await find("softcap")  # the next one
        place = await find("nowhere")
        assert "no kernel, spec or session has 'nowhere'" in screen_text(app)
        assert place == (app.screen.focused.id, place[1])  # type: ignore[union-attr]
    app.close()


async def test_a_session_is_renamed_deleted_and_restored_from_the_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = CuBridgeApp()
    async with app.run_test(size=(120, 40)) as pilot:

        async def press(*keys: str) -> str:
            await pilot.press(*keys)
            await settled(app, pilot)
            return screen_text(app)

        await settled(app, pilot)
        (session,) = app.store.sessions()
        assert "nothing was deleted" in await press("u")
        await press("e")
        assert "a title is words" in await press("ctrl+u", "enter")
        assert "is called 'Mine" in await press(*"Mine", "enter")
        assert app.store.sessions()[0].title == "Mine" and "Mine " in screen_text(app)
        with app.store.writer(session.id):
            assert "was not deleted: process" in await press("x")
        assert "u restores it" in await press("x")
        assert app.store.sessions() == [] and "no sessions yet" in screen_text(app)
        assert "is there again" in await press("u")
        assert [s.id for s in app.store.sessions()] == [session.id]

        delete = app.store.delete
        monkeypatch.setattr(app.store, "delete", lambda name: (time.sleep(0.3), delete(name)))
        assert "is there again" in await press("x", "u")  # u is typed before x is done
        assert [s.id for s in app.store.sessions()] == [session.id]
    app.close()
