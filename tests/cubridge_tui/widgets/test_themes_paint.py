"""Every cell has the theme's own background: a light theme is light on a dark terminal."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.color import Color

from cubridge_tui.model.rows import PaneText, plain_rows
from cubridge_tui.themes import Palette, load_themes
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Line


class Painted(App[None]):
    CSS = "Screen { background: $background; } Line { background: $panel; }"

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self.register_theme(palette.theme)
        self.theme = palette.name

    def compose(self) -> ComposeResult:
        yield Line(id="line")
        yield CodePane(id="pane")

    def on_mount(self) -> None:
        self.query_one(Line).put([("words ", "dim"), ("more", "title")], [("right", "key")])
        text = PaneText(plain_rows(["int a; // x", "", "日本 wide"]), "cuda", "title")
        self.query_one(CodePane).show(text)


def contrast(a: Color, b: Color) -> float:
    def light(color: Color) -> float:
        parts = [c / 255 for c in color.rgb]
        parts = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    bright, dark = sorted((light(a), light(b)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("palette", load_themes()[0], ids=lambda p: p.name)
async def test_every_cell_is_painted(palette: Palette) -> None:
    app = Painted(palette)
    async with app.run_test(size=(60, 10)) as pilot:
        await pilot.pause()
        surface = Color.parse(palette.colors["surface"])
        for y, strip in enumerate(app.screen._compositor.render_strips(app.size)):
            for segment in strip:
                style = segment.style
                assert style is not None and style.bgcolor is not None, (y, segment)
                assert style.bgcolor.triplet is not None
                if 2 <= y < 5 and segment.text.strip():
                    back = Color(*style.bgcolor.triplet)
                    assert style.color is not None and style.color.triplet is not None
                    # Comments and line numbers are meant to stand back; nothing is to vanish.
                    assert contrast(Color(*style.color.triplet), back) > 2.2, segment
                    if "contrast" not in palette.name:  # its cursor line is inverse
                        assert abs(back.brightness - surface.brightness) < 0.35


@pytest.mark.parametrize("palette", load_themes()[0], ids=lambda p: p.name)
def test_code_can_be_read(palette: Palette) -> None:
    surface = Color.parse(palette.colors["surface"])
    for name in ("keyword", "type", "op", "function", "string", "number", "attribute", "operator"):
        color = palette.style(name).color
        assert color is not None and color.triplet is not None
        floor = 7.0 if "contrast" in palette.name else 3.9
        assert contrast(Color(*color.triplet), surface) >= floor, name
