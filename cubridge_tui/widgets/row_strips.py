"""Rows as strips: each is made when it is seen, coloured then, and kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.cache import FIFOCache
from textual.color import BLACK, Color
from textual.filter import LineFilter
from textual.strip import Strip

from cubridge_tui.model import search
from cubridge_tui.model.rows import PaneText, Row, RowKind
from cubridge_tui.text.cells import shown
from cubridge_tui.text.highlight import Highlighter, Span
from cubridge_tui.themes import Palette
from cubridge_tui.widgets.paint import Flags, Inks, gutter, paint_row

KEPT = 600  # strips of a look: four pages of a tall pane, each row with two marks
LOOKS = 3  # a layout, and those that keys lead to from it and back


class Look(NamedTuple):
    """What all rows of a pane have in common: colours, and the cells that are in sight."""

    palette: Palette
    ground: Style
    background: Color = BLACK
    filters: tuple[LineFilter, ...] = ()
    width: int = 0
    scroll_x: int = 0


class _Nothing(FIFOCache[Any, Any]):
    """Keeps nothing."""

    def get(self, key: Any, default: Any = None) -> Any:
        return default

    def set(self, key: Any, value: Any) -> None: ...

    __setitem__ = set


def _fields() -> tuple[tuple[str, Any], ...]:
    """What a new strip of this Textual has, with nothing in the place of its caches."""
    plain, nothing = Strip([], 0), _Nothing(0)
    fields = [(name, getattr(plain, name)) for name in Strip.__slots__]
    return tuple((n, nothing if isinstance(v, FIFOCache) else v) for n, v in fields)


_FIELDS = _fields()


class RowStrip(Strip):
    """A strip without the seven caches of its own, which cost more than it does: it is kept itself.

    They are made with each strip, and the garbage collector has to walk them all.
    """

    __slots__ = ()

    def __init__(self, segments: Sequence[Segment], cell_length: int) -> None:
        for name, value in _FIELDS:
            setattr(self, name, value)
        self._segments = list(segments)
        self._cell_length = cell_length


class RowStrips:
    """The strips of one text. A strip that is kept is the same object, so what Textual derives
    from it (terminal codes above all) is kept with it.
    """

    def __init__(self) -> None:
        self.words = ""
        self._content = PaneText()
        self._lines: list[str | None] = []
        self._given: Sequence[Sequence[Span]] | None = None
        self._highlighter = Highlighter(lambda _: "", "")
        self._number_width = 0
        self._look: Look | None = None
        self._inks: Inks
        self._kept: dict[tuple[int, Flags], Strip] = {}
        self._looks: list[tuple[Look, Inks, dict[tuple[int, Flags], Strip]]] = []

    def show(self, content: PaneText, spans: Sequence[Sequence[Span]] | None = None) -> None:
        """Other rows; `spans` brings their colours, which are lexed otherwise."""
        rows = content.rows
        self._content, self._given = content, spans
        self._lines = [None] * len(rows)
        self._highlighter = Highlighter(self.line, content.language)
        self._number_width = _number_width(rows)
        self._forget(0)

    def grow(self, content: PaneText, first: int) -> None:
        """Rows from `first` on are new; those before it stay as they are."""
        self._content = content
        self._lines = [*self._lines[:first], *[None] * (len(content.rows) - first)]
        self._highlighter = Highlighter(self.line, content.language)
        self._forget(first)

    def search(self, words: str) -> None:
        """Mark what matches."""
        self.words = words
        self._forget(0)

    def _forget(self, first: int) -> None:
        """The strips of rows from `first` on."""
        for _, _, kept in self._looks:
            for key in [k for k in kept if k[0] >= first]:
                del kept[key]

    def use(self, look: Look) -> None:
        """The look of all strips that are asked for from now on."""
        if look == self._look:
            return
        found = [made for made in self._looks if made[0] == look]
        if not found:
            inks = next((i for made, i, _ in self._looks if made[:4] == look[:4]), None)
            if inks is None:
                inks = Inks(look.palette, look.ground, look.filters, look.background)
            found = [(look, inks, {})]
        self._looks = [*found, *(made for made in self._looks if made[0] != look)][:LOOKS]
        self._look, self._inks, self._kept = found[0]

    @property
    def gutter_width(self) -> int:
        """Cells before a row's text."""
        return _gutter(self._number_width)

    def line(self, index: int) -> str:
        """A row's text as shown: tabs expanded, control characters visible."""
        text = self._lines[index]
        if text is None:
            row = self._content.rows[index]
            text = "" if row.kind in (RowKind.HEAD, RowKind.NOTE) else shown(row.text)
            self._lines[index] = text
        return text

    def strip(self, index: int, flags: Flags) -> Strip:
        """A row as a strip of the look's width; past the last row a blank one, or the note."""
        key = (index, flags)
        strip = self._kept.get(key)
        if strip is None:
            if len(self._kept) >= KEPT:  # the oldest half goes
                for old in list(self._kept)[: KEPT // 2]:
                    del self._kept[old]
            rows = self._content.rows
            strip = self._row(index, flags) if index < len(rows) else self._past_the_end(index)
            self._kept[key] = strip
        return strip

    def _row(self, index: int, flags: Flags) -> Strip:
        look = self._look
        assert look is not None
        row = self._content.rows[index]
        room = max(look.width - self.gutter_width, 1)
        text = self.line(index)
        spans: Sequence[Span] = ()
        if self._given is not None:
            spans = self._given[index] if index < len(self._given) else ()
        elif row.kind not in (RowKind.HEAD, RowKind.NOTE):
            spans = self._highlighter.spans(index)
        found = [Span(start, end, "match") for start, end in search.matches(text, self.words)]
        if not found and text == row.text:  # columns are the shown ones
            found = [Span(start, end, "changed") for start, end in row.changed]
        head = gutter(row, flags, self._number_width, self._inks, aside=look.scroll_x > 0)
        body = paint_row(row, text, spans, found, flags, self._inks, look.scroll_x, room)
        strip = RowStrip([*head, *body], self.gutter_width + room)
        return strip.adjust_cell_length(look.width, self._inks.named(""))

    def _past_the_end(self, index: int) -> Strip:
        assert self._look is not None
        width, note = self._look.width, self._content.note
        if note and not self._content.rows and index == 1:
            text = f"  {note}"
            cut = text if cell_len(text) <= width else text[: width - 1] + "…"
            strip = Strip([Segment(cut, self._inks.named("dim"))])
            return strip.adjust_cell_length(width, self._inks.named(""))
        return RowStrip([Segment(" " * width, self._inks.named(""))], width)


def gutter_width(rows: Sequence[Row]) -> int:
    """Cells before the text of these rows."""
    return _gutter(_number_width(rows))


def _gutter(number_width: int) -> int:
    return number_width + 4 if number_width else 1


def _number_width(rows: Sequence[Row]) -> int:
    last = max((r.number or 0 for r in rows), default=0)
    return max(3, len(str(last))) if last else 0
