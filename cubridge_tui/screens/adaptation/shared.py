"""What the parts of the adaptation screen know of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubridge_tui.desk import Desk
from cubridge_tui.jobs import Outcome
from cubridge_tui.model.layout import PANES, Layout, Wish, layout
from cubridge_tui.model.meanings import OpaqueNote
from cubridge_tui.model.rows import Key
from cubridge_tui.model.snapshot import Snapshot, View
from cubridge_tui.screens.base import ActionScreen
from cubridge_tui.screens.dialogs import Confirm
from cubridge_tui.widgets.pane_grid import PaneGrid
from engine.types import Stage


class Shared(ActionScreen):
    """State and helpers that stage, review and pane actions use."""

    session: str
    desk: Desk | None
    snap: Snapshot | None
    wish: Wish
    view: View
    words: str
    follows: bool = True  # the other panes stay at the op under the leading cursor
    grid: PaneGrid
    refusal: Outcome | None = None  # the step that ended with an error, until one works

    def job(
        self,
        name: str,
        work: Callable[[], Any],
        then: Callable[[], None] | None = None,
        *,
        quiet: bool = False,
        keeps: bool = False,
    ) -> None:
        raise NotImplementedError

    def keep(
        self, name: str, work: Callable[[], Any], then: Callable[[], None] | None = None
    ) -> None:
        """`job` for what the person decided: quick, and quitting waits for it."""
        self.job(name, work, then, quiet=True, keeps=True)

    def tell(self) -> None:
        raise NotImplementedError

    def show(self, snap: Snapshot) -> None:
        raise NotImplementedError

    def shown_between(self, snap: Snapshot) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def to_undecided(self) -> None:
        raise NotImplementedError

    def do_undo(self) -> None:
        raise NotImplementedError

    def look_first(self, hunk: str) -> None:
        raise NotImplementedError

    def stage_to_decide(self) -> Stage:
        """The pane where hunks wait for a decision, the earliest one; the target's otherwise."""
        snap = self.snap
        if snap is not None:
            if any(d is None for _, _, d in snap.meanings):
                return Stage.LIFTED
            if not any(d is None for _, _, d in snap.hunks):
                if any(d is None for _, _, d in snap.regions):
                    return Stage.LOWERED
                if snap.meanings and not snap.hunks:
                    return Stage.LIFTED
        return Stage.TARGET

    def show_proposal(self) -> None:
        """The latest proposal's first hunk that nobody decided on."""
        self.grid.lead(self.stage_to_decide())
        self.place_panes()
        self.grid.leader.go_to(0)
        self.to_undecided()
        self.remark()
        self.tell()

    @property
    def open_desk(self) -> Desk:
        assert self.desk is not None
        return self.desk

    def unless_accepted(self, what: str, do: Callable[[], None]) -> None:
        """Do what changes the session's content; of an accepted kernel only after asking.

        `what` says it in a few words, such as `reject rules/h4`.
        """
        state = self.snap.state if self.snap is not None else None
        if state is None or not state.acceptance_is_current:
            do()
            return
        accepted = state.accepted_level.value + (", committed" if state.commits else "")
        question = f"{what}? It revokes the acceptance ({accepted})"
        self.app.push_screen(Confirm(question), lambda yes: do() if yes else None)

    # --- panes -----------------------------------------------------------------------------------

    def pane_room(self) -> tuple[int, int]:
        """Columns and rows that the panes have."""
        return self.size.width, self.size.height - 5

    def layout_now(self) -> Layout:
        """The panes that fit and have something to show."""
        have = [s for s in PANES if self.snap is None or self.snap.panes[self.view][s].rows]
        return layout(*self.pane_room(), self.wish, self.grid.focused_stage, have)

    def place_panes(self) -> None:
        self.grid.place(self.layout_now())

    def current_key(self) -> Key | None:
        """The op under the leading cursor."""
        row = self.grid.leader.row
        return row.key if row is not None else None

    def current_hunk(self) -> str:
        """The hunk under the leading cursor (`proposal/hunk`), or empty."""
        row = self.grid.leader.row
        return row.hunk if row is not None else ""

    def current_opaque(self) -> OpaqueNote | None:
        """The opaque op under the leading cursor, where the text is the expert's."""
        if self.snap is None or self.grid.focused_stage not in (Stage.SOURCE, Stage.LIFTED):
            return None
        return self.snap.opaque_at(self.current_key())

    def remark(self) -> None:
        """Mark the op under the cursor in every pane."""
        if self.snap is not None:
            self.grid.mark(self.current_key(), self.snap.links)

    def visit(self, key: Key | None, leader: bool = False) -> bool:
        """Mark an op and bring it into view in every pane (also the leader); whether any has it."""
        assert self.snap is not None
        self.grid.mark(key, self.snap.links)
        found = self.grid.follow(key, None if leader else self.grid.focused_stage)
        return bool(found)
