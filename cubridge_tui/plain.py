"""Terminals with few colours or none.

NO_COLOR: nothing that reaches the terminal names a colour, and nothing is told by colour alone.

Textual takes the hue away and leaves shades of grey; https://no-color.org asks for none at all.
Bold, reverse and underline remain, and carry what a background said.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rich.color import Color as Rich
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from cubridge_tui.themes import Palette

# What a background alone tells in the themes. The cursor's row, links and changes have signs too.
_REVERSED = frozenset({"selection", "match", "match.current", "banner"})
_BOLD = frozenset({"cursor", "hunk", "key", "title", "heading", "match.current", "banner"})

CSS = """
Input > .input--selection { text-style: reverse; }
TextArea .text-area--selection { text-style: reverse; }
TextArea .text-area--cursor { text-style: reverse; }
"""


class NoColours(LineFilter):
    """The last filter: what was painted, without its colours."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, _bare(style) if style is not None else None, control)
            for text, style, control in segments
        ]


@lru_cache(4096)
def _bare(style: Style) -> Style:
    bare = style.without_color
    return bare + Style.from_meta(style.meta) if style.meta else bare


def sixteen(palette: Palette) -> Palette:
    """A theme for 16 colours: a background that becomes the pane's own there is shown reversed."""

    def nearest(color: Rich) -> int | None:
        return color.downgrade(ColorSystem.STANDARD).number

    ground = nearest(Rich.parse(palette.colors["surface"]))
    styles = dict(palette.styles)
    for name in _REVERSED:
        back = palette.style(name).bgcolor
        if back is not None and nearest(back) == ground:
            styles[name] = Style(reverse=True)
    return replace(palette, styles=styles)


def plain(palette: Palette) -> Palette:
    """A theme's styles without colours."""
    styles = {
        name: Style(
            bold=style.bold or name in _BOLD or None,
            italic=style.italic,
            underline=style.underline,
            strike=style.strike,
            reverse=True if name in _REVERSED else None,
        )
        for name, style in palette.styles.items()
    }
    return replace(palette, styles=styles)
