"""What is painted past Textual's styles looks as if it went through them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from rich.style import Style
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.geometry import Region
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.widget import Widget

from cubridge_tui.model.rows import PaneText, Row, RowKind, plain_rows
from cubridge_tui.steady import Keys
from cubridge_tui.themes import Palette, load_themes
from cubridge_tui.widgets.ahead import Ahead
from cubridge_tui.widgets.backdrop import backdrop
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.paint import Flags
from cubridge_tui.widgets.row_strips import RowStrips

pytestmark = pytest.mark.usefixtures("every_frame")
LINES = [
    "#include <cuda.h>",
    "\tfloat x = 1.0f;  // [/] b[0] \x1b[2J",
    "日本語 wide, so that cells are not characters " + "x" * 120,
    "",
]
ROWS = (
    *plain_rows(LINES * 30, "expert"),
    Row("@@ a hunk", RowKind.HEAD, hunk="r/h1"),
    Row("old", RowKind.DEL, 121, hunk="r/h1"),
    Row("new", RowKind.ADD, 122, hunk="r/h1", origin="rules"),
    Row("kept out", RowKind.OUT_ADD, hunk="r/h2", origin="model"),
)


class Behind(Vertical):
    def render_lines(self, crop: Region) -> list[Strip]:
        return backdrop(self, crop)


class Panes(App[None]):
    CSS = "Screen { background: $background; } Behind { background: $panel; }"

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self.ahead = Ahead(self, Keys())
        self.register_theme(palette.theme)
        self.theme = palette.name

    def compose(self) -> ComposeResult:
        with Behind():
            yield CodePane(id="framed")
            yield CodePane(id="bare", framed=False)

    def on_mount(self) -> None:
        for pane in self.query(CodePane):
            pane.styles.height = "1fr"
            pane.show(PaneText(ROWS, "cuda", "a title [/]"))


def cells(strips: Iterable[Strip], width: int) -> list[list[tuple[str, Style | None]]]:
    """Character by character, with its style."""
    return [[(c, s.style) for s in strip.crop(0, width) for c in s.text] for strip in strips]


@pytest.mark.parametrize("no_color", [False, True])
@pytest.mark.parametrize("palette", load_themes()[0][:2], ids=lambda p: p.name)
async def test_a_pane_is_painted_as_by_textual(
    palette: Palette, no_color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    app = Panes(palette)
    async with app.run_test(size=(70, 30)) as pilot:
        for pane in app.query(CodePane):
            pane.focus()
            pane.mark([2], [3, 4, 5], range(1, 60))
            steps = ["j", "pagedown", "l", "shift+down", "shift+down", "end", "escape", "k"]
            for key in steps:
                await pilot.press(key)
                whole = pane.region.size.region
                ours = pane.render_lines(whole)
                width = pane.scrollable_content_region.width
                assert {s.cell_length for s in ours[pane.gutter.top :]} == {width}
                pane._styles_cache.clear()
                theirs = Widget.render_lines(pane, whole)
                assert cells(ours, width) == cells(theirs, width), key
                part = Region(3, 1, 20, 5)
                pane._styles_cache.clear()
                assert cells(pane.render_lines(part), 20) == cells(
                    Widget.render_lines(pane, part), 20
                )


@pytest.mark.parametrize("no_color", [False, True])
async def test_a_scrollbar_is_painted_as_by_textual(
    no_color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    app = Panes(load_themes()[0][0])
    async with app.run_test(size=(70, 30)) as pilot:
        pane = app.query_one("#bare", CodePane)
        bar = pane.vertical_scrollbar
        assert bar.display
        for y in range(0, 110, 3):
            pane.scroll_to(y=y, animate=False, force=True)
            await pilot.pause()
            whole = bar.size.region
            ours = bar.render_lines(whole)
            bar._styles_cache.clear()
            assert cells(ours, 1) == cells(ScrollBar.render_lines(bar, whole), 1)
            assert cells(bar.render_lines(Region(0, 2, 1, 3)), 1) == cells(ours[2:5], 1)


@pytest.mark.parametrize("no_color", [False, True])
async def test_a_backdrop_is_painted_as_by_textual(
    no_color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    app = Panes(load_themes()[0][1])
    async with app.run_test(size=(70, 30)):
        behind = app.query_one(Behind)
        whole = behind.size.region
        ours, theirs = behind.render_lines(whole), Widget.render_lines(behind, whole)
        assert [s.text for s in ours] == [s.text for s in theirs] == [" " * 70] * 30
        grounds = {s.style.bgcolor for strip in (*ours, *theirs) for s in strip if s.style}
        assert len(grounds) == 1 and None not in grounds


async def test_a_row_is_made_again_only_where_its_look_changed() -> None:
    """A strip that is the same object keeps its terminal codes too."""
    app = Panes(load_themes()[0][0])
    async with app.run_test(size=(70, 30)) as pilot:
        pane = app.query_one("#bare", CodePane)
        pane.focus()
        await pilot.pause()
        whole = pane.region.size.region
        first = pane.render_lines(whole)
        await pilot.press("j")
        second = pane.render_lines(whole)
        changed = [y for y, (a, b) in enumerate(zip(first, second, strict=True)) if a is not b]
        assert changed == [0, 1]
        pane.mark([3], [], [])
        third = pane.render_lines(whole)
        changed = [y for y, (a, b) in enumerate(zip(second, third, strict=True)) if a is not b]
        assert changed == [3]
        await pilot.press("pagedown", "home", "j")
        again = pane.render_lines(whole)
        assert all(a is b for a, b in zip(third, again, strict=True))


async def test_a_mark_that_moves_repaints_the_rows_whose_mark_changed() -> None:
    app = Panes(load_themes()[0][0])
    async with app.run_test(size=(70, 30)) as pilot:
        pane = app.query_one("#bare", CodePane)
        await pilot.pause()
        pane._exchange_repaint_regions()
        pane.mark([2], range(2, 6), range(200))
        first = {y for r in pane._exchange_repaint_regions() for y in r.line_range}
        assert first == set(range(pane.size.height))
        pane.mark([3], range(2, 6), range(200))
        assert {y for r in pane._exchange_repaint_regions() for y in r.line_range} == {2, 3}
        pane.mark([3], range(2, 6), range(200))
        assert not pane._exchange_repaint_regions()


async def test_the_next_page_is_made_while_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    panes: list[RowStrips] = []  # those whose rows count
    real = RowStrips._row

    def counted(self: RowStrips, index: int, flags: Flags) -> Strip:
        if not panes or self in panes:
            made.append(index)
        return real(self, index, flags)

    monkeypatch.setattr(RowStrips, "_row", counted)
    app = Panes(load_themes()[0][0])
    async with app.run_test(size=(70, 30)) as pilot:
        pane = app.query_one("#bare", CodePane)
        pane.focus()
        height = pane.size.height
        panes.append(pane._strips)
        made.clear()
        pane.show(pane.content)
        for _ in range(3):
            while app.ahead._timer is not None:
                await pilot.pause(0.01)
            top = pane.scroll_offset.y
            assert set(range(top, top + 2 * height)) <= set(made)
            before = len(made)
            await pilot.press("pagedown")
            seen = range(pane.scroll_offset.y, pane.scroll_offset.y + height)
            # Only the cursor's row, and the one that it left, look otherwise than was foreseen.
            assert len([i for i in made[before:] if i in seen]) <= 2
        assert pane.scroll_offset.y > height
