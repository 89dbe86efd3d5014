"""The picture of a mask: a grid of cells that scrolls, with rulers, marks of rows, and a cursor."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from cubridge_tui.model.mask import Cell, MaskGrid
from cubridge_tui.widgets.paint import palette_of

GUTTER = 7  # row number, mark, blank
HEAD = 1  # the ruler


class MaskPane(ScrollView, can_focus=True):
    """Pairs (two query rows to a cell) or whole tiles (two columns to a tile)."""

    DEFAULT_CSS = """
    MaskPane {
        background: $surface;
        scrollbar-size-vertical: 1;
        scrollbar-size-horizontal: 1;
    }
    """

    class Moved(Message):
        """The cursor stands on another pair."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.grid: MaskGrid | None = None
        self.by_tiles = False
        self.wide = 2  # columns of a tile's cell
        self.group = (1, 1)  # blocks of rows and tiles of keys in a cell
        self.i = self.j = 0

    def show(self, grid: MaskGrid, by_tiles: bool = False) -> None:
        """Show a grid; the cursor stays where it can."""
        self.grid, self.by_tiles = grid, by_tiles
        self.i = max(min(self.i, grid.queries - 1), 0)
        self.j = max(min(self.j, grid.keys - 1), 0)
        if by_tiles:
            self._fit(grid)
        else:
            self.virtual_size = Size(GUTTER + grid.keys, HEAD + (grid.queries + 1) // 2)
        self.refresh()
        self.go_to(self.i, self.j)

    def _fit(self, grid: MaskGrid) -> None:
        """All tiles in the pane: narrower cells first, then cells of several tiles."""
        blocks, tiles = grid.tiles
        region = self.scrollable_content_region
        room, height = max(region.width - GUTTER, 8), max(region.height - HEAD, 4)
        self.wide = 2 if 2 * tiles <= room else 1
        self.group = (-(-blocks // height), -(-self.wide * tiles // room))
        rows, columns = (-(-n // g) for n, g in zip((blocks, tiles), self.group, strict=True))
        self.virtual_size = Size(GUTTER + self.wide * columns, HEAD + rows)

    def on_resize(self) -> None:
        if self.grid is not None and self.by_tiles:
            self.show(self.grid, True)

    @property
    def each(self) -> tuple[int, int]:
        """Query rows and keys of a cell of tiles."""
        assert self.grid is not None
        return self.grid.rows * self.group[0], self.grid.columns * self.group[1]

    def go_to(self, i: int, j: int) -> None:
        """The cursor to a pair, and the pair into view."""
        if self.grid is None:
            return
        self.i = max(min(i, self.grid.queries - 1), 0)
        self.j = max(min(j, self.grid.keys - 1), 0)
        x, y = self.place
        width = max(self.scrollable_content_region.width - GUTTER, 1)
        height = max(self.scrollable_content_region.height - HEAD, 1)
        left, top = self.scroll_offset
        left = min(max(left, x - width + 2), max(x - 1, 0))
        top = min(max(top, y - height + 1), y)
        self.scroll_to(left, top, animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved())

    @property
    def place(self) -> tuple[int, int]:
        """The cursor's cell."""
        assert self.grid is not None
        if self.by_tiles:
            rows, keys = self.each
            return self.wide * (self.j // keys), self.i // rows
        return self.j, self.i // 2

    @property
    def visible_rows(self) -> range:
        """The query rows in sight."""
        if self.grid is None:
            return range(0)
        height = max(self.scrollable_content_region.height - HEAD, 1)
        each = self.each[0] if self.by_tiles else 2
        first = self.scroll_offset.y * each
        return range(first, min(first + height * each, self.grid.queries))

    # --- rendering -------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        return self._line(y).apply_style(self.rich_style)

    def _line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        if self.grid is None:
            return Strip.blank(width, Style.null())
        left, top = self.scroll_offset
        room = max(width - GUTTER, 0)
        if y < HEAD:
            return self._ruler(left, room, width)
        row = y - HEAD + top
        cells = (
            self._tile_row(row, left, room) if self.by_tiles else self._pair_row(row, left, room)
        )
        if cells is None:
            return Strip.blank(width, Style.null())
        palette = palette_of(self.app)
        segments = [*self._gutter(row)]
        at = left
        cursor_x, cursor_y = self.place
        for style, group in groupby(cells, key=lambda c: c.style):
            text = "".join(c.glyph for c in group)
            here = cursor_x - at
            if row == cursor_y and 0 <= here < len(text):
                wide = self.wide if self.by_tiles else 1
                parts = (text[:here], text[here : here + wide], text[here + wide :])
                marked = palette.style(style) + palette.style("match.current")
                segments.append(Segment(parts[0], palette.style(style)))
                # A blank under the cursor would not be seen without colours.
                segments.append(Segment(parts[1].replace(" ", "□").replace("·", "□"), marked))
                segments.append(Segment(parts[2], palette.style(style)))
            else:
                segments.append(Segment(text, palette.style(style)))
            at += len(text)
        return Strip(segments).adjust_cell_length(width, Style.null())

    def _pair_row(self, row: int, left: int, room: int) -> list[Cell] | None:
        grid, i = self.grid, 2 * row
        assert grid is not None
        if i >= grid.queries:
            return None
        return [grid.pair_cell(i, j) for j in range(left, min(left + room, grid.keys))]

    def _tile_row(self, block: int, left: int, room: int) -> list[Cell] | None:
        grid = self.grid
        assert grid is not None
        blocks, tiles = grid.tiles
        down, right = self.group
        if block * down >= blocks:
            return None
        rows = range(block * down, min((block + 1) * down, blocks))
        cells: Iterable[Cell] = (
            grid.group_cell(rows, range(n, min(n + right, tiles))) for n in range(0, tiles, right)
        )
        wide = [c for cell in cells for c in (cell,) * self.wide]
        return wide[left : left + room]

    def _gutter(self, row: int) -> list[Segment]:
        grid = self.grid
        assert grid is not None
        palette = palette_of(self.app)
        each = self.each[0] if self.by_tiles else 2
        rows = range(row * each, min((row + 1) * each, grid.queries))
        mark, style = " ", "gutter"
        if any(i in grid.wrong for i in rows):
            mark, style = "×", "fail"
        elif rows and all(i in grid.empty for i in rows):
            mark, style = "∅", "stale"
        first = row * each
        edge = self.by_tiles or first % grid.rows < each or row == self.place[1]
        number = str(first) if edge or mark != " " else ""
        return [
            Segment(number.rjust(GUTTER - 2), palette.style("gutter")),
            Segment(mark, palette.style(style)),
            Segment("┤" if edge else "│", palette.style("gutter")),
        ]

    def _ruler(self, left: int, room: int, width: int) -> Strip:
        """Key numbers where tiles begin."""
        grid = self.grid
        assert grid is not None
        line = [" "] * (room + 1)
        each = self.wide if self.by_tiles else grid.columns
        keys = self.each[1] if self.by_tiles else grid.columns
        for n in range(-(-grid.keys // keys)):
            x = n * each - left
            text = "┬" + str(n * keys)
            taken = any(c not in " ┬" for c in line[max(x - 1, 0) : x + len(text)])
            if 0 <= x < room and not taken:
                line[x : x + len(text)] = text
            elif 0 <= x < room and line[x] == " ":
                line[x] = "┬"
        palette = palette_of(self.app)
        text = "i \\ j".rjust(GUTTER) + "".join(line[:room])
        strip = Strip([Segment(text, palette.style("gutter"))])
        return strip.adjust_cell_length(width, Style.null())

    # --- keys ------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        grid = self.grid
        if grid is None:
            return
        down, right = self.each if self.by_tiles else (1, 1)
        page = max(self.scrollable_content_region.height - HEAD - 1, 1) * (
            down if self.by_tiles else 2
        )
        wide = max(self.scrollable_content_region.width - GUTTER - 1, 1) // 2 * right
        moves = {
            "up": (-down, 0), "k": (-down, 0), "down": (down, 0), "j": (down, 0),
            "left": (0, -right), "h": (0, -right), "right": (0, right), "l": (0, right),
            "pageup": (-page, 0), "pagedown": (page, 0), "ctrl+u": (-page // 2, 0),
            "ctrl+d": (page // 2, 0), "shift+left": (0, -wide), "shift+right": (0, wide),
            "home": (0, -grid.keys), "end": (0, grid.keys), "G": (grid.queries, 0),
        }  # fmt: skip
        move = moves.get(event.key)
        if move is None:
            return
        self.go_to(self.i + move[0], self.j + move[1])
        event.stop()
        event.prevent_default()

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None or self.grid is None or offset.y < HEAD or offset.x < GUTTER:
            return
        x, y = offset.x - GUTTER + self.scroll_offset.x, offset.y - HEAD + self.scroll_offset.y
        if self.by_tiles:
            rows, keys = self.each
            self.go_to(y * rows, x // self.wide * keys)
        else:
            self.go_to(2 * y, x)
