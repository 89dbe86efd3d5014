"""Dialogs stand over the screen that they are about: it stays in sight, the cursor's row too."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from textual.color import Color
from textual.events import Key
from textual.screen import Screen

import cubridge_tui
from cubridge_tui.app import CuBridgeApp
from cubridge_tui.model.rows import Row
from cubridge_tui.screens.accept import AcceptScreen
from cubridge_tui.screens.closing import ClosingScreen
from cubridge_tui.screens.dialogs import Confirm, Prompt, TextDialog, wrapped
from cubridge_tui.screens.hunk_editor import HunkEditor
from cubridge_tui.screens.palette import Palette
from cubridge_tui.screens.picker import Picker
from cubridge_tui.screens.recipe import RecipeScreen
from cubridge_tui.widgets.line import GRACE
from tests.cubridge_tui.conftest import settled
from tests.cubridge_tui.screens.test_adaptation import Driver
from tests.cubridge_tui.widgets.test_themes_paint import contrast

pytestmark = pytest.mark.usefixtures("no_warm_up")
Proposed = tuple[Path, str]
SIZES = ((80, 24), (120, 40), (200, 60))
LINES = [f"line {n} of what there is to read" for n in range(12)]


def over(d: Driver) -> dict[str, object]:
    """Every kind of dialog that a person answers or reads while looking at a pane."""
    snap = d.screen.snap
    assert snap is not None
    return {
        "question": Confirm("Really?"),
        "prompt": Prompt("Why?", "because"),
        "answers": TextDialog("failed", LINES, answers=[("a", "accepts")]),
        "text": TextDialog("inspector", LINES),
        "long": TextDialog("failed", LINES * 20, answers=[("a", "accepts")]),
        "picker": Picker("choose", [("a", "one"), ("b", "two")]),
    }


@pytest.mark.parametrize("size", SIZES)
async def test_the_hunk_that_a_dialog_is_about_stays_in_sight(
    proposed: Proposed, size: tuple[int, int]
) -> None:
    async with Driver(proposed[1], size) as d:
        for steps in (1, 3):
            for _ in range(steps):
                await d.press("right_square_bracket")
            pane = d.screen.grid.leader
            assert pane.row is not None
            words = pane.row.text[:30]
            mark = f"▶{words}"
            assert mark in d.text
            for name, dialog in over(d).items():
                d.app.push_screen(dialog)  # type: ignore[call-overload]
                await d.settle()
                # The cursor's sign goes with the focus; the line itself stays.
                assert words in d.text, (name, size, d.text)
                d.app.pop_screen()
                await d.settle()


BURSTS = {
    "question": ("n", "y", "escape"),
    "prompt": ("enter", "escape"),
    "answers": ("a", "escape"),
    "text": ("enter", "escape"),
    "picker": ("enter", "1", "escape"),
    "editor": ("ctrl+s", "escape"),
    "palette": ("enter", "escape"),
    "recipe": ("r", "escape"),
    "page": ("escape",),
}


@pytest.mark.parametrize("name", BURSTS)
async def test_of_keys_that_come_at_once_the_first_one_closes_and_no_other_does(
    name: str, proposed: Proposed
) -> None:
    async with Driver(proposed[1]) as d:
        snap, below = d.screen.snap, list(d.app.screen_stack)
        assert snap is not None
        for key in BURSTS[name]:
            screen = {
                **over(d),
                "editor": HunkEditor(snap.hunks[0][1], "x = 1"),
                "palette": Palette(),
                "recipe": RecipeScreen(snap),
                "page": AcceptScreen(d.screen),
            }[name]
            d.app.push_screen(screen)  # type: ignore[call-overload]
            await d.settle()
            await asyncio.sleep(2.5 * GRACE)  # before that a question takes no answer
            for _ in range(4):  # one write to the terminal: none waits for another
                d.app.post_message(Key(key, key if len(key) == 1 else None))
            await d.settle()
            assert d.app._exception is None and d.app.is_running
            assert screen not in d.app.screen_stack, (name, key)
            assert d.app.screen_stack[: len(below)] == below, (name, key)
            while len(d.app.screen_stack) > len(below):  # what the rest opened there
                d.app.screen.dismiss(None)
                await d.settle()


async def test_an_action_that_the_palette_found_is_done_once(
    proposed: Proposed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Driver(proposed[1]) as d:
        done: list[str] = []
        monkeypatch.setattr(d.screen, "action_act", done.append)
        d.app.push_screen(Palette())
        await d.settle()
        for letter in "theme":
            await d.pilot.press(letter)
        await d.settle()
        await d.pilot.press("down")
        for _ in range(3):
            d.app.post_message(Key("enter", "\r"))
        await d.settle()
        assert len(done) == 1 and d.app.screen is d.screen


def test_every_screen_closes_in_the_one_way() -> None:
    """`dismiss` of `ClosingScreen`: another screen's key or job cannot close one by it."""
    package = Path(cubridge_tui.__file__).parent
    for module in walk_packages([str(package)], "cubridge_tui."):
        found = vars(import_module(module.name)).values() if ".screens" in module.name else ()
        for one in found:
            if isinstance(one, type) and issubclass(one, Screen) and one.__module__ == module.name:
                assert issubclass(one, ClosingScreen), one
    assert not [f for f in package.rglob("*.py") if "pop_screen(" in f.read_text()]


@pytest.mark.parametrize("size", SIZES)
async def test_the_editor_leaves_its_hunk_in_sight(
    proposed: Proposed, size: tuple[int, int]
) -> None:
    async with Driver(proposed[1], size) as d:
        await d.press("right_square_bracket")
        row = d.screen.grid.leader.row
        assert row is not None
        await d.press("e")
        assert d.text.count(row.text[:30]) == 2  # the editor's head names it too
        assert "replaces:" in d.text and "ctrl+s" in d.text


async def test_what_is_behind_a_long_text_is_dimmed_and_what_is_over_it_is_not(
    proposed: Proposed,
) -> None:
    async with Driver(proposed[1], (80, 24)) as d:
        await d.press("question_mark")
        lines = d.app.screen._compositor.render_strips(d.app.size)

        def readable(words: str) -> float:
            segment = next(s for line in lines for s in line if words in s.text)
            style = segment.style
            assert style is not None and style.color is not None and style.bgcolor is not None
            assert style.color.triplet is not None and style.bgcolor.triplet is not None
            return contrast(Color(*style.color.triplet), Color(*style.bgcolor.triplet))

        assert readable("Next: run this stage") > 7
        assert 2 < readable("softcap_causal on") < 7


async def test_the_palette_stands_over_the_screen() -> None:
    app = CuBridgeApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        await pilot.press("ctrl+p")
        await settled(app, pilot)
        strips = app.screen._compositor.render_strips(app.size)
        first = "".join(s.text for s in strips[0])
        assert "CuBridge" in first
    app.close()


@pytest.mark.parametrize(
    ("text", "indent"),
    [
        ("scale       the dot product is multiplied by something", 12),
        ("empty rows  rows that keep no key exist in this spec", 12),
        ("  G4  not run      these bytes have not run on a GPU here", 19),
        ("    plain words that are indented and go on for a while", 4),
    ],
)
def test_a_long_row_goes_on_under_its_words(text: str, indent: int) -> None:
    pieces = [row.text for row in wrapped(Row(text), 40)]
    assert len(pieces) > 1 and all(len(p) <= 40 for p in pieces)
    assert all(len(p) - len(p.lstrip()) == indent for p in pieces[1:])
    assert " ".join(" ".join(pieces).split()) == " ".join(text.split())
