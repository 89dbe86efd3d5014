"""Choose one of a list."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen

from cubridge_tui.model.rows import PaneText, Row
from cubridge_tui.screens.dialogs import FRAME
from cubridge_tui.screens.over import sit
from cubridge_tui.widgets.code_pane import CodePane, escaped
from cubridge_tui.widgets.line import Line


class Picker(ModalScreen[str | None], inherit_bindings=False):
    """Rows of (value, words); the chosen value, or None."""

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
        *(Binding(str(n), f"number({n})", "to this row", show=False) for n in range(10)),
    ]

    def __init__(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title, self._rows = title, tuple(rows)
        self._typed = 0  # the row's number as far as its digits were typed

    def compose(self) -> ComposeResult:
        with Vertical():
            yield CodePane(id="list", framed=False)
            yield Line(id="hint")

    def on_mount(self) -> None:
        pane = self.query_one(CodePane)
        rows = tuple(Row(words, number=i) for i, (_, words) in enumerate(self._rows, start=1))
        self.query_one(Vertical).border_title = escaped(self._title)
        pane.show(PaneText(rows, "", "", "there is nothing to choose"))
        pane.focus()
        keys = [
            ("enter", "key"), (" or its number chooses  ", "dim"), ("esc", "key"),
            (" leaves", "dim"),
        ]  # fmt: skip
        self.query_one("#hint", Line).put(keys)

    def on_resize(self) -> None:
        sit(self, max(len(self._rows), 2) + FRAME)

    def action_choose(self) -> None:
        index = self.query_one(CodePane).cursor
        self.dismiss(self._rows[index][0] if index < len(self._rows) else None)

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
