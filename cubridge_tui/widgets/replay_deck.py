"""One session on replay: its stages, its steps, and the text at the step under the cursor."""

from __future__ import annotations

from functools import lru_cache

from textual.app import ComposeResult
from textual.containers import Container
from textual.message import Message

from cubridge_tui.model.replay import Tape, details, text_at, timeline
from cubridge_tui.model.rows import PaneText, hunk_starts
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Line
from cubridge_tui.widgets.stage_bar import StageBar
from engine.types import Stage
from sessions.session import Session

WIDE = 150  # columns from which the steps stand beside the text


class ReplayDeck(Container):
    """The cursor of the list of steps is the position."""

    DEFAULT_CSS = """
    ReplayDeck { layout: vertical; width: 1fr; height: 1fr; }
    ReplayDeck > .both { layout: vertical; height: 1fr; }
    ReplayDeck .steps { height: 2fr; }
    ReplayDeck .text { height: 3fr; }
    ReplayDeck.wide > .both { layout: horizontal; }
    ReplayDeck.wide .steps { width: 2fr; height: 1fr; }
    ReplayDeck.wide .text { width: 3fr; height: 1fr; }
    """

    class Moved(Message):
        """Another step is shown."""

        def __init__(self, deck: ReplayDeck) -> None:
            self.deck = deck
            super().__init__()

    def __init__(self, session: Session, tape: Tape) -> None:
        super().__init__()
        self.session, self.tape = session, tape
        self.wanted: Stage | None = None  # None: the stage that was changed last
        self.content = lru_cache(maxsize=64)(session.content)
        self._shown: tuple[int, Stage | None] = (-1, None)
        # Kept, not looked for: the screen asks a deck where it is also while it comes or goes.
        self.bar, self.details = StageBar(classes="bar"), Line(classes="details")
        self.steps, self.text = CodePane(classes="steps"), CodePane(classes="text")

    def compose(self) -> ComposeResult:
        yield self.bar
        with Container(classes="both"):
            yield self.steps
            yield self.text
        yield self.details

    def on_mount(self) -> None:
        count = len(self.tape.steps)
        title = f"{self.session.id}: {count} steps"
        self.steps.show(PaneText(timeline(self.tape), "", title, "an empty session"))
        self.present()

    def on_resize(self) -> None:
        self.set_class(self.size.width >= WIDE, "wide")
        self.present(again=True)

    @property
    def position(self) -> int:
        return min(self.steps.cursor, self.tape.last)

    def go(self, position: int) -> None:
        """Show the state after a step."""
        self.steps.go_to(max(0, min(position, self.tape.last)), centre=False)
        self.present()

    def show_stage(self, stage: Stage | None) -> None:
        """Show a stage's text from now on, or the one that each step changes."""
        self.wanted = stage
        self.present()

    def present(self, again: bool = False) -> None:
        """Bring bar, text and details to the position."""
        position = self.position
        stage = self.wanted or self.tape.stage_at(position)
        if (position, stage) == self._shown and not again:
            return
        moved = self._shown[0] != position
        state = self.tape.state(position)
        self.bar.show(state, state.title, self.size.width)
        if (position, stage) != self._shown:
            self._shown = (position, stage)
            content = text_at(self.tape, position, stage, self.content)
            self.text.show(content)
            changed = hunk_starts(content.rows)
            if changed:  # what the step did, whatever was looked at before
                self.text.go_to(changed[0])
        tape = self.tape
        words = details(tape.steps[position], tape.beats[position]) if tape.steps else []
        self.details.put([(" " + "; ".join(words), "dim")] if words else [])
        if moved:
            self.post_message(self.Moved(self))

    def on_code_pane_cursor_moved(self, event: CodePane.CursorMoved) -> None:
        if event.pane is self.steps:
            self.present()
