"""The four linked panes and their layout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from textual import events
from textual.app import ComposeResult
from textual.containers import Grid, Vertical
from textual.geometry import Region
from textual.strip import Strip

from cubridge_tui.model.layout import ALIGNED, PANES, Layout
from cubridge_tui.model.links import Links, MarkIndex
from cubridge_tui.model.rows import CHANGES, EVERY, NOTES, Key, PaneText, Row, RowKind
from cubridge_tui.widgets.backdrop import backdrop
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Line
from cubridge_tui.widgets.still import still
from engine.types import Stage


class Cell(Vertical):
    """A pane under a line with its title.

    The title is no border of the pane: a border that shows the focus would repaint the whole pane
    whenever the focus moves (40 ms for two panes of 75 lines).
    """

    virtual_size = still()

    def __init__(self, stage: Stage, pane: CodePane) -> None:
        super().__init__()
        self.stage, self.pane = stage, pane
        self.head = Line(classes="head")
        self._lit = False

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.pane

    def on_mount(self) -> None:
        self.light(self._lit)

    def render_lines(self, crop: Region) -> list[Strip]:
        return backdrop(self, crop)

    def light(self, lit: bool) -> None:
        """Show the title, as that of the leading pane or not."""
        self._lit = lit
        title, style = self.pane.content.title, "key" if lit else "dim"
        rule = "━" if lit else "─"
        self.head.put([(rule, style), (f" {title} ", "title" if lit else "dim")], (), (rule, style))


class PaneGrid(Grid):
    """Source, lifted, target, lowered; which are shown follows the layout."""

    DEFAULT_CSS = "PaneGrid { height: 1fr; grid-gutter: 0 1; overflow: hidden; }"
    virtual_size = still()

    def __init__(self) -> None:
        super().__init__(id="panes")
        self.panes = {stage: CodePane(id=f"pane-{stage.value}", framed=False) for stage in PANES}
        self.cells = {stage: Cell(stage, pane) for stage, pane in self.panes.items()}
        self._focused = Stage.SOURCE
        self._shown: Layout | None = None
        self.aligned = False  # whether rows stand beside rows
        self.wraps = False
        self._partners: dict[Stage, Stage] = {}  # whose rows stand beside whose
        for stage, pane in self.panes.items():
            pane.scrolled = partial(self._scrolled, stage)
        self._indexes: dict[Stage, tuple[Sequence[Row], Links, MarkIndex]] = {}

    def compose(self) -> ComposeResult:
        yield from self.cells.values()

    def render_lines(self, crop: Region) -> list[Strip]:
        return backdrop(self, crop)

    @property
    def focused_stage(self) -> Stage:
        """The pane that leads: the focused one, else the last that was."""
        return self._focused

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        for stage, pane in self.panes.items():
            if pane is event.widget:
                self._focused = stage
        self._light()

    def _light(self) -> None:
        for stage, cell in self.cells.items():
            cell.light(stage is self._focused)

    @property
    def leader(self) -> CodePane:
        return self.panes[self.focused_stage]

    def lead(self, stage: Stage) -> None:
        """Make a pane the leader."""
        self._focused = stage
        self.panes[stage].focus()
        self._light()

    def place(self, layout: Layout) -> None:
        """Show the panes of a layout."""
        if layout == self._shown:
            return
        self._shown = layout
        with self.app.batch_update():
            self.styles.grid_size_columns = layout.columns
            two = layout.tall is not None or len(layout.panes) > layout.columns
            self.styles.grid_size_rows = 2 if two else 1
            for stage, pane in self.panes.items():
                pane.display = self.cells[stage].display = stage in layout.panes
                self.cells[stage].styles.row_span = 2 if stage is layout.tall else 1
            # The grid fills its cells in this order, whatever the stages' is.
            self.sort_children(key=lambda cell: _order(cell, layout))

    def show(self, texts: dict[Stage, PaneText], *, aligned: bool = False) -> None:
        """Show texts; `aligned`: those of `ALIGNED` row beside row, so they scroll as one."""
        self.aligned = aligned
        pairs = ALIGNED if aligned else ()
        self._partners = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
        for stage, text in texts.items():
            pane = self.panes[stage]
            kinds = self._kinds if text.language or self.aligned else EVERY  # words are read whole
            pane.wraps, before = kinds, pane.wraps
            if before != pane.wraps or pane.given.rows != text.rows or pane.given != text:
                pane.show(text)
        self._scrolled(self._focused)
        self._light()

    @property
    def _kinds(self) -> frozenset[RowKind]:
        """The rows that go on in the next one: all of what is decided on is read without a key."""
        return NOTES if self.aligned else EVERY if self.wraps else CHANGES

    def wrap(self, wraps: bool) -> None:
        """Whether long lines go on in the next row, where rows need not stand beside rows."""
        self.wraps = wraps
        for pane in self.panes.values():
            pane.wraps = self._kinds
            pane.show(pane.given)
        self._light()

    def _scrolled(self, stage: Stage) -> None:
        """What stands beside the leading pane shows the same rows."""
        partner = self._partners.get(stage)
        if partner is None or stage is not self._focused:
            return
        pane, other = self.panes[stage], self.panes[partner]
        if other.display and other.scroll_offset.y != pane.scroll_offset.y:
            other.scroll_to(y=pane.scroll_offset.y, animate=False, force=True)

    def mark(self, key: Key | None, links: Links) -> None:
        """Mark an op, its loop and its worker in every pane."""
        for stage, pane in self.panes.items():
            kept = self._indexes.get(stage)
            if kept is None or kept[0] is not pane.content.rows or kept[1] is not links:
                rows = pane.content.rows
                kept = self._indexes[stage] = (rows, links, MarkIndex(rows, links))
            pane.mark(*kept[2].marks(key))

    def follow(self, key: Key | None, leader: Stage | None) -> list[Stage]:
        """Bring an op into view in every pane but the leader; the panes that show it. One without
        it shows where it would stand: behind the last op before it that it has."""
        found = []
        for stage, pane in self.panes.items():
            index = pane.linked if key is not None else None
            if index is not None:
                found.append(stage)
            elif stage is not leader and stage is not self._focused and pane.display:
                index = self._before(stage)
            if index is not None and stage is not leader:
                pane.go_to(index)
        self._scrolled(self._focused)
        return found

    def expect(self, index: int | None, everywhere: bool) -> None:
        """The row of the leading pane that the same key goes to next; `everywhere`: the others
        follow it there."""
        key = None if index is None else self.leader.content.rows[index].key
        for stage, pane in self.panes.items():
            leads, kept = pane is self.leader, self._indexes.get(stage)
            if index is not None and kept is not None and (leads or (everywhere and pane.display)):
                pane.expect(index if leads else None, partial(kept[2].marks, key))

    def _before(self, stage: Stage) -> int | None:
        """The row of a pane with the nearest op above the leading cursor."""
        kept, rows = self._indexes.get(stage), self.leader.content.rows
        if kept is None:
            return None
        for index in range(min(self.leader.cursor, len(rows) - 1), -1, -1):
            key = rows[index].key
            if key is not None and (at := kept[2].first(key)) is not None:
                return at
        return None


def _order(cell: object, layout: Layout) -> int:
    stage = next((s for s in layout.panes if isinstance(cell, Cell) and cell.stage is s), None)
    return layout.panes.index(stage) if stage is not None else len(PANES)
