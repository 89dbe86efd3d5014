"""All hunks in a list, filtered by words and decided on from there, with the one under the cursor
below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult

from cubridge_tui import actions
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.overview import Overview, hunk_rows, overview
from cubridge_tui.model.rows import PaneText
from cubridge_tui.model.snapshot import Snapshot
from cubridge_tui.screens.base import ActionScreen, bindings
from cubridge_tui.screens.dialogs import Prompt
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import KeyBar, Line
from engine.types import Decision, DecisionKind

if TYPE_CHECKING:
    from cubridge_tui.screens.adaptation.review import ReviewActions


class OverviewScreen(ActionScreen):
    """The hunks of a session; its decisions are the adaptation screen's."""

    NAME = actions.HUNKS
    BINDINGS = bindings(actions.HUNKS)
    DEFAULT_CSS = """
    OverviewScreen #hunks { height: 1fr; }
    OverviewScreen #hunk { height: 1fr; }
    """

    def __init__(self, parent: ReviewActions, hunk: str) -> None:
        super().__init__()
        self.adaptation, self._begin = parent, hunk
        self.words = ""
        self.shown = Overview((), (), (), (), "")

    def compose(self) -> ComposeResult:
        yield Line(id="decision")
        yield CodePane(id="hunks")
        yield CodePane(id="hunk")
        yield Line(id="status")
        yield KeyBar(id="keys")

    @property
    def snap(self) -> Snapshot:
        assert self.adaptation.snap is not None
        return self.adaptation.snap

    @property
    def pane(self) -> CodePane:
        return self.query_one("#hunks", CodePane)

    @property
    def name_here(self) -> str:
        """The hunk under the cursor; empty where none is shown."""
        names = self.shown.names
        return names[self.pane.cursor] if self.pane.cursor < len(names) else ""

    def on_mount(self) -> None:
        self.pane.follower = self._moved
        self.fill()
        if self._begin in self.shown.names:
            self.pane.go_to(self.shown.names.index(self._begin))
        self.pane.focus()

    def on_resize(self) -> None:
        if self.is_mounted:
            self.fill()

    def facts(self) -> Facts:
        return self.adaptation.facts_at(self.name_here)

    def fill(self) -> None:
        """The rows for the present state and words; the cursor stays on its hunk."""
        if not self.is_attached:
            return  # left meanwhile
        here = self.name_here
        made = self.shown = overview(self.snap, self.words, self.size.width - 2)
        title = f"{len(made.names)} of {len(self.snap.all_hunks)} hunks: "
        title += "title, clause, needs, time without"
        title += f" with “{self.words}”" if self.words else ""
        content = PaneText(made.rows, "", title, "no hunk has these words: / changes them")
        self.pane.show(content, spans=made.spans)
        if here in made.names:
            self.pane.go_to(made.names.index(here), centre=False)
        self.query_one("#decision", Line).put([(f" {made.counts}", "title")])
        self._moved()

    def costs_came(self) -> None:
        self.fill()

    def _moved(self) -> None:
        name = self.name_here
        self.adaptation.look_first(name)
        rows = tuple(hunk_rows(self.snap, name))
        pane = self.query_one("#hunk", CodePane)
        pane.show(PaneText(rows, "cuir", name), keep_place=False)
        self.refresh_keys()

    # --- actions ---------------------------------------------------------------------------------

    def do_hunks_open(self) -> None:
        name = self.name_here
        self.dismiss(None)
        self.adaptation.to_hunk(name)

    def do_hunks_accept(self) -> None:
        self._decide(DecisionKind.ACCEPTED, self.name_here)

    def do_hunks_reject(self) -> None:
        self._decide(DecisionKind.REJECTED, self.name_here)

    def do_hunks_accept_shown(self) -> None:
        if not self.shown.open:
            self.say("every hunk shown is decided: / shows others", "stale")
            return
        self._decide(DecisionKind.ACCEPTED, *self.shown.open)

    def do_hunks_reject_shown(self) -> None:
        """A rule or a clause as a whole, where the words leave its hunks."""
        made = ((name, self.snap.decision(name)) for name in self.shown.names)
        left = [n for n, d in made if d is None or d.kind is not DecisionKind.REJECTED]
        if not left:
            self.say("every hunk shown is rejected: / shows others", "stale")
            return
        self._decide(DecisionKind.REJECTED, *left)

    def _decide(self, kind: DecisionKind, *names: str) -> None:
        if self.too_soon("the hunk"):
            return
        made = [Decision(n, kind, self.cubridge.actor) for n in names]
        self.adaptation.decide_all(made, lambda words, style: self._decided(names, words, style))

    def _decided(self, names: tuple[str, ...], words: str, style: str) -> None:
        """On to the next undecided hunk that is shown."""
        if not self.is_attached:
            return
        self.fill()
        shown, here = self.shown.names, self.pane.cursor
        after = [n for n in (*shown[here:], *shown[:here]) if n in self.shown.open]
        if after and len(names) == 1:
            self.pane.go_to(shown.index(after[0]))
        self.say(words, style)

    def do_hunks_undo(self) -> None:
        self.adaptation.do_undo()
        self.adaptation.job("look", self.adaptation.open_desk.snapshot, self.fill, quiet=True)

    def do_hunks_filter(self) -> None:
        before = self.words

        def given(text: str | None) -> None:
            self._filter(before if text is None else text)

        self.app.push_screen(
            Prompt("Show the hunks with these words (a clause, a name, undecided):", before,
                   live=self._filter), given,
        )  # fmt: skip

    def _filter(self, words: str) -> str:
        self.words = words
        self.fill()
        return f"{len(self.shown.names)} hunks: {self.shown.counts}"

    def do_hunks_next_pane(self) -> None:
        self.screen.focus_next(CodePane)

    def do_hunks_close(self) -> None:
        self.dismiss(None)
