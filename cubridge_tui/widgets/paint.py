"""How a row of a pane is painted: gutter, colours of code, marks, matches, line backgrounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from cubridge_tui.model.rows import SIGNS, Row, RowKind
from cubridge_tui.text.highlight import Span
from cubridge_tui.text.sanitise import one_line
from cubridge_tui.themes import Palette, load_themes

ORIGIN_MARKS = {"expert": " ", "rules": "R", "model": "M", "person": "P", "": " "}
_LINKS = {"op": "▌", "loop": "│", "worker": "┊", "": " "}
_LINES = {
    RowKind.ADD: "add",
    RowKind.DEL: "del",
    RowKind.OUT_ADD: "left.out",
    RowKind.OUT_DEL: "",
    RowKind.HEAD: "hunk",
    RowKind.NOTE: "dim",
    RowKind.SAME: "",
}


class Flags(NamedTuple):
    """What a row looks like besides its text; `focused`: the cursor of the leading pane is here."""

    focused: bool = False
    link: str = ""
    selected: bool = False


@lru_cache(maxsize=1)
def _default() -> Palette:
    return load_themes()[0][0]


def palette_of(app: Any) -> Palette:
    """The palette of the app; our dark one where a widget stands in another app."""
    palette = getattr(app, "palette", None)
    return palette if isinstance(palette, Palette) else _default()


def gutter(row: Row, flags: Flags, number_width: int, palette: Palette) -> list[Segment]:
    """Line number, origin, sign, link: `number_width` + 4 cells; one cell for unnumbered texts."""
    if not number_width:  # a text to read: no numbers, no origins
        return [Segment("▶" if flags.focused else _LINKS[flags.link], palette.style("key"))]
    number = str(row.number) if row.number is not None else ""
    style = palette.style("gutter.cursor" if flags.focused else "gutter")
    sign = row.sign or SIGNS[row.kind]
    sign_style = palette.style(
        {"+": "add.mark", "-": "del.mark", "x": "del.mark"}.get(sign, "origin.person")
        if sign.strip()
        else "gutter"
    )
    link = "▶" if flags.focused else _LINKS[flags.link]
    link_style = palette.style("key" if flags.focused or flags.link == "op" else "gutter")
    return [
        Segment(number.rjust(number_width) + " ", style),
        Segment(ORIGIN_MARKS.get(row.origin, "?"), palette.style(f"origin.{row.origin}")),
        Segment(sign, sign_style),
        Segment(link, link_style),
    ]


def line_style(row: Row, flags: Flags, palette: Palette) -> Style:
    """The background of a whole line; what matters more is laid over what matters less."""
    style = palette.style(_LINES[row.kind])
    if flags.link and not (row.kind in (RowKind.ADD, RowKind.DEL) and flags.link != "op"):
        style += palette.style(f"link.{flags.link}")
    if flags.selected:
        style += palette.style("selection")
    elif flags.focused:
        style += palette.style("cursor")
    return style


def paint_row(
    row: Row,
    text: str,
    spans: Sequence[Span],
    found: Sequence[tuple[int, int]],
    flags: Flags,
    palette: Palette,
    scroll_x: int,
    room: int,
) -> list[Segment]:
    """The part of a row's text that is in sight: `room` cells from cell `scroll_x` on."""
    base = line_style(row, flags, palette)
    if row.kind in (RowKind.HEAD, RowKind.NOTE):
        text, spans, scroll_x = one_line(row.text, room), (), 0
    if row.kind in (RowKind.OUT_ADD,):
        spans = ()
    simple = text.isascii()
    if simple:
        # One character is one cell: only what is in sight is cut into segments.
        pieces = _pieces(text, spans, found, scroll_x, scroll_x + room)
    else:
        pieces = _pieces(text, spans, found, 0, len(text))
    segments = [
        Segment(text[start:end], _style(kind, base, palette)) for start, end, kind in pieces
    ]
    if not simple:
        strip = Strip(segments).crop(scroll_x, scroll_x + room)
        segments = list(strip)
    used = sum(cell_len(s.text) for s in segments)
    if used < room:
        segments.append(Segment(" " * (room - used), base))
    return segments


def _style(kind: str, base: Style, palette: Palette) -> Style:
    if kind == "match":
        return base + palette.style("match")
    return palette.style(kind) + base if kind else base


def _pieces(
    text: str, spans: Sequence[Span], found: Sequence[tuple[int, int]], low: int, high: int
) -> list[tuple[int, int, str]]:
    """Consecutive stretches of `text[low:high]` with their kind; a match wins over a span."""
    high = min(high, len(text))
    out: list[tuple[int, int, str]] = []

    def fill(start: int, end: int) -> None:
        """Spans between two columns."""
        at = start
        for span in spans:
            if span.end <= at:
                continue
            if span.start >= end:
                break
            if span.start > at:
                out.append((at, span.start, ""))
            out.append((max(span.start, at), min(span.end, end), span.kind))
            at = min(span.end, end)
        if at < end:
            out.append((at, end, ""))

    at = low
    for start, end in found:
        start, end = max(start, low), min(end, high)
        if start >= end:
            continue
        if start > at:
            fill(at, start)
        out.append((start, end, "match"))
        at = end
    if at < high:
        fill(at, high)
    return out
