"""How a row of a pane is painted: gutter, colours of code, marks, matches, line backgrounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import BLACK, Color
from textual.filter import LineFilter
from textual.strip import Strip

from cubridge_tui.model.rows import DRAFT, MISSING, SEPARATOR, SIGNS, UNDECIDED, Row, RowKind
from cubridge_tui.text.highlight import Span
from cubridge_tui.text.sanitise import one_line
from cubridge_tui.themes import Palette, load_themes

ORIGIN_MARKS = {"expert": " ", "rules": "R", "model": "M", "person": "P", "": " "}
ASIDE = "‹"  # between the number and the text of a pane that is scrolled sideways
_LINKS = {"op": "▌", "loop": "│", "worker": "┊", "": " "}
_SIGN_STYLES = {"+": "add.mark", "-": "del.mark", "x": "del.mark"}
LEAST_HEAD = 8  # columns of a hunk's title that tell it from others
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


class RowStyles(dict[str, Style]):
    """Final styles by kind of code (empty: none), of rows that look alike; made when asked for.

    `blank` has the kinds in which a blank looks as in none.
    """

    def __init__(self, inks: Inks, base: Style) -> None:
        super().__init__()
        self._inks, self._base = inks, base
        self.blank: set[str] = set()

    def __missing__(self, kind: str) -> Style:
        style = self[kind] = self._inks.over(self._base, kind)
        plain = self[""]
        told = [s.underline or s.reverse or s.strike for s in (style, plain)]
        if not any(told) and style.bgcolor == plain.bgcolor:
            self.blank.add(kind)
        return style


class Inks:
    """The final style of everything that rows show, made once for each and looked up since.

    Under it lie the pane's own colours (`ground`), over it the app's filters (no colour, colours
    of the terminal), which Textual would run over every line that is painted.
    """

    def __init__(
        self,
        palette: Palette,
        ground: Style,
        filters: Sequence[LineFilter] = (),
        background: Color = BLACK,
    ) -> None:
        self._palette, self._ground = palette, ground
        self._filters, self._background = filters, background
        self._named: dict[str, Style] = {}
        self._rows: dict[tuple[RowKind, Flags], RowStyles] = {}
        self._same: dict[Style, Style] = {}  # equal styles are one object: neighbours join

    def named(self, name: str) -> Style:
        """A style of the palette by its name; empty: the pane's own colours."""
        style = self._named.get(name)
        if style is None:
            style = self._named[name] = self._final(self._palette.style(name))
        return style

    def row(self, kind: RowKind, flags: Flags) -> RowStyles:
        """The styles of a row of a kind that looks like this."""
        styles = self._rows.get((kind, flags))
        if styles is None:
            styles = self._rows[kind, flags] = RowStyles(self, self._line(kind, flags))
        return styles

    def over(self, base: Style, kind: str) -> Style:
        """A kind of code on a line's own style: a match and what changed lie over it, all else
        under it."""
        if kind == "match":
            return self._final(base + self._palette.style(kind))
        if kind == "changed":
            return self._final(base + Style(bold=True, underline=True))
        return self._final(self._palette.style(kind) + base if kind else base)

    def _line(self, kind: RowKind, flags: Flags) -> Style:
        """The background of a whole line; what matters more is laid over what matters less."""
        style = self._palette.style(_LINES[kind])
        # Words to read stay on the pane's own ground, where they are told from it best.
        shows = kind is not RowKind.NOTE and (
            flags.link == "op" or kind not in (RowKind.ADD, RowKind.DEL)
        )
        if flags.link and shows:
            style += self._palette.style(f"link.{flags.link}")
        if flags.selected:
            style += self._palette.style("selection")
        elif flags.focused:
            style += self._palette.style("cursor")
        return style

    def _final(self, style: Style) -> Style:
        segments = [Segment(" ", self._ground + style)]
        for each in self._filters:
            segments = each.apply(segments, self._background)
        final = segments[0].style or Style.null()
        return self._same.setdefault(final, final)


