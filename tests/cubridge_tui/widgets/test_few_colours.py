"""Without colours, or with sixteen, nothing that a colour told is lost."""

from __future__ import annotations

import pytest
from rich.color import Color, ColorSystem
from rich.style import Style

from cubridge_tui.app import CuBridgeApp
from cubridge_tui.plain import plain, sixteen
from cubridge_tui.screens.dialogs import Prompt
from cubridge_tui.themes import Palette, load_themes
from tests.cubridge_tui.conftest import settled

THEMES = load_themes()[0]


@pytest.mark.parametrize("palette", THEMES, ids=lambda p: p.name)
def test_no_style_has_a_colour_and_a_selection_is_seen(palette: Palette) -> None:
    bare = plain(palette)
    assert set(bare.styles) == set(palette.styles)
    assert all(s.color is None and s.bgcolor is None for s in bare.styles.values())
    for name in ("selection", "match", "match.current", "banner"):
        assert bare.style(name).reverse
    assert bare.style("left.out").strike


@pytest.mark.parametrize("palette", THEMES, ids=lambda p: p.name)
def test_sixteen_colours_show_every_text_and_the_selection(palette: Palette) -> None:
    few = sixteen(palette)

    def number(color: Color | None) -> int | None:
        return None if color is None else color.downgrade(ColorSystem.STANDARD).number

    surface = number(Color.parse(palette.colors["surface"]))
    foreground = number(Color.parse(palette.colors["foreground"]))
    for name, style in few.styles.items():
        fore = number(style.color) if style.color is not None else foreground
        back = number(style.bgcolor) if style.bgcolor is not None else surface
        assert fore != back, name
        if name in ("selection", "match", "match.current", "banner"):
            assert style.reverse or back != surface, name


async def test_the_present_answer_is_seen_to_be_selected(
    monkeypatch: pytest.MonkeyPatch, no_warm_up: None
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = CuBridgeApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        app.push_screen(Prompt("The title:", "as it was"))
        await pilot.pause()
        segments = [s for line in app.screen._compositor.render_strips(app.size) for s in line]
        answer = next(s for s in segments if "as it" in s.text)
        assert isinstance(answer.style, Style) and answer.style.reverse
        styles = [s.style for s in segments if s.style is not None]
        assert all(s.color is None and s.bgcolor is None for s in styles)
    app.close()
