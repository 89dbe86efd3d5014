"""What one line cannot hold at 80 columns is read whole, on every screen and in every dialog."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from cubridge_tui import actions
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.screens.base import ActionScreen
from cubridge_tui.screens.dialogs import Prompt, TextDialog
from cubridge_tui.screens.hunk_editor import HunkEditor
from cubridge_tui.screens.mask import MaskScreen
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import KeyBar, Line, Whole
from engine.types import Hunk, Origin
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import placed
from tests.cubridge_tui.screens.opening import COMMIT, OPENS, open_screen

pytestmark = pytest.mark.usefixtures("no_warm_up")
LONG = "own.py:12: the scores are multiplied by a mask of an unknown kind, " * 3 + "and so it ends"


HUNK = Hunk("h1", "the title", "why", "scale", "a = 1", "a = 2", (), Origin.RULES)


def words(text: str) -> str:
    """The words of what is shown, however it is wrapped."""
    return " ".join(text.split())


@pytest.mark.parametrize("name", [actions.START, *(n for n in OPENS if n != COMMIT)])
async def test_a_line_that_is_cut_names_the_key_that_shows_it_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    monkeypatch.setattr("engine.gpu.runners.has_gpu", lambda: False)
    session = placed(path)
    app = CuBridgeApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        screen = await open_screen(app, pilot, name, session)
        assert isinstance(screen, ActionScreen) and name == screen.NAME
        screen.say("short", "fail")
        await pilot.pause()
        row = screen_text(app).split("\n")[screen.query_one("#status").region.y]
        assert row.rstrip().endswith("short")
        screen.say(LONG, "fail")
        await pilot.pause()
        row = screen_text(app).split("\n")[screen.query_one("#status").region.y]
        assert "and so it ends" not in row and row.rstrip().endswith("… L")
        await pilot.press("L")
        await settled(app, pilot)
        assert isinstance(app.screen, TextDialog)
        rows = app.screen.query_one(CodePane).content.rows
        assert LONG in words(" ".join(row.text for row in rows))
        await pilot.press("escape")
        await settled(app, pilot)
        if isinstance(screen, MaskScreen):
            monkeypatch.setattr(screen, "_tell", lambda: None)  # it does so while it computes
        # Every line of the screen, not the status alone; the footer leaves out what does not fit.
        for line in screen.query(Line):
            if line.display and not isinstance(line, KeyBar):
                line.put([(f"§ {LONG}", "fail")])
        await pilot.pause()
        seen = screen_text(app).count("§")  # nothing of a pane that is out of sight
        assert seen and screen.cut_lines() == [f"§ {LONG}"] * seen
    app.close()


async def test_a_dialogs_reason_is_wrapped() -> None:
    app = CuBridgeApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        for screen in (
            Prompt(LONG, "9 x", lambda _: LONG[:-1] + "S"),
            HunkEditor(HUNK, "text", LONG[:-1] + "S"),
        ):
            app.push_screen(screen)
            await settled(app, pilot)
            if isinstance(screen, Prompt):
                assert LONG in words(screen_text(app))
                await pilot.press("enter")
                await settled(app, pilot)
                assert screen.query_one(Input).size.height == 1
            why = screen.query_one("#why", Whole)
            shown = [why.render_line(y).text for y in range(why.size.height)]
            assert LONG[:-1] + "S" in words(" ".join(shown))
            text = screen_text(app)
            assert "leaves" in text and all(line.strip() in text for line in shown)
            app.pop_screen()
            await settled(app, pilot)
    app.close()
