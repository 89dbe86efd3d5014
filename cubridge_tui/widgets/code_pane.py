"""The pane that every text is shown in: source, IR, diff, log.

One Line API widget: `PaintedRows` shows rows; here are what they are, where the cursor goes,
search, copying, keys and mouse. The gutter (number, origin, sign, link) never scrolls aside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from textual import events
from textual.geometry import Size
from textual.message import Message

from cubridge_tui.model import search
from cubridge_tui.model.rows import NOTES, SIGNS, PaneText, Row, RowKind, fitted
from cubridge_tui.text.highlight import Span
from cubridge_tui.text.sanitise import one_line
from cubridge_tui.widgets.paint import ORIGIN_MARKS
from cubridge_tui.widgets.painted_rows import PaintedRows
from cubridge_tui.widgets.row_places import hunk_end, nearest_line, next_start, same_place
from cubridge_tui.widgets.row_strips import gutter_width


class CodePane(PaintedRows, can_focus=True):
    """Rows with a cursor, marks, search and selection."""

    DEFAULT_CSS = """
    CodePane {
        background: $surface;
        scrollbar-size-vertical: 1;
        scrollbar-size-horizontal: 0;
        overflow-x: hidden;  /* no bar: one that came and went would arrange all again */
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
        self.given = self.content  # what is shown, before long rows are taken apart
        self.wraps = NOTES  # the kinds of rows that are taken apart where they are long
        self._places: Sequence[int] = ()  # of each row shown, the given one that it is a piece of
        self._width = 0
        # Called as soon as the cursor moves, where given: what follows it is in the same repaint.
        self.follower: Callable[[], None] | None = None

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
        self.given = content
        self._width = self.scrollable_content_region.width
        self._places = range(len(content.rows))
        if spans is None and self._width:
            room = max(self._width - gutter_width(content.rows) - 1, 20)
            rows, self._places = fitted(content.rows, room, self.wraps)
            content = replace(content, rows=rows)
        self.content = content
        rows = content.rows
        self._strips.show(content, spans)
        self._links, self._ops, self._expected = {}, (), None
        self._anchor = None
        # A tab is at most four cells; wide characters are counted when they are met.
        longest = max((len(r.text) + 3 * r.text.count("\t") for r in rows), default=0)
        self.virtual_size = Size(longest + self.gutter_width + 1, len(rows))
        self.border_title = escaped(content.title)
        keeps = keep_place and before is not None
        place = same_place(rows, self.cursor, before) if keeps and before is not None else 0
        self.set_reactive(CodePane.cursor, min(place, max(len(rows) - 1, 0)))
        top = max(self.cursor - offset, 0) if place else 0
        height = max(self.scrollable_content_region.height, 1)
        if place and rows[self.cursor].kind is RowKind.HEAD:  # all of a hunk that grew, if it fits
            top = max(top, min(self.cursor - 1, hunk_end(rows, self.cursor) - height + 1))
        self.scroll_to(y=top, animate=False, force=True)
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
        self.content = self.given = PaneText(rows, "", title)
        self._places = range(len(rows))
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

    def on_resize(self) -> None:
        """The cursor stays in sight whatever the size becomes."""
        taken_apart = any(r.kind in self.wraps for r in self.given.rows)
        if taken_apart and self._width != self.scrollable_content_region.width:
            self.show(self.given)
        self._reveal(self.cursor)
        self._read_ahead_soon()

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

    def go_to(self, index: int, *, centre: bool = True, aside: bool = False) -> None:
        """The cursor to a row; in the middle of the pane where it was out of sight.

        A jump shows the row from its first column on, but with `aside`.
        """
        self._anchor = None
        if self.scroll_offset.x and not aside:
            self.scroll_to(x=0, animate=False, force=True)
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
        top = self.centred(index)
        if top is not None:
            self.scroll_to(y=top, animate=False, force=True)

    def _reveal(self, index: int) -> None:
        height = max(self.scrollable_content_region.height, 1)
        top = self.scroll_offset.y
        if index < top:
            self.scroll_to(y=index, animate=False, force=True)
        elif index >= top + height:
            self.scroll_to(y=index - height + 1, animate=False, force=True)

    def next_hunk(self, step: int) -> bool:
        """The cursor to the next (1) or previous (-1) changed stretch, round the end."""
        target = next_start(self.content.rows, self.cursor, step)
        if target is not None:
            self.go_to(target)
        return target is not None

    # --- search ----------------------------------------------------------------------------------

    def search(self, words: str, go: bool = True) -> int:
        """Show matches of `words`; with `go` the cursor goes to the first at or after it. The
        count of lines that match."""
        self._strips.search(words)
        self.refresh()
        lines = [self.shown_line(i) for i in range(len(self.content.rows))]
        count = search.count(lines, words)
        row = self.row
        here = row is not None and search.matches(self.shown_line(self.cursor), words)
        if go and count and row is not None and not here:
            self.next_match(1)
        return count

    def next_match(self, step: int) -> int | None:
        """The cursor to the next match (1) or the previous one (-1); where the same step leads
        then."""
        found = self.match(step)
        if found is None:
            return None
        self.go_to(found, aside=True)
        return self.match(step)

    def match(self, step: int) -> int | None:
        """The next row with a match (1) or the previous one (-1); None: there is none."""
        count, words = len(self.content.rows), self._strips.words
        return search.find(self.shown_line, count, words, self.cursor, step)

    # --- selection -------------------------------------------------------------------------------

    def copied(self) -> str:
        """The selected lines (or the cursor's) as they are in the artifact."""
        rows = self.given.rows
        places = (self._places[i] for i in self._selected() if i < len(self._places))
        return "\n".join(rows[i].text for i in dict.fromkeys(places))

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
