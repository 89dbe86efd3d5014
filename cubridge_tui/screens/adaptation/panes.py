"""Panes: focus, layout, views, search, copy, follow, inspect."""

from __future__ import annotations

from cubridge_tui.clipboard import copy
from cubridge_tui.model.inspect import inspect
from cubridge_tui.model.layout import PAIRS, PANES, Wish
from cubridge_tui.model.rows import RowKind
from cubridge_tui.model.snapshot import View
from cubridge_tui.screens.adaptation.shared import Shared
from cubridge_tui.screens.dialogs import Prompt, TextDialog

VIEWS = {
    View.OPS: "hunks of ops, each with its reasons",
    View.LINES: "hunks of lines, each with its reasons",
    View.TEXT: "side by side; the hunks' reasons come back with d",
}


class PaneActions(Shared):
    """Actions of the group Panes."""

    def _focus(self, step: int) -> None:
        shown = self.layout_now().panes
        order = PANES if len(shown) == 1 or self.wish.pair is None else shown
        here = self.grid.focused_stage
        index = order.index(here) if here in order else 0
        self.grid.lead(order[(index + step) % len(order)])
        self.place_panes()
        self.remark()
        self.tell()

    def do_next_pane(self) -> None:
        self._focus(1)

    def do_previous_pane(self) -> None:
        self._focus(-1)

    def do_zoom(self) -> None:
        self.wish = Wish(self.wish.pair, not self.wish.zoom)
        self.place_panes()
        self.tell()

    def do_all_panes(self) -> None:
        self.wish = Wish()
        self.place_panes()
        self.tell()

    def _pair(self, index: int) -> None:
        self.wish = Wish(index)
        if self.grid.focused_stage not in PAIRS[index]:
            self.grid.lead(PAIRS[index][0])
        self.place_panes()
        self.tell()
        if self.size.width < 120:
            self.say("two panes need 120 columns; tab goes to the other one", "stale")

    def do_pair_1(self) -> None:
        self._pair(0)

    def do_pair_2(self) -> None:
        self._pair(1)

    def do_pair_3(self) -> None:
        self._pair(2)

    def do_pair_4(self) -> None:
        self._pair(3)

    def do_wrap(self) -> None:
        """Long lines in pieces, or cut at the pane's edge."""
        wraps = not self.grid.wraps
        self.grid.wrap(wraps)
        self.remark()
        self.say("long lines go on in the next row" if wraps else "long lines are cut: h and l")

    def do_view(self) -> None:
        views = list(View)
        self.view = views[(views.index(self.view) + 1) % len(views)]
        if self.snap is not None:
            self.grid.show(dict(self.snap.panes[self.view]), aligned=self.view is View.TEXT)
        self.remark()
        self.tell()
        self.say(f"target and lowered: {VIEWS[self.view]}")

    # --- finding ---------------------------------------------------------------------------------

    def do_follow(self) -> None:
        """Whether the other panes stay at the op under the cursor."""
        self.follows = not self.follows
        if not self.follows:
            self.say("the other panes stay where they are; f follows again")
            return
        key = self.current_key()
        assert self.snap is not None
        self.visit(key)
        found = [s for s, pane in self.grid.panes.items() if pane.linked is not None]
        stale = [f"{s.value} ({why})" for s, why in self.snap.links.stale.items()]
        if stale:
            self.say("this map is out of date: " + ", ".join(stale), "stale")
        else:
            self.say(f"following; in view: {', '.join(s.value for s in found) or 'no op here'}")

    def do_inspect(self) -> None:
        if self.snap is None:
            return
        row = self.grid.leader.row
        stage = self.grid.focused_stage
        lines = inspect(self.snap, stage, row) if row is not None else ["nothing here"]
        self.app.push_screen(TextDialog("op inspector", lines))

    def do_search(self) -> None:
        before = self.words

        def given(words: str | None) -> None:
            told = self._search(before if words is None else words)
            self.say(told if self.words else "search ended")
            self.refresh_keys()
            if self.words:  # n comes next
                self.grid.expect(self.grid.leader.match(1), self.follows)

        self.app.push_screen(
            Prompt("Search in all panes (small letters match both):", before, live=self._search),
            given,
        )

    def _search(self, words: str) -> str:
        """Mark what matches in every pane; how many lines of each do."""
        self.words = words
        found = {
            stage.value: pane.search(words, go=pane is self.grid.leader)
            for stage, pane in self.grid.panes.items()
        }
        each = ", ".join(f"{stage} {count}" for stage, count in found.items())
        return f"{sum(found.values())} lines match {words!r}: {each}" if words else ""

    def do_next_match(self) -> None:
        self.grid.expect(self.grid.leader.next_match(1), self.follows)

    def do_previous_match(self) -> None:
        self.grid.expect(self.grid.leader.next_match(-1), self.follows)

    def do_go_to_line(self) -> None:
        def check(text: str) -> str:
            return "" if text.strip().isdecimal() else "a line number, such as 42"

        def given(text: str | None) -> None:
            if text:
                self.grid.leader.go_to_line(int(text))

        self.app.push_screen(Prompt("Go to line:", check=check), given)

    # --- copying ---------------------------------------------------------------------------------

    def do_copy(self) -> None:
        text, row = self.grid.leader.copied(), self.grid.leader.row
        alone = row is not None and row.kind is RowKind.HEAD and text == row.text
        found = self.snap.hunk(self.current_hunk()) if self.snap is not None and alone else None
        self.say(copy(self.app, text if found is None else found[1].after or found[1].before))
