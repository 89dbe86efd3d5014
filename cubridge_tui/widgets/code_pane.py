"""The pane that every text is shown in: source, IR, diff, log.

One Line API widget: what a row looks like is the business of `RowStrips`; here are the cursor, the
marks, the selection and the keys. The gutter (line number, origin, sign, link) never scrolls aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from rich.style import Style
from textual import events
from textual.color import Color
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.timer import Timer

from cubridge_tui.model import search
from cubridge_tui.model.rows import SIGNS, PaneText, Row
from cubridge_tui.text.highlight import Span
from cubridge_tui.text.sanitise import one_line
from cubridge_tui.widgets.paint import ORIGIN_MARKS, Flags, palette_of
from cubridge_tui.widgets.row_places import nearest_line, next_start, runs, same_place
from cubridge_tui.widgets.row_strips import Look, RowStrips
from cubridge_tui.widgets.slim_scrollbar import SlimScrollBar

AHEAD_SECONDS = 0.03  # a key's repaint comes first
BETWEEN_SECONDS = 0.002
AHEAD_ROWS = 12  # at a time: a key that comes in between waits for them


class CodePane(ScrollView, can_focus=True):
    """Rows with a cursor, marks, search and selection."""

    DEFAULT_CSS = """
    CodePane {
        background: $surface;
        scrollbar-size-vertical: 1;
        scrollbar-size-horizontal: 0;
    }
    CodePane.framed {
        border-top: solid $panel;
        border-title-color: $text-muted;
        border-title-background: $surface;
    }
    CodePane.framed:focus {
        border-top: solid $primary;
        border-title-color: $primary;
        border-title-style: bold;
    }
    """

    cursor: reactive[int] = reactive(0, repaint=False)

    class CursorMoved(Message):
        """The cursor stands on another row, or the rows changed under it."""

        def __init__(self, pane: CodePane) -> None:
            self.pane = pane
            super().__init__()

        @property
        def control(self) -> CodePane:
            return self.pane

    def __init__(
        self, id: str | None = None, classes: str | None = None, *, framed: bool = True
    ) -> None:
        """A pane; `framed` gives it its title as a border that shows the focus."""
        super().__init__(id=id, classes=classes)
        self._framed = framed
        self.set_class(framed, "framed")
        self.content = PaneText()
        self._strips = RowStrips()
        self._links: dict[int, str] = {}
        self._anchor: int | None = None
        # Called as soon as the cursor moves, where given: what follows it is in the same repaint.
        self.follower: Callable[[], None] | None = None
        self._ahead: Timer | None = None
        self._coming: Iterator[int] = iter(())
        self._ground: tuple[Style, Color] | None = None

    def watch_has_focus(self, _has_focus: bool) -> None:
        """The focus changes a frame's colours; without one nothing need be styled again."""
        if self._framed:
            super().watch_has_focus(_has_focus)

    def on_focus(self, event: events.Focus) -> None:
        self._focus_moved(event, True)

    def on_blur(self, event: events.Blur) -> None:
        self._focus_moved(event, False)

    def _focus_moved(self, event: events.Focus | events.Blur, here: bool) -> None:
        """As Textual does, but that only the cursor's row is painted again, not every row."""
        self._refresh_rows([self.cursor])
        if here:
            self.post_message(self.CursorMoved(self))
        if self._framed or self.parent is None:
            return
        event.prevent_default()
        self.has_focus = here
        news = events.DescendantFocus(self) if here else events.DescendantBlur(self)
        self.parent.post_message(news)

    def notify_style_update(self) -> None:
        self._ground = None
        super().notify_style_update()

    # --- content ---------------------------------------------------------------------------------

    def show(
        self,
        content: PaneText,
        *,
        keep_place: bool = True,
        spans: Sequence[Sequence[Span]] | None = None,
    ) -> None:
        """Show other rows; the cursor stays on the same line of the text where that still is.

        `spans` gives the colours of texts that are in no language.
        """
        before = self.row
        offset = self.cursor - self.scroll_offset.y
        self.content = content
        rows = content.rows
        self._strips.show(content, spans)
        self._links = {}
        self._anchor = None
        # A tab is at most four cells; wide characters are counted when they are met.
        longest = max((len(r.text) + 3 * r.text.count("\t") for r in rows), default=0)
        self.virtual_size = Size(longest + self.gutter_width + 1, len(rows))
        self.border_title = escaped(content.title)
        keeps = keep_place and before is not None
        place = same_place(rows, self.cursor, before) if keeps and before is not None else 0
        self.set_reactive(CodePane.cursor, min(place, max(len(rows) - 1, 0)))
        self.scroll_to(y=max(self.cursor - offset, 0) if place else 0, animate=False, force=True)
        self.refresh()
        self._read_ahead_soon()
        self.post_message(self.CursorMoved(self))

    def grow(self, rows: Sequence[Row], title: str) -> None:
        """Show a text that only grew: what stands stays painted, and a cursor at its end follows.

        Rows before the last one shown so far are taken to be the same.
        """
        first = max(len(self.content.rows) - 1, 0)
        if not self.content.rows or len(rows) < len(self.content.rows):
            self.show(PaneText(tuple(rows), "", title), keep_place=False)
            return
        follows = self.cursor >= first
        self.content = PaneText(rows, "", title)
        self._strips.grow(self.content, first)
        longest = max(len(r.text) + 3 * r.text.count("\t") for r in rows[first:])
        width = max(self.virtual_size.width, longest + self.gutter_width + 1)
        self.virtual_size = Size(width, len(rows))
        self._refresh_rows(range(first, len(rows)))
        if follows:
            self.cursor = len(rows) - 1

    @property
    def row(self) -> Row | None:
        """The row under the cursor."""
        rows = self.content.rows
        return rows[self.cursor] if 0 <= self.cursor < len(rows) else None

    @property
    def line(self) -> int | None:
        """The line of the text under the cursor, or the next one after it."""
        rows = self.content.rows
        return next((r.number for r in rows[self.cursor :] if r.number is not None), None)

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
    def gutter_width(self) -> int:
        return self._strips.gutter_width

    def on_resize(self) -> None:
        """The cursor stays in sight whatever the size becomes."""
        self._reveal(self.cursor)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._read_ahead_soon(down=new_value >= old_value)

    def _read_ahead_soon(self, *, down: bool = True) -> None:
        """Make the rows that the next page will show while nobody waits for them."""
        top, height = self.scroll_offset.y, self.size.height
        self._coming = iter(range(top + height, top + 2 * height) if down
                            else range(top - 1, top - height - 1, -1))  # fmt: skip
        if self._ahead is None and self.is_attached:
            self._ahead = self.set_timer(AHEAD_SECONDS, self._read_ahead)

    def _read_ahead(self) -> None:
        self._ahead = None
        if not self.is_attached or not self.display:
            return
        rows = [*islice(self._coming, AHEAD_ROWS)]
        self._use_look()
        for index in rows:
            if 0 <= index < len(self.content.rows):
                self._row_strip(index).render(self.app.console)  # which the strip keeps
        if rows:
            self._ahead = self.set_timer(BETWEEN_SECONDS, self._read_ahead)

    # --- marks -----------------------------------------------------------------------------------

    def mark(self, op: Iterable[int], loop: Iterable[int], worker: Iterable[int]) -> None:
        """Mark rows in three strengths: the op itself, its loop, its worker."""
        links = dict.fromkeys(worker, "worker") | dict.fromkeys(loop, "loop")
        links |= dict.fromkeys(op, "op")
        before, self._links = self._links, links
        top = self.scroll_offset.y
        seen = range(top, top + self.size.height)
        self._refresh_rows([i for i in seen if before.get(i) != links.get(i)])

    @property
    def linked(self) -> int | None:
        """The first row that shows the op as it is now; else one of it that is gone."""
        rows = self.content.rows
        found = sorted((rows[i].number is None, i) for i, s in self._links.items() if s == "op")
        return found[0][1] if found else None

    # --- the cursor ------------------------------------------------------------------------------

    def validate_cursor(self, value: int) -> int:
        return max(0, min(value, len(self.content.rows) - 1)) if self.content.rows else 0

    def watch_cursor(self, old: int, new: int) -> None:
        self._refresh_rows(sorted({old, new}))
        if self._anchor is not None:
            self.refresh()
        self._reveal(new)
        if self.follower is not None:
            self.follower()
        else:
            self.post_message(self.CursorMoved(self))

    def go_to(self, index: int, *, centre: bool = True) -> None:
        """The cursor to a row; in the middle of the pane where it was out of sight."""
        self._anchor = None
        self.cursor = index
        if centre:
            self.centre(self.cursor)

    def go_to_line(self, number: int) -> bool:
        """The cursor to a line of the text; to the nearest one that is shown."""
        index = nearest_line(self.content.rows, number)
        if index is not None:
            self.go_to(index)
        return index is not None

    def centre(self, index: int) -> None:
        """Scroll a row into the middle where it is near an edge or out of sight."""
        height = self.scrollable_content_region.height
        top = self.scroll_offset.y
        if not top + 2 <= index < top + height - 2:
            self.scroll_to(y=max(index - height // 2, 0), animate=False, force=True)

    def _reveal(self, index: int) -> None:
        height = max(self.scrollable_content_region.height, 1)
        top = self.scroll_offset.y
        if index < top:
            self.scroll_to(y=index, animate=False, force=True)
        elif index >= top + height:
            self.scroll_to(y=index - height + 1, animate=False, force=True)

    def _refresh_rows(self, indexes: Sequence[int]) -> None:
        """Paint these rows again (ascending), where they are in sight."""
        top, size = self.scroll_offset.y, self.size
        seen = [i - top for i in indexes if top <= i < top + size.height]
        if seen:
            self.refresh(*(Region(0, y, size.width, count) for y, count in runs(seen)))

    def next_hunk(self, step: int) -> bool:
        """The cursor to the next (1) or previous (-1) changed stretch, round the end."""
        target = next_start(self.content.rows, self.cursor, step)
        if target is not None:
            self.go_to(target)
        return target is not None

    # --- search ----------------------------------------------------------------------------------

    def search(self, words: str) -> int:
        """Show matches of `words`; the cursor goes to the first at or after it. Their count."""
        self._strips.search(words)
        self.refresh()
        count = sum(1 for line in self._lines() if search.matches(line, words)) if words else 0
        row = self.row
        if count and row is not None and not search.matches(self.shown_line(self.cursor), words):
            self.next_match(1)
        return count

    def next_match(self, step: int) -> bool:
        found = search.find(self._lines(), self._strips.words, self.cursor, step)
        if found is not None:
            self.go_to(found)
        return found is not None

    def _lines(self) -> list[str]:
        return [self.shown_line(i) for i in range(len(self.content.rows))]

    # --- selection -------------------------------------------------------------------------------

    def _selected(self) -> range:
        if self._anchor is None:
            return range(self.cursor, self.cursor + 1)
        low, high = sorted((self._anchor, self.cursor))
        return range(low, high + 1)

    def copied(self) -> str:
        """The selected lines (or the cursor's) as they are in the artifact."""
        rows = self.content.rows
        return "\n".join(rows[i].text for i in self._selected() if i < len(rows))

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
        flags = Flags(
            focused=index == self.cursor and self.has_focus,
            link=self._links.get(index, ""),
            selected=self._anchor is not None and index in self._selected(),
        )
        return self._strips.strip(index, flags)

    # --- keys and mouse --------------------------------------------------------------------------

    def _move(self, step: int, select: bool = False) -> None:
        if select and self._anchor is None:
            self._anchor = self.cursor
        elif not select and self._anchor is not None:
            self._anchor = None
            self.refresh()
        self.cursor += step

    def on_key(self, event: events.Key) -> None:
        page = max(self.scrollable_content_region.height - 1, 1)
        count = len(self.content.rows)
        moves = {
            "up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "pagedown": page,
            "ctrl+u": -page // 2, "ctrl+d": page // 2, "home": -count, "end": count, "G": count,
        }  # fmt: skip
        selecting = {"shift+up": -1, "shift+down": 1, "J": 1}
        sideways = {"left": -4, "h": -4, "right": 4, "l": 4}
        if event.key in moves:
            self._move(moves[event.key])
        elif event.key in selecting:
            self._move(selecting[event.key], select=True)
        elif event.key in sideways:
            x = self.scroll_offset.x + sideways[event.key]
            self.scroll_to(x=max(x, 0), animate=False, force=True)
        elif event.key == "escape" and self._anchor is not None:
            self._anchor = None
            self.refresh()
        else:
            return
        event.stop()
        event.prevent_default()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        offset = event.get_content_offset(self)
        if offset is not None and self.content.rows:
            self._anchor = None
            self.cursor = offset.y + self.scroll_offset.y
            self._anchor_candidate = self.cursor
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.app.mouse_captured is self and event.button:
            start = getattr(self, "_anchor_candidate", self.cursor)
            y = event.y - self.gutter.top + self.scroll_offset.y
            if y != start or self._anchor is not None:
                self._anchor = start
                self.cursor = y
                self.refresh()

    def on_mouse_up(self) -> None:
        if self.app.mouse_captured is self:
            self.release_mouse()


def escaped(text: str) -> str:
    """A border title is markup: brackets in data are written so that they stay brackets."""
    return one_line(text).replace("[", "\\[")


__all__ = ["ORIGIN_MARKS", "SIGNS", "CodePane", "escaped"]
