"""Text, colours and what was found in it, cut into segments; and what of them is sent."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.strip import Strip

from cubridge_tui.model.rows import Row, RowKind
from cubridge_tui.text.highlight import Span
from cubridge_tui.themes import load_themes
from cubridge_tui.widgets.backdrop import LeanUpdate
from cubridge_tui.widgets.paint import Flags, Inks, laid_over, paint_row

KINDS = ("keyword", "number", "comment", "operator", "match", "changed")
WIDTH = 30


@st.composite
def spans(draw: st.DrawFn) -> list[Span]:
    """In order and apart, as a lexer finds them."""
    edges = sorted(draw(st.lists(st.integers(0, WIDTH), max_size=12, unique=True)))
    pairs = zip(edges[::2], edges[1::2], strict=False)
    return [Span(a, b, draw(st.sampled_from(KINDS))) for a, b in pairs]


def by_column(found: list[Span]) -> list[str]:
    out = [""] * WIDTH
    for span in found:
        assert span.start < span.end
        for at in range(span.start, span.end):
            assert not out[at], "two spans in one column"
            out[at] = span.kind
    return out


@given(spans(), spans())
def test_what_is_found_lies_over_colours(under: list[Span], over: list[Span]) -> None:
    found = by_column(laid_over(under, over))
    assert found == [b or a for a, b in zip(by_column(under), by_column(over), strict=True)]


def ground(style: Style | None) -> Color | None:
    return style.bgcolor if style is not None else None


@given(
    st.text(st.sampled_from("ab  (日"), max_size=WIDTH), spans(), st.integers(0, 12),
    st.integers(1, WIDTH),
)  # fmt: skip
def test_each_cell_in_sight_has_the_colour_of_its_column(
    text: str, found: list[Span], first: int, room: int
) -> None:
    palette = load_themes()[0][0]
    inks = Inks(palette, palette.style(""))
    styles = inks.row(RowKind.SAME, Flags())
    made = Strip(paint_row(Row(text), text, found, (), Flags(), inks, first, room))
    assert made.cell_length == room
    kinds = by_column(found)
    whole = Strip([Segment(c, styles[kinds[at]]) for at, c in enumerate(text)])
    wanted = [(c, s.style) for s in whole.crop(first, first + room) for c in s.text]
    shown = [(c, s.style) for s in made for c in s.text][: len(wanted)]
    for (char, style), (other, its) in zip(wanted, shown, strict=True):
        assert char == other
        # A blank may have the style of the word before it, in which it looks the same.
        assert style == its or (char == " " and ground(style) == ground(its))


TEXTS = st.text(st.sampled_from("ab 日│▌"), min_size=1, max_size=8)


@given(
    st.lists(st.lists(TEXTS, min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(0, WIDTH - 1), st.integers(1, WIDTH), st.data(),
)  # fmt: skip
def test_a_lean_update_shows_what_textual_s_does(
    lines: list[list[str]], first: int, width: int, data: st.DataObject
) -> None:
    console = Console(force_terminal=True, color_system="truecolor")
    chops, ends, spans_ = [], [], []
    for y, texts in enumerate(lines):
        at, chop, end = 0, {}, []
        for text in texts:
            strip = Strip([Segment(text, Style(color="red"))])
            chop[at] = data.draw(st.sampled_from([strip, strip, None]))
            at += strip.cell_length
            end.append(at)
        chops.append(chop)
        ends.append(end)
        spans_.append((y, first, first + width))
    screens = []
    for kind in (ChopsUpdate, LeanUpdate):
        screen = pyte.Screen(80, 10)
        pyte.Stream(screen).feed(kind(chops, spans_, ends).render_segments(console))
        screens.append(screen)
    theirs, ours = screens
    assert ours.display == theirs.display
    assert all(ours.buffer[y] == theirs.buffer[y] for y in range(10))
