"""A hunk's text, edited here: only the hunk, checked when it is saved."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import TextArea

from cubridge_tui.screens.closing import Dialog
from cubridge_tui.screens.over import sit
from cubridge_tui.widgets.line import Line, Whole
from engine.types import Hunk

LONGEST_PASTE = 200_000
SPARE, LEAST = 3, 8  # lines to write more in, and the fewest of all
AROUND = 6  # the frame, title, what is replaced, an error, the keys


class HunkArea(TextArea):
    """A text area that refuses a paste no hunk could need."""

    async def _on_paste(self, event: events.Paste) -> None:
        if len(event.text) > LONGEST_PASTE:
            event.stop()
            event.prevent_default()
            self.post_message(TooLong(len(event.text)))
            return
        await super()._on_paste(event)


class TooLong(Message):
    """A paste that was refused."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__()


class HunkEditor(Dialog[str | None]):
    """Gives the new text, or None."""

    DEFAULT_CSS = """
    HunkEditor { align: center middle; background: $background 50%; }
    HunkEditor.beside { background: $background 0%; }
    HunkEditor > Vertical {
        width: 96%;
        height: 80%;
        background: $panel;
        border: round $primary;
        padding: 0 1;
    }
    HunkEditor TextArea, HunkEditor TextArea:focus { height: 1fr; border: none; padding: 0; }
    """
    BINDINGS = [
        Binding("ctrl+s,f2", "save", "save", show=False, priority=True),
        Binding("escape", "dismiss(None)", "leave", show=False, priority=True),
    ]

    def __init__(self, hunk: Hunk, text: str, error: str = "") -> None:
        super().__init__()
        self._hunk, self._text, self._error = hunk, text, error

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Line(id="title")
            yield Line(id="before")
            yield HunkArea(
                self._text, show_line_numbers=True, soft_wrap=False, tab_behavior="indent"
            )
            yield Whole(id="why")
            yield Line(id="hint")

    def on_mount(self) -> None:
        hunk = self._hunk
        self.query_one("#title", Line).put([(f" {hunk.id} ", "key"), (hunk.title, "title")])
        before = " | ".join(line for line in hunk.before.split("\n") if line.strip())
        self.query_one("#before", Line).put([(" replaces: ", "dim"), (before or "nothing", "dim")])
        self.query_one("#why", Whole).say(self._error.replace("\n", " "), "fail")
        words = " takes the edit (what does not parse: a draft)  "
        keys = [(" ctrl+s f2", "key"), (words, "dim"), ("esc", "key"), (" leaves", "dim")]
        self.query_one("#hint", Line).put(keys)
        area = self.query_one(TextArea)
        area.cursor_blink = False
        area.focus()

    def on_resize(self) -> None:
        """As high as its text asks for, with room to write more."""
        lines = self._text.count("\n") + 1
        sit(self, max(lines + SPARE, LEAST) + AROUND)

    def on_too_long(self, message: TooLong) -> None:
        words = f"a paste of {message.size} characters was refused: a hunk is shorter"
        self.query_one("#why", Whole).say(words, "fail")

    def action_save(self) -> None:
        self.dismiss(self.query_one(TextArea).text)
