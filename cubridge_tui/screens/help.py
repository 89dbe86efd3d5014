"""Help: the keys of a screen, what they do, and why some of them do nothing now."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from cubridge_tui.actions import Action, actions_of, key_name
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.rows import Row, RowKind

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


def help_rows(screen: str, facts: Facts, table: Sequence[Action]) -> list[Row]:
    """The lines of the help screen."""
    rows: list[Row] = []
    mine = actions_of(screen, table)
    for group, members in groupby(
        sorted(mine, key=lambda a: _order(mine, a)), key=lambda a: a.group
    ):
        rows += [Row(""), Row(group or "General", RowKind.HEAD)]
        for action in members:
            keys = " ".join(map(key_name, action.keys)) or "(no key)"
            why = action.when(facts)
            rows.append(Row(f"  {keys:<18} {action.words}" + (f"   — {why}" if why else "")))
    rows += [Row(""), Row("Moving in a pane", RowKind.HEAD)]
    rows += [Row(f"  {keys:<18} {words}") for keys, words in READING]
    rows += [Row(""), Row("Signs", RowKind.HEAD), *(Row(f"  {line}") for line in MARKS)]
    return rows[1:]


def _order(actions: Sequence[Action], action: Action) -> int:
    groups = list(dict.fromkeys(a.group for a in actions))
    return groups.index(action.group)
