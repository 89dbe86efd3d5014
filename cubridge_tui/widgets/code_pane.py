"""The pane that every text is shown in: source, IR, diff, log.

One Line API widget: a row is rendered when it is visible, coloured a chunk at a time, and kept
until what it looks like changes. The gutter (line number, origin, sign, link) never scrolls aside.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer

from cubridge_tui.model import search
from cubridge_tui.model.rows import SIGNS, PaneText, Row, RowKind, hunk_starts
from cubridge_tui.text.cells import shown
from cubridge_tui.text.highlight import Highlighter, Span
from cubridge_tui.themes import Palette
from cubridge_tui.widgets.paint import ORIGIN_MARKS, Flags, gutter, paint_row, palette_of

_CACHE = 600
AHEAD_SECONDS = 0.05


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
        self._shown: list[str | None] = []
        self._highlighter = Highlighter(0, lambda _: "", "")
        self._generation = 0
        self._strips: OrderedDict[tuple[object, ...], Strip] = OrderedDict()
        self._links: dict[int, str] = {}
        self._words = ""
        self._anchor: int | None = None
        self._number_width = 3
        self._ahead: Timer | None = None
        self._ground: Style | None = None

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
        self._refresh_row(self.cursor)
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

    @property
    def ground(self) -> Style:
        """The pane's own colours; Textual makes them anew for every line that asks (0.1 ms)."""
        if self._ground is None:
            self._ground = self.rich_style
        return self._ground

    # --- content ---------------------------------------------------------------------------------

    def show(self, content: PaneText, *, keep_place: bool = True) -> None:
        """Show other rows; the cursor stays on the same line of the text where that still is."""
        before = self.row
        offset = self.cursor - self.scroll_offset.y
        self.content = content
        rows = content.rows
        self._shown = [None] * len(rows)
        self._highlighter = Highlighter(len(rows), self.shown_line, content.language)
        self._generation += 1
        self._links = {}
        self._anchor = None
        self._strips.clear()
        last = max((r.number or 0 for r in rows), default=0)
        self._number_width = max(3, len(str(last))) if last else 0
        # A tab is at most four cells; wide characters are counted when they are met.
        longest = max((len(r.text) + 3 * r.text.count("\t") for r in rows), default=0)
        self.virtual_size = Size(longest + self.gutter_width + 1, len(rows))
        self.border_title = escaped(content.title)
        place = self._same_place(before) if keep_place and before is not None else 0
        self.set_reactive(CodePane.cursor, min(place, max(len(rows) - 1, 0)))
        self.scroll_to(y=max(self.cursor - offset, 0) if place else 0, animate=False, force=True)
        self.refresh()
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
        self._shown = [*self._shown[:first], *[None] * (len(rows) - first)]
        self._highlighter = Highlighter(len(rows), self.shown_line, "")
        for key in [k for k in self._strips if isinstance(k[0], int) and k[0] >= first]:
            del self._strips[key]
        longest = max(len(r.text) + 3 * r.text.count("\t") for r in rows[first:])
        width = max(self.virtual_size.width, longest + self.gutter_width + 1)
        self.virtual_size = Size(width, len(rows))
        for index in range(first, len(rows)):
            self._refresh_row(index)
        if follows:
            self.cursor = len(rows) - 1

    def _same_place(self, before: Row) -> int:
        rows = self.content.rows
        if self.cursor < len(rows) and rows[self.cursor].text == before.text:
            return self.cursor
        tests = (
            [
                before.key is not None and r.key == before.key and r.text == before.text
                for r in rows
            ],
            [bool(before.hunk) and r.hunk == before.hunk for r in rows],
            [before.number is not None and r.number == before.number for r in rows],
        )
        for found in tests:
            if True in found:
                return found.index(True)
        return min(self.cursor, max(len(rows) - 1, 0))

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
        text = self._shown[index]
        if text is None:
            row = self.content.rows[index]
            text = "" if row.kind in (RowKind.HEAD, RowKind.NOTE) else shown(row.text)
            self._shown[index] = text
        return text

    @property
    def gutter_width(self) -> int:
        return self._number_width + 4 if self._number_width else 1

    def on_resize(self) -> None:
        """The cursor stays in sight whatever the size becomes."""
        self._reveal(self.cursor)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._read_ahead_soon()

    def _read_ahead_soon(self) -> None:
        """Colour what the next page will show while nobody waits for it."""
        if self._ahead is None and self.is_attached:
            self._ahead = self.set_timer(AHEAD_SECONDS, self._read_ahead)

    def _read_ahead(self) -> None:
        self._ahead = None
        top, height = self.scroll_offset.y, self.size.height
        places = (top + height, top + 2 * height, top - 1, top - height)
        if self._highlighter.prepare(places):
            self._read_ahead_soon()

    # --- marks -----------------------------------------------------------------------------------

    def mark(self, op: Iterable[int], loop: Iterable[int], worker: Iterable[int]) -> None:
        """Mark rows in three strengths: the op itself, its loop, its worker."""
        links = dict.fromkeys(worker, "worker") | dict.fromkeys(loop, "loop")
        links |= dict.fromkeys(op, "op")
        before, self._links = self._links, links
        top = self.scroll_offset.y
        for index in range(top, top + self.size.height):
            if before.get(index) != links.get(index):
                self.refresh_line(index)

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
        for index in (old, new):
            self._refresh_row(index)
        if self._anchor is not None:
            self.refresh()
        self._reveal(new)
        self.post_message(self.CursorMoved(self))

    def go_to(self, index: int, *, centre: bool = True) -> None:
        """The cursor to a row; in the middle of the pane where it was out of sight."""
        self._anchor = None
        self.cursor = index
        if centre:
            self.centre(self.cursor)

    def go_to_line(self, number: int) -> bool:
        """The cursor to a line of the text; to the nearest one that is shown."""
        numbered = [(abs((r.number or 0) - number), i) for i, r in enumerate(self.content.rows)
                    if r.number is not None]  # fmt: skip
        if numbered:
            self.go_to(min(numbered)[1])
        return bool(numbered)

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

    def _refresh_row(self, index: int) -> None:
        top = self.scroll_offset.y
        if top <= index < top + self.size.height:
            self.refresh_line(index)

    def next_hunk(self, step: int) -> bool:
        """The cursor to the next (1) or previous (-1) changed stretch, round the end."""
        starts = hunk_starts(self.content.rows)
        if not starts:
            return False
        if step > 0:
            target = next((s for s in starts if s > self.cursor), starts[0])
        else:
            target = next((s for s in reversed(starts) if s < self.cursor), starts[-1])
        self.go_to(target)
        return True

    # --- search ----------------------------------------------------------------------------------

    def search(self, words: str) -> int:
        """Show matches of `words`; the cursor goes to the first at or after it. Their count."""
        self._words = words
        self._strips.clear()
        self.refresh()
        count = sum(1 for line in self._lines() if search.matches(line, words)) if words else 0
        row = self.row
        if count and row is not None and not search.matches(self.shown_line(self.cursor), words):
            self.next_match(1)
        return count

    def next_match(self, step: int) -> bool:
        found = search.find(self._lines(), self._words, self.cursor, step)
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

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        scroll_x, scroll_y = self.scroll_offset
        index = y + scroll_y
        # The pane's own colours: nothing else paints them behind a line.
        palette, ground = palette_of(self.app), self.ground
        if index >= len(self.content.rows):
            return self._past_the_end(y, width, palette).apply_style(ground)
        row = self.content.rows[index]
        flags = Flags(
            focused=self.has_focus and index == self.cursor,
            link=self._links.get(index, ""),
            selected=self._anchor is not None and index in self._selected(),
        )
        key = (index, flags, scroll_x, width, palette.name, ground, self._generation)
        strip = self._strips.get(key)
        if strip is None:
            strip = self._strip(row, index, flags, scroll_x, width, palette).apply_style(ground)
            self._strips[key] = strip
            if len(self._strips) > _CACHE:
                self._strips.popitem(last=False)
        return strip

    def _strip(
        self, row: Row, index: int, flags: Flags, scroll_x: int, width: int, palette: Palette
    ) -> Strip:
        head = gutter(row, flags, self._number_width, palette)
        room = max(width - self.gutter_width, 1)
        text = self.shown_line(index)
        spans: list[Span] = []
        if row.kind not in (RowKind.HEAD, RowKind.NOTE):
            spans = [*self._highlighter.spans(index)]
        found = search.matches(text, self._words)
        body = paint_row(row, text, spans, found, flags, palette, scroll_x, room)
        return Strip([*head, *body], self.gutter_width + room).simplify()

    def _past_the_end(self, y: int, width: int, palette: Palette) -> Strip:
        note = self.content.note
        if note and not self.content.rows and y == 1:
            text = f"  {note}"
            cut = text if cell_len(text) <= width else text[: width - 1] + "…"
            strip = Strip([Segment(cut, palette.style("dim"))])
            return strip.adjust_cell_length(width, Style.null())
        return Strip.blank(width, Style.null())

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
    from cubridge_tui.text.sanitise import one_line

    return one_line(text).replace("[", "\\[")


__all__ = ["ORIGIN_MARKS", "SIGNS", "CodePane", "escaped"]
