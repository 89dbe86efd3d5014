"""Help: the keys of a screen, what they do, and why some of them do nothing now."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from cubridge_tui.actions import Action, actions_of, key_name
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.rows import Row, RowKind
from cubridge_tui.screens.dialogs import TextDialog

READING = (
    ("j k ↑ ↓", "move the cursor; pageup, pagedown, ctrl+u, ctrl+d, home, end"),
    ("h l ← →", "scroll sideways"),
    ("shift+↑ shift+↓", "select lines (J selects downwards too)"),
)
MARKS = (
    "gutter: line number, origin (blank expert, R rules, M model, P person),",
    "        sign (+ added, - removed, ~ your edit, x rejected),",
    "        @ a hunk's head, ? an opaque op, ≈ a meaning that is assumed until G4,",
    "        link (▌ this op, │ its loop, ┊ its worker)",
    "verdicts: ✓ pass, ✗ fail, ~ stale, – not run, ! overridden, · never ran",
)


class HelpDialog(TextDialog):
    """The keys of a screen; enter does what the line under the cursor says, which is its result."""

    def __init__(self, screen: str, facts: Facts, table: Sequence[Action]) -> None:
        rows, self._ids = help_rows(screen, facts, table)
        super().__init__("help", rows, answers=(("enter", "does what the line says"),))

    @property
    def beside_its_row(self) -> bool:
        return False

    def result_of(self, key: str) -> str | None:
        return self._ids.get(self.given_row)


def help_rows(
    screen: str, facts: Facts, table: Sequence[Action]
) -> tuple[list[Row], dict[int, str]]:
    """The lines of the help screen, and the actions by their line."""
    rows: list[Row] = []
    ids: dict[int, str] = {}
    mine = actions_of(screen, table)
    for group, members in groupby(
        sorted(mine, key=lambda a: _order(mine, a)), key=lambda a: a.group
    ):
        rows += [Row("")] if rows else []
        rows.append(Row(group or "General", RowKind.HEAD))
        for action in members:
            keys = " ".join(map(key_name, action.keys)) or "(no key)"
            why = action.when(facts)
            text = f"  {keys:<18} {action.words}" + (f"   — {why}" if why else "")
            rows.append(Row(text))
            ids[len(rows) - 1] = action.id
    rows += [Row(""), Row("Moving in a pane", RowKind.HEAD)]
    rows += [Row(f"  {keys:<18} {words}") for keys, words in READING]
    rows += [Row(""), Row("Signs", RowKind.HEAD), *(Row(f"  {line}") for line in MARKS)]
    return rows, ids


def _order(actions: Sequence[Action], action: Action) -> int:
    groups = list(dict.fromkeys(a.group for a in actions))
    return groups.index(action.group)
