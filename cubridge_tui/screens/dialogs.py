"""Small screens over others: a text to read, a line to type, a question to answer."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence

from rich.highlighter import Highlighter
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input

from cubridge_tui.console import typeable
from cubridge_tui.model.rows import PaneText, Row, wrapped
from cubridge_tui.screens.closing import Dialog
from cubridge_tui.screens.over import sit
from cubridge_tui.text.sanitise import visible
from cubridge_tui.type_ahead import TypedInto
from cubridge_tui.widgets.code_pane import CodePane, escaped
from cubridge_tui.widgets.line import GRACE, Line, Whole

LONGEST_INPUT = 20_000
FRAME = 3  # rows of a dialog besides its text: the frame and the keys


class TextDialog(Dialog[str | None]):
    """Lines to read: help, log, inspector, a verdict's details.

    `answers` are keys with words: pressed once the person can have read them, they close the
    dialog and are its result, and what they are about stays in sight. `at` is the line that it
    begins at, -1 the last one.
    """

    DEFAULT_CSS = """
    TextDialog { align: center middle; background: $background 50%; }
    TextDialog.beside { background: $background 0%; }
    TextDialog > Vertical {
        width: 96%;
        height: 90%;
        background: $panel;
        border: round $primary;
        padding: 0 1;
    }
    """
    BINDINGS = [
        Binding("escape,q,question_mark,f1,i,L,enter", "dismiss(None)", "close", show=False)
    ]

    def __init__(
        self,
        title: str,
        lines: Sequence[str] | Sequence[Row],
        language: str = "",
        answers: Sequence[tuple[str, str]] = (),
        *,
        at: int = 0,
    ) -> None:
        super().__init__()
        self._at = at
        self._answers = tuple(answers)
        self._asked = time.monotonic()
        self._rows = [r if isinstance(r, Row) else Row(typeable(r)) for r in lines]
        self._given: list[int] = []  # of each row that is shown: which of the lines it is of
        self._title, self._language = title, language

    def compose(self) -> ComposeResult:
        with Vertical():
            yield CodePane(id="text", framed=False)
            yield Line(id="hint")

    def on_mount(self) -> None:
        self.query_one(Vertical).border_title = escaped(self._title)
        self.query_one(CodePane).focus()
        self._asked = time.monotonic()
        parts = [p for key, words in self._answers for p in ((key, "key"), (f" {words}  ", "dim"))]
        self.query_one("#hint", Line).put(parts, [("esc", "key"), (" closes ", "dim")])

    @property
    def given_row(self) -> int:
        """Which of the lines the cursor is on; -1 for none."""
        at = self.query_one(CodePane).cursor
        return self._given[at] if at < len(self._given) else -1

    def on_key(self, event: events.Key) -> None:
        if any(event.key == key for key, _ in self._answers):
            event.stop()
            if time.monotonic() - self._asked >= 2 * GRACE:
                self.dismiss(self.result_of(event.key))

    @property
    def beside_its_row(self) -> bool:
        """Whether the row below the dialog has to stay in sight: its answers are about that."""
        return bool(self._answers)

    def result_of(self, key: str) -> str | None:
        """What the dialog's result is once an answer's key was pressed."""
        return key

    def on_resize(self) -> None:
        width = max(int(self.size.width * 0.96) - 6, 20)
        shown = [(piece, n) for n, row in enumerate(self._rows) for piece in wrapped(row, width)]
        rows, self._given = [piece for piece, _ in shown], [n for _, n in shown]
        pane = self.query_one(CodePane)
        pane.show(PaneText(rows, self._language))
        sit(self, len(rows) + FRAME, beside=self.beside_its_row)
        if self._at:
            pane.go_to(len(rows) - 1 if self._at < 0 else self._given.index(self._at))
            self._at = 0


class _Visible(Highlighter):
    """The input's text as glyphs: what was pasted into it is never obeyed by the terminal."""

    def highlight(self, text: Text) -> None:
        text.plain = visible(text.plain)


