"""The painting half of a pane: which rows are in sight, and how each of them looks now.

What a row looks like is the business of `RowStrips`; here is what changes it (the cursor, the
focus, marks, a selection, the scroll offset), and the way past what Textual does to each line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.style import Style
from textual.color import Color
from textual.geometry import Region
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.strip import Strip

from cubridge_tui.model.rows import PaneText
from cubridge_tui.widgets.paint import Flags, palette_of
from cubridge_tui.widgets.row_places import hunk_end, runs
from cubridge_tui.widgets.row_strips import Look, RowStrips
from cubridge_tui.widgets.slim_scrollbar import SlimScrollBar


class PaintedRows(ScrollView):
    """Rows in sight, each painted again only when its own look changes."""

    cursor: reactive[int] = reactive(0, repaint=False)

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.content = PaneText()
        self._strips = RowStrips()
        self._links: dict[int, str] = {}
        self._ops: tuple[int, ...] = ()  # the rows that show the marked op
        self._anchor: int | None = None
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
        self._ops = tuple(op)
        before, self._links = self._links, (links := _links(self._ops, loop, worker))
        top = self.scroll_offset.y
        seen = range(top, top + self.size.height)
        self._refresh_rows([i for i in seen if before.get(i) != links.get(i)])

    @property
    def linked(self) -> int | None:
        """The first row that shows the op as it is now; else one of it that is gone."""
        rows = self.content.rows
        return min(self._ops, key=lambda i: (rows[i].number is None, i), default=None)

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

    def _row_strip(self, index: int) -> Strip:
        """A row as it looks now."""
        flags = Flags(
            focused=index == self.cursor and self.has_focus,
            link=self._links.get(index, ""),
            selected=self._anchor is not None and index in self._selected(),
        )
        return self._strips.strip(index, flags)

    # --- scrolling --------------------------------------------------------------------------------

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

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self.scrolled is not None:
            self.scrolled()


def _links(op: Iterable[int], loop: Iterable[int], worker: Iterable[int]) -> dict[int, str]:
    """The mark of each marked row: the strongest."""
    marks = dict.fromkeys(worker, "worker") | dict.fromkeys(loop, "loop")
    return marks | dict.fromkeys(op, "op")