def gutter(
    row: Row, flags: Flags, number_width: int, inks: Inks, *, aside: bool = False
) -> list[Segment]:
    """Line number, origin, sign, link: `number_width` + 4 cells; one cell for unnumbered texts.

    `aside` says that the text is scrolled sideways: there is more of it on the left.
    """
    blank = ASIDE if aside else " "
    link = "▶" if flags.focused else _LINKS[flags.link]
    if not number_width:  # a text to read: no numbers, no origins
        return [Segment(blank if link == " " else link, inks.named("key"))]
    number = str(row.number) if row.number is not None else ""
    sign = row.sign or SIGNS[row.kind]
    sign_style = "gutter"
    if sign.strip():
        sign_style = _SIGN_STYLES.get(sign, "origin.person")
    return [
        Segment(
            number.rjust(number_width) + blank,
            inks.named("gutter.cursor" if flags.focused else "gutter"),
        ),
        Segment(ORIGIN_MARKS.get(row.origin, "?"), inks.named(f"origin.{row.origin}")),
        Segment(sign, inks.named(sign_style)),
        Segment(link, inks.named("key" if flags.focused or flags.link == "op" else "gutter")),
    ]


def paint_row(
    row: Row,
    text: str,
    spans: Sequence[Span],
    found: Sequence[Span],
    flags: Flags,
    inks: Inks,
    scroll_x: int,
    room: int,
) -> list[Segment]:
    """The part of a row's text that is in sight: `room` cells from cell `scroll_x` on."""
    if row.kind in (RowKind.HEAD, RowKind.NOTE):
        cut = _head(one_line(row.text), room) if row.kind is RowKind.HEAD else ""
        text, spans, scroll_x = cut or one_line(row.text, room), (), 0
    if row.kind is RowKind.OUT_ADD:
        spans = ()
    if found:
        spans = laid_over(spans, found)
    styles = inks.row(row.kind, flags)
    if text.isascii():
        # One character is one cell: only what is in sight is cut into segments.
        segments = _segments(text, spans, scroll_x, scroll_x + room, styles)
        used = max(min(len(text) - scroll_x, room), 0)
    else:
        whole = Strip(_segments(text, spans, 0, len(text), styles))
        segments = list(whole.crop(scroll_x, scroll_x + room))
        used = sum(cell_len(s.text) for s in segments)
    if used < room:
        segments.append(Segment(" " * (room - used), styles[""]))
    return segments


def _head(text: str, room: int) -> str:
    """A line of `title · origin · decision · more` cut where it tells least: `more`, the origin
    (the gutter has it too), that nothing is decided (as the rows below it say), the title."""
    if len(text) <= room:
        return text
    title, *rest = text.split(SEPARATOR)
    told = [w for w in (DRAFT, MISSING) if any(part.startswith(w) for part in rest[2:])]
    decided = [part for part in rest[1:2] if part != UNDECIDED]
    for kept in ([*rest[:2], *told], [*rest[1:2], *told], [*decided, *told]):
        tail = "".join(SEPARATOR + part for part in kept)
        if len(title + tail) <= room:
            return title + tail
    left = room - len(tail)
    return one_line(title, left) + tail if rest and left >= LEAST_HEAD else one_line(text, room)


def _segments(
    text: str, spans: Sequence[Span], low: int, high: int, styles: RowStyles
) -> list[Segment]:
    """`text[low:high]`, in as few segments as its colours allow."""
    high = min(high, len(text))
    blank, plain = styles.blank, styles[""]
    begins: list[tuple[int, Style]] = []  # where each style begins
    at, last, of = low, None, None
    for start, end, kind in spans:
        if end <= at:
            continue
        if start >= high:
            break
        # Most of what is between two spans are blanks between words.
        if start > at and last is not plain and not (of in blank and text[at:start].isspace()):
            last = plain
            begins.append((at, last))
        style, of = styles[kind], kind
        if style is not last:
            last = style
            begins.append((max(start, at), last))
        at = end
    if at < high and last is not plain:
        begins.append((at, plain))
    ends = [start for start, _ in begins[1:]]
    return [
        Segment(text[start:end], style)
        for (start, style), end in zip(begins, (*ends, high), strict=False)
    ]


def laid_over(spans: Sequence[Span], found: Sequence[Span]) -> list[Span]:
    """Spans with others over them, both in order: what is found wins over a colour."""
    out: list[Span] = []
    rest = list(reversed(spans))
    for over in found:
        while rest and rest[-1].start < over.end:
            span = rest.pop()
            if span.start < over.start:
                out.append(Span(span.start, min(span.end, over.start), span.kind))
            if span.end > over.end:
                rest.append(Span(over.end, span.end, span.kind))
                break
        out.append(over)
    return [*out, *reversed(rest)]