class Prompt(TypedInto, Dialog[str | None]):
    """One line of text; None when the person leaves.

    A text that is there already is selected: typing replaces it, a cursor key keeps it. `live` is
    called with each text while it is typed, and says what comes of it.
    """

    # The input is compact (one row, no border): Textual's own border on focus leaves no row for
    # the text, and a rule that only names `Prompt Input` is weaker than that one's `:focus`.
    DEFAULT_CSS = """
    Prompt { align: center bottom; background: $background 0%; }
    Prompt > Vertical {
        width: 100%;
        height: auto;
        background: $panel;
        border-top: solid $primary;
    }
    Prompt Input { background: $surface; margin: 0 1; }
    """
    BINDINGS = [Binding("escape,ctrl+c", "dismiss(None)", "leave", show=False)]

    def __init__(
        self,
        title: str,
        value: str = "",
        check: Callable[[str], str] | None = None,
        *,
        live: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__()
        self._title, self._value, self._check, self._live = title, value, check, live

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Whole(id="title")
            yield Input(self._value, max_length=LONGEST_INPUT, compact=True, highlighter=_Visible())
            yield Whole(id="why")
            yield Line(id="hint")

    def on_mount(self) -> None:
        self.query_one("#title", Whole).say(self._title, "title")
        keys = [(" enter", "key"), (" does it  ", "dim"), ("esc", "key"), (" leaves", "dim")]
        if self._value:
            keys += [("  typing", "key"), (" replaces it  ", "dim"), ("end", "key")]
            keys += [(" adds to it", "dim")]
        self.query_one("#hint", Line).put(keys)
        if self._live is not None and self._value:
            self.query_one("#why", Whole).say(self._live(self._value), "dim")
        self.query_one(Input).cursor_blink = False
        self.set_focus(self.query_one(Input))
        self.open_to()

    def take(self, keys: Sequence[events.Key]) -> Sequence[events.Key]:
        """The line as these keys leave it, up to the one that ends the prompt."""
        line = self.query_one(Input)
        replaces = bool(self._value)  # as typing does where the text is selected
        for at, key in enumerate(keys):
            if key.key == "enter" and self._done(line.value):
                return keys[at + 1 :]
            if key.key in ("escape", "ctrl+c"):
                self.dismiss(None)
                return keys[at + 1 :]
            if key.is_printable and key.character:
                line.select_on_focus = False  # the next key would replace what these typed
                line.value = key.character if replaces else line.value + key.character
            elif key.key in ("backspace", "ctrl+u"):
                line.value = "" if replaces or key.key == "ctrl+u" else line.value[:-1]
            replaces = False
        line.cursor_position = len(line.value)
        return ()

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._live is not None:
            self.query_one("#why", Whole).say(self._live(event.value), "dim")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._done(event.value)

    def _done(self, text: str) -> bool:
        """End with this text; False, with the reason shown, where it will not do."""
        why = self._check(text) if self._check else ""
        if why:
            self.query_one("#why", Whole).say(why, "fail")
        else:
            self.dismiss(text)
        return not why


class Confirm(Dialog[bool]):
    """A question that `y` answers; keys typed before it appeared do not. It is shown whole."""

    DEFAULT_CSS = """
    Confirm { align: center bottom; background: $background 0%; }
    Confirm > Vertical {
        width: 100%;
        height: auto;
        background: $panel;
        border-top: solid $primary;
    }
    """

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question
        self._asked = time.monotonic()

    def compose(self) -> ComposeResult:
        # Each line with its text: one that is closed at once is mounted when they are gone.
        with Vertical():
            for piece in textwrap.wrap(self._question, max(self.app.size.width - 2, 20)):
                line = Line(classes="question")
                line.put([(f" {piece}", "title")])
                yield line
            hint = Line(id="hint")
            hint.put(
                [(" y", "key"), (" yes  ", "dim"), ("n", "key"), (" no, and any other key", "dim")]
            )
            yield hint

    def on_mount(self) -> None:
        self._asked = time.monotonic()

    def on_key(self, event: events.Key) -> None:
        event.stop()
        if time.monotonic() - self._asked >= 2 * GRACE:
            self.dismiss(event.key == "y")
