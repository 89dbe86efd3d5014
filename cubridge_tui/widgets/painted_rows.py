"""The painting half of a pane: which rows are in sight, and how each of them looks now.

What a row looks like is the business of `RowStrips`; here is what changes it (the cursor, the
focus, marks, a selection, the scroll offset), and the way past what Textual does to each line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from rich.style import Style
from textual.color import Color
from textual.geometry import Region
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.strip import Strip

from cubridge_tui.model.rows import PaneText
from cubridge_tui.widgets.ahead import Ahead
from cubridge_tui.widgets.paint import Flags, palette_of
from cubridge_tui.widgets.row_places import hunk_end, runs
from cubridge_tui.widgets.row_strips import Look, RowStrips
from cubridge_tui.widgets.slim_scrollbar import SlimScrollBar

if TYPE_CHECKING:
    from cubridge_tui.model.links import Marks

# A row to make, with the links that it will have where they are other ones then.
Coming = tuple[int, dict[int, str] | None]


class PaintedRows(ScrollView):
    """Rows in sight, each painted again only when its own look changes."""

    cursor: reactive[int] = reactive(0, repaint=False)

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.content = PaneText()
        self._strips = RowStrips()
        self._links: dict[int, str] = {}
        self._ops: tuple[int, ...] = ()  # the rows that show the marked op
        self._expected: tuple[int | None, Callable[[], Marks]] | None = None  # see `expect`
        self._anchor: int | None = None
        self._down = True
        self._ground: tuple[Style, Color] | None = None
        self.scrolled: Callable[[], None] | None = None  # called as soon as other rows are shown

    def notify_style_update(self) -> None:
        self._ground = None
        super().notify_style_update()

    def shown_line(self, index: int) -> str:
        """A row's text as shown: tabs expanded, control characters visible."""
        return self._strips.line(index)

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        """The scrollbar, made when it is first asked for, as Textual makes its own."""
        if self._vertical_scrollbar is None:
            bar = SlimScrollBar(
                vertical=True, name="vertical", thickness=self.scrollbar_size_vertical
            )
            self._vertical_scrollbar = bar
            bar.display = False
            self.app._start_widget(self, bar)
        return self._vertical_scrollbar

    @property
    def allow_horizontal_scroll(self) -> bool:
        """Without a scrollbar too, which would take a row."""
        return self.max_scroll_x > 0

    @property
    def gutter_width(self) -> int:
        return self._strips.gutter_width

    # --- marks -----------------------------------------------------------------------------------

    def mark(self, op: Iterable[int], loop: Iterable[int], worker: Iterable[int]) -> None:
        """Mark rows in three strengths: the op itself, its loop, its worker."""
        if (ops := tuple(op)) != self._ops:
            self._ops, self._expected = ops, None
        before, self._links = self._links, (links := _links(ops, loop, worker))
        top = self.scroll_offset.y
        seen = range(top, top + self.size.height)
        self._refresh_rows([i for i in seen if before.get(i) != links.get(i)])
        if self._ops and not self.has_focus:
            self._read_ahead_soon()  # what following the op would show

    def expect(self, index: int | None, marks: Callable[[], Marks]) -> None:
        """What the next key leads to, in all likelihood: a row (None: the one that shows the op),
        with these marks. It is painted while nobody waits for it."""
        self._expected = index, marks
        self._read_ahead_soon()

    @property
    def linked(self) -> int | None:
        """The first row that shows the op as it is now; else one of it that is gone."""
        return self._first(self._ops)

    def _first(self, op: Sequence[int]) -> int | None:
        rows = self.content.rows
        return min(op, key=lambda i: (rows[i].number is None, i), default=None)

    def _selected(self) -> range:
        if self._anchor is None:
            return range(self.cursor, self.cursor + 1)
        low, high = sorted((self._anchor, self.cursor))
        return range(low, high + 1)

    def _refresh_rows(self, indexes: Sequence[int]) -> None:
        """Paint these rows again (ascending), where they are in sight."""
        top, size = self.scroll_offset.y, self.size
        seen = [i - top for i in indexes if top <= i < top + size.height]
        if seen:
            self.refresh(*(Region(0, y, size.width, count) for y, count in runs(seen)))

    # --- rendering -------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        """What is in sight. Only the frame goes through Textual's styles: of each line, they would
        make five copies (0.1 ms a line).
        """
        frame = self.styles.gutter
        if frame.left or frame.right or frame.bottom:
            return super().render_lines(crop)
        left, right = crop.column_span
        wide = right - left != self.region.width
        out: list[Strip] = []
        if crop.y < frame.top:
            out += super().render_lines(crop.intersection(Region(left, 0, crop.width, frame.top)))
        self._use_look()
        first = self.scroll_offset.y - frame.top
        for y in range(max(crop.y, frame.top), crop.bottom):
            strip = self._row_strip(first + y)
            out.append(strip.crop(left, right) if wide else strip)
        return out

    def render_line(self, y: int) -> Strip:
        self._use_look()
        return self._row_strip(y + self.scroll_offset.y)

    def _use_look(self) -> None:
        app = self.app
        width, x = self.scrollable_content_region.width, self.scroll_offset.x
        filters = tuple(self.get_line_filters())
        if self._ground is None:
            # The pane's own colours: nothing else paints them behind a line.
            self._ground = (self.rich_style, self.background_colors[1])
        self._strips.use(Look(palette_of(app), *self._ground, filters, width, x))

    def _row_strip(self, index: int, links: dict[int, str] | None = None) -> Strip:
        """A row as it looks now; with other `links`, as it will where they are marked."""
        flags = Flags(
            focused=index == self.cursor and self.has_focus,
            link=(self._links if links is None else links).get(index, ""),
            selected=self._anchor is not None and index in self._selected(),
        )
        return self._strips.strip(index, flags)

    # --- what comes into sight next ---------------------------------------------------------------

    def centred(self, index: int) -> int | None:
        """The first row in sight when a row is brought into the middle; None: it is in sight, and
        not at an edge. Of a hunk's head all of the hunk, as far as that fits.
        """
        height, top = self.scrollable_content_region.height, self.scroll_offset.y
        end = hunk_end(self.content.rows, index)
        if top + 2 <= index < top + height - 2 and end < top + height:
            return None
        first = max(index - height // 2, min(index - 1, end - height + 1))
        return min(max(first, 0), int(self.max_scroll_y))

    def _expect(self) -> Iterator[Coming]:
        """The rows that the next key brings into sight, with their links."""
        if self._expected is not None:
            index, told = self._expected
            marks = told()
            links = _links(*marks)
            for i in self._around(self._first(marks.op) if index is None else index):
                yield i, links

    def _around(self, index: int | None) -> range:
        """The rows that are in sight once a row that is not has been brought into the middle."""
        first = None if index is None else self.centred(index)
        return range(0) if first is None else range(first, first + self.size.height)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self.scrolled is not None:
            self.scrolled()
        self._down = new_value >= old_value
        self._read_ahead_soon()

    def _read_ahead_soon(self) -> None:
        """Make what the next key will show, in an app that has somebody who does."""
        ahead = getattr(self.app, "ahead", None) if self.is_attached else None
        if isinstance(ahead, Ahead):
            ahead.soon(self)

    @property
    def waits_for_paint(self) -> bool:
        """Whether what a key changed here is not on the screen yet."""
        screen = self.screen
        moved = screen._scroll_required or screen._layout_required
        return screen.is_current and (
            moved or self._repaint_required or self in screen._dirty_widgets
        )

    def coming(self) -> Iterator[Coming]:
        """What the next key may bring into sight: rows around the marked op, where a search goes
        next, the next page."""
        top, height = self.scroll_offset.y, self.size.height
        after, before = range(top + height, top + 2 * height), range(top - height, top)
        page = after if self._down else reversed(before)
        linked = self._around(None if self.has_focus else self.linked)
        return chain(((i, None) for i in linked), self._expect(), ((i, None) for i in page))

    def make(self, coming: Iterator[Coming], until: float) -> bool:
        """Make rows until a time of the monotonic clock; whether none is left."""
        self._use_look()
        for index, links in coming:
            if 0 <= index < len(self.content.rows):
                self._row_strip(index, links).render(self.app.console)  # which the strip keeps
            if time.monotonic() > until:
                return False
        return True


def _links(op: Iterable[int], loop: Iterable[int], worker: Iterable[int]) -> dict[int, str]:
    """The mark of each marked row: the strongest."""
    marks = dict.fromkeys(worker, "worker") | dict.fromkeys(loop, "loop")
    return marks | dict.fromkeys(op, "op")
