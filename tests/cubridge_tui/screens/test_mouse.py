"""By mouse alone: every key that a line names can be clicked, and the help's lines are actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.actions import ACTIONS, key_name, key_named
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.screens.dialogs import Confirm, Prompt
from cubridge_tui.screens.help import HelpDialog
from cubridge_tui.screens.overview import OverviewScreen
from cubridge_tui.screens.recipe import RecipeScreen
from tests.cubridge_tui.conftest import screen_text, settled
from tests.cubridge_tui.made import placed

pytestmark = pytest.mark.usefixtures("no_warm_up")


async def clicked(app: CuBridgeApp, pilot: Any, words: str) -> None:
    """A click on the last place of the screen that has these words."""
    await pilot.pause(0.06)  # what was not seen yet is no answer
    rows = screen_text(app).split("\n")
    y = max(n for n, row in enumerate(rows) if words in row)
    await pilot.click(offset=(rows[y].index(words), y))
    await settled(app, pilot)


def test_every_key_of_the_table_is_known_by_its_name() -> None:
    keys = {key for action in ACTIONS for key in action.keys if not key.startswith("shift+")}
    assert {key for key in keys if key_named(key_name(key)) != key} == set()
    assert not any(map(key_named, ("", "typing", "rules/h3", "h3")))


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_what_the_footer_has_no_room_for_is_reached_from_the_help(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cubridge_tui.screens.dialogs.GRACE", 0.02)
    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "store.git"))
    session = placed(tmp_path / "store.git")
    app = CuBridgeApp()
    async with app.run_test(size=size) as pilot:
        app.open_session(session)
        await settled(app, pilot)
        screen = app.screen
        await clicked(app, pilot, "? help")
        page = app.screen
        assert isinstance(page, HelpDialog)
        line = next(n for n, id in page._ids.items() if id == "recipe")
        page.query_one("CodePane").go_to(page._given.index(line))  # type: ignore[attr-defined]
        await pilot.pause()
        await clicked(app, pilot, "The recipe in words")
        await clicked(app, pilot, "enter does what")
        assert isinstance(app.screen, RecipeScreen)
        await clicked(app, pilot, "esc back")
        assert app.screen is screen

        # A heading is no action, and the dialog closes by mouse too.
        await clicked(app, pilot, "? help")
        await clicked(app, pilot, "enter does what")
        assert app.screen is screen
        await clicked(app, pilot, "? help")
        await clicked(app, pilot, "esc closes")
        assert app.screen is screen

        # Questions and prompts answer to clicks on the keys that they name.
        told: list[object] = []
        for words in (" yes", " no, and"):
            app.push_screen(Confirm("Do it?"), told.append)
            await settled(app, pilot)
            await clicked(app, pilot, words)
        for words in ("enter does it", "esc leaves"):
            app.push_screen(Prompt("name", "kept"), told.append)
            await settled(app, pilot)
            await clicked(app, pilot, words)
        assert told == [True, False, "kept", None]
        key = screen_text(app).split("\n")[1].split()[1]  # of `Next: K  accept the kernel`
        await clicked(app, pilot, f"{key}  ")
        assert app.screen is not screen
    app.close()


async def test_hunks_are_decided_by_clicks(proposed: tuple[Path, str]) -> None:
    app = CuBridgeApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_session(proposed[1])
        await settled(app, pilot)
        screen: Any = app.screen
        await clicked(app, pilot, "o overview")
        page = app.screen
        assert isinstance(page, OverviewScreen)
        name = page.shown.names[1]
        await pilot.click(page.pane, offset=(10, 2))
        await clicked(app, pilot, "x reject")
        assert page.snap.decision(name) is not None
        await clicked(app, pilot, "A accept shown")
        assert not page.shown.open
        await clicked(app, pilot, "esc back")
        assert app.screen is screen and all(d is not None for _, _, d in screen.snap.all_hunks)
    app.close()
