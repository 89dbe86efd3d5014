"""Lanes of events over cycles: a picture that scrolls sideways, zooms, and has a cursor."""

from __future__ import annotations

from collections.abc import Callable

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from cubridge_tui.screens.adaptation.lanes import Lane, Lanes, drawn
from cubridge_tui.text.sanitise import one_line
from cubridge_tui.widgets.paint import palette_of
from engine.cost.timeline.events import Event

HEAD = 1  # the ruler
NARROW = 90  # columns of a screen below which names are short
FINEST = 4.0  # cycles of a cell


class TimelinePane(ScrollView, can_focus=True):
    """One row for each lane, a title over the first of each timeline."""

    DEFAULT_CSS = """
    TimelinePane {
        background: $surface;
        scrollbar-size-vertical: 1;
        scrollbar-size-horizontal: 1;
    }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown = Lanes()
        self.scale = 0.0  # cycles of a cell; 0: one key tile fits
        self.lane = 0
        self.event: Event | None = None
        self._rows: list[tuple[str, Lane | None]] = []
        self.follower: Callable[[], None] | None = None  # called when the cursor has moved
        self._drawn: dict[int, list[tuple[str, str]]] = {}  # the stretches of rows, of `_drawn_at`
        self._drawn_at: tuple[object, ...] = ()
        self._ground = Style.null()

    def show(self, lanes: Lanes) -> None:
        """Show these lanes; the cursor stays where it can."""
        time = self.event.begin if self.event is not None else 0.0
        self.shown = lanes
        self._rows = []
        for lane in lanes.lanes:
            if lane.whose:
                self._rows.append((lane.whose, None))
            self._rows.append((lane.name, lane))
        self.lane = min(self.lane, max(len(lanes.lanes) - 1, 0))
        self._measure()
        self.scroll_to(self._column(0.0), animate=False, force=True)
        self.refresh()
        self._go(self.lane, time)

    def on_resize(self) -> None:
        self._measure()
        if not self.scale:  # one key tile, whatever the width
            self.scroll_to(self._column(0.0), animate=False, force=True)
        self.refresh()

    # --- places ----------------------------------------------------------------------------------

    @property
    def name_width(self) -> int:
        return 13 if self.size.width < NARROW else 24

    @property
    def room(self) -> int:
        return max(self.scrollable_content_region.width - self.name_width, 8)

    @property
    def cycles(self) -> float:
        """Of a cell."""
        return self.scale or max(self.shown.tile / self.room, FINEST)

    def _measure(self) -> None:
        width = round((self.shown.last - self.shown.first) / self.cycles) + 1
        self.virtual_size = Size(self.name_width + width, HEAD + len(self._rows))

    def _column(self, time: float) -> int:
        return round((time - self.shown.first) / self.cycles)

    def _time(self, column: float) -> float:
        return self.shown.first + column * self.cycles

    def zoom(self, by: float) -> bool:
        """Fewer cycles to a cell, or more; what the cursor is on stays where it is. Whether it
        goes further."""
        event = self.event
        time = event.begin if event is not None else self._time(self.scroll_offset.x)
        before = self._column(time) - self.scroll_offset.x
        whole = (self.shown.last - self.shown.first) / self.room
        then = min(max(self.cycles * by, FINEST), max(whole, FINEST))
        if then == self.cycles:
            return False
        self.scale = then
        self._measure()
        self.scroll_to(max(self._column(time) - before, 0), animate=False, force=True)
        self.refresh()
        return True

    # --- the cursor ------------------------------------------------------------------------------

    def _go(self, lane: int, time: float) -> None:
        """The cursor to the event of a lane at a time."""
        lanes, before = self.shown.lanes, self.lane
        self.lane = max(min(lane, len(lanes) - 1), 0)
        self._stand(lanes[self.lane].near(time) if lanes else None, before)

    def _stand(self, event: Event | None, left_lane: int | None = None) -> None:
        """The cursor on an event; of the rows only that one and the one that it left change."""
        self.event = event
        before = self.scroll_offset
        changed = {self.lane} if left_lane is None else {self.lane, left_lane}
        if event is not None:
            left, top = self.scroll_offset
            x = self._column(event.begin)
            if not (self._column(event.end) > left and x < left + self.room):
                left = max(x - self.room // 4, 0)
            y = next(n for n, (_, lane) in enumerate(self._rows) if lane is self._lane)
            height = max(self.scrollable_content_region.height - HEAD, 1)
            top = min(max(top, y - height + 1), max(y - 1, 0) if y - 1 < top else top)
            self.scroll_to(left, top, animate=False, force=True)
        if self.scroll_offset == before:
            lanes = [id(self.shown.lanes[n]) for n in changed if n < len(self.shown.lanes)]
            rows = [n for n, (_, lane) in enumerate(self._rows) if id(lane) in lanes]
            width = self.size.width
            self.refresh(*(Region(0, HEAD + n - before.y, width, 1) for n in rows))
        if self.follower is not None:
            self.follower()

    @property
    def _lane(self) -> Lane:
        return self.shown.lanes[self.lane]

    def _step(self, by: int) -> None:
        """To the next event of the lane, or the one before."""
        if self.event is None:
            return
        own = self._lane.events
        at = next((n for n, e in enumerate(own) if e is self.event), 0)
        self._stand(own[max(min(at + by, len(own) - 1), 0)])

    def on_key(self, event: events.Key) -> None:
        if self.event is None:
            return
        page = self.room * self.cycles / 2
        time = self.event.begin
        moves = {
            "left": lambda: self._step(-1), "h": lambda: self._step(-1),
            "right": lambda: self._step(1), "l": lambda: self._step(1),
            "up": lambda: self._go(self.lane - 1, time), "k": lambda: self._go(self.lane - 1, time),
            "down": lambda: self._go(self.lane + 1, time),
            "j": lambda: self._go(self.lane + 1, time),
            "pageup": lambda: self._go(self.lane, time - page),
            "pagedown": lambda: self._go(self.lane, time + page),
            "home": lambda: self._go(self.lane, 0.0),
            "end": lambda: self._go(self.lane, self.shown.last),
        }  # fmt: skip
        if event.key in moves:
            moves[event.key]()
            event.stop()
            event.prevent_default()

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None or offset.y < HEAD or offset.x < self.name_width:
            return
        row = offset.y - HEAD + self.scroll_offset.y
        lane = self._rows[row][1] if row < len(self._rows) else None
        if lane is not None:
            number = next(n for n, each in enumerate(self.shown.lanes) if each is lane)
            self._go(number, self._time(offset.x - self.name_width + self.scroll_offset.x + 0.5))

    # --- rendering -------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        self._ground = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        return self._line(y).apply_style(self._ground)

    def _line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        palette = palette_of(self.app)
        left, top = self.scroll_offset
        if y < HEAD:
            return self._ruler(left, width)
        row = y - HEAD + top
        if row >= len(self._rows):
            return Strip.blank(width, Style.null())
        name, lane = self._rows[row]
        if lane is None:
            title = Segment(one_line(f" {name}", width), palette.style("title"))
            return Strip([title]).adjust_cell_length(width, Style.null())
        here = bool(self.shown.lanes) and lane is self._lane
        if self.name_width < 24:
            name = name.replace("warpgroup ", "wg ").replace(", matmuls", " mma")
            name = name.replace(", copies", " copy")
        mark = "▶" if here and self.has_focus else " "
        segments = [
            Segment(
                f"{mark}{one_line(name, self.name_width - 3):<{self.name_width - 2}}",
                palette.style("gutter.cursor" if here else "gutter"),
            ),
            Segment("│", palette.style("gutter")),
        ]
        low = high = -1
        if here and self.event is not None:
            low = self._column(self.event.begin) - left
            high = max(self._column(self.event.end) - left, low + 1)
        at, marked = 0, palette.style("selection")
        for text, name_of in self._drawn_row(row, lane, left):
            style = palette.style(name_of)
            first, last = (min(max(x - at, 0), len(text)) for x in (low, high))
            parts = (text[:first], style), (text[first:last], style + marked), (text[last:], style)
            segments += [Segment(part, each) for part, each in parts if part]
            at += len(text)
        return Strip(segments).adjust_cell_length(width, Style.null())

    def _drawn_row(self, row: int, lane: Lane, left: int) -> list[tuple[str, str]]:
        at = (id(self.shown), left, self.cycles, self.room)
        if at != self._drawn_at:
            self._drawn, self._drawn_at = {}, at
        if row not in self._drawn:
            self._drawn[row] = drawn(lane, self._time(left), self.cycles, self.room)
        return self._drawn[row]

    def _ruler(self, left: int, width: int) -> Strip:
        """Cycles from the beginning of the shown key tile."""
        line = [" "] * self.room
        for x in range(0, self.room, 12):
            text = f"┬{self._time(left + x):,.0f}"
            line[x : x + len(text)] = text
        text = f"{'cycles':>{self.name_width - 1}} " + "".join(line)[: self.room]
        strip = Strip([Segment(text, palette_of(self.app).style("gutter"))])
        return strip.adjust_cell_length(width, Style.null())
