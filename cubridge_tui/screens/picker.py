"""Choose one of a list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical

from cubridge_tui.model.rows import PaneText, Row
from cubridge_tui.screens.closing import Dialog
from cubridge_tui.screens.dialogs import FRAME, Prompt
from cubridge_tui.screens.over import sit
from cubridge_tui.widgets.code_pane import CodePane, escaped
from cubridge_tui.widgets.line import Line


class Picker(Dialog[str | None]):
    """Rows of (value, words); the chosen value, or None. `/` leaves the rows that have some words;
    where they are `files`, the path of another one is a value, too."""

    DEFAULT_CSS = """
    Picker { align: center middle; background: $background 50%; }
    Picker.beside { background: $background 0%; }
    Picker > Vertical {
        width: 90%;
        height: 60%;
        background: $panel;
        border: round $primary;
        padding: 0 1;
    }
    """
    BINDINGS = [
        Binding("enter", "choose", "choose", show=False),
        Binding("escape,q,ctrl+c", "dismiss(None)", "leave", show=False),
        Binding("slash", "search", "those with some words", show=False),
        *(Binding(str(n), f"number({n})", "to this row", show=False) for n in range(10)),
    ]

    def __init__(self, title: str, rows: Sequence[tuple[str, str]], *, files: bool = False) -> None:
        super().__init__()
        self._title, self._rows = title, tuple(rows)
        self._every, self._files = self._rows, files
        self._typed = 0  # the row's number as far as its digits were typed

    def compose(self) -> ComposeResult:
        with Vertical():
            yield CodePane(id="list", framed=False)
            yield Line(id="hint")

    def on_mount(self) -> None:
        self.query_one(Vertical).border_title = escaped(self._title)
        self._show()
        self.query_one(CodePane).focus()
        keys = [
            ("enter", "key"), (" or its number chooses  ", "dim"), ("esc", "key"),
            (" leaves  ", "dim"),
        ]  # fmt: skip
        path = "path, or rows with some words" if self._files else "rows with some words"
        self.query_one("#hint", Line).put([*keys, ("/", "key"), (f" {path}", "dim")])

    def _show(self) -> None:
        rows = tuple(Row(words, number=i) for i, (_, words) in enumerate(self._rows, start=1))
        self.query_one(CodePane).show(PaneText(rows, "", "", "there is nothing to choose"))

    def on_resize(self) -> None:
        sit(self, max(len(self._rows), 2) + FRAME)

    def action_choose(self) -> None:
        index = self.query_one(CodePane).cursor
        self.dismiss(self._rows[index][0] if index < len(self._rows) else None)

    def action_search(self) -> None:
        title = "A path, or a part of a row:" if self._files else "A part of a row:"
        self.app.push_screen(Prompt(title, check=self._why_not), self._search)

    def _with(self, text: str) -> tuple[tuple[str, str], ...]:
        return tuple(row for row in self._every if text.lower() in row[1].lower())

    def _why_not(self, text: str) -> str:
        there = self._files and Path(text).expanduser().is_file()
        no_file = ", and no file has that name" if self._files else ""
        return "" if there or self._with(text) else f"no row has it{no_file}"

    def _search(self, text: str | None) -> None:
        if text is None:
            return
        if self._files and Path(text).expanduser().is_file():
            self.dismiss(str(Path(text).expanduser()))
            return
        self._rows = self._with(text)
        self._show()

    def action_number(self, digit: int) -> None:
        """Go to the row with the number typed so far; choose it once no longer one begins so."""
        pane = self.query_one(CodePane)
        before = self._typed if pane.cursor == self._typed - 1 else 0  # else the cursor went on
        typed = 10 * before + digit
        self._typed = typed if typed <= len(self._rows) else 0  # no such row: the next is a new one
        if self._typed:
            pane.go_to(typed - 1)
            if 10 * typed > len(self._rows):
                self.action_choose()
