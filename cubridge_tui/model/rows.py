"""Rows: what a pane shows, line by line, whatever text or diff it comes from."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from engine.cuir.nodes import Path

# An op's name across panes: its path in the lifted module, or in the target when it is new there.
Key: TypeAlias = "tuple[str, Path]"


SEPARATOR, UNDECIDED, DRAFT, MISSING = " · ", "undecided", "DRAFT", "MISSES"  # in a hunk's head


class RowKind(StrEnum):
    """What a row is in its pane. `OUT` is a change that is not taken (rejected, undecided)."""

    SAME = "same"
    ADD = "add"
    DEL = "del"
    OUT_ADD = "out_add"
    OUT_DEL = "out_del"
    HEAD = "head"
    NOTE = "note"


SIGNS = {
    RowKind.SAME: " ",
    RowKind.ADD: "+",
    RowKind.DEL: "-",
    RowKind.OUT_ADD: "+",
    RowKind.OUT_DEL: "-",
    RowKind.HEAD: "@",
    RowKind.NOTE: " ",
}


# Which rows are taken apart where they are too long; heads are cut where they tell least.
NOTES = frozenset({RowKind.NOTE})
CHANGES = NOTES | {RowKind.ADD, RowKind.DEL, RowKind.OUT_ADD, RowKind.OUT_DEL}
EVERY = CHANGES | {RowKind.SAME}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a pane.

    `text` is the raw line of the artifact; `number` its 1-based line there (None: no line of it);
    `origin` who wrote it; `hunk` the proposal/hunk that it belongs to; `key` the op that it shows;
    `sign` overrides the kind's sign; `changed` are the columns of what changed within the line.
    """

    text: str
    kind: RowKind = RowKind.SAME
    number: int | None = None
    origin: str = ""
    hunk: str = ""
    key: Key | None = None
    sign: str = ""
    changed: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PaneText:
    """What a pane shows: rows, their language, a title and a note (why it is empty or stale)."""

    rows: Sequence[Row] = ()
    language: str = ""
    title: str = ""
    note: str = ""
    version: str = ""


def plain_rows(lines: Sequence[str], origin: str = "") -> tuple[Row, ...]:
    """The lines of a text as rows."""
    return tuple(Row(line, RowKind.SAME, i, origin) for i, line in enumerate(lines, start=1))


def hunk_starts(rows: Sequence[Row]) -> list[int]:
    """The first row of every stretch of changed rows (a hunk's head where it has one)."""
    out: list[int] = []
    before = ""
    changed_before = False
    for index, row in enumerate(rows):
        inside = row.kind is RowKind.NOTE and bool(row.hunk)  # what a hunk says of itself
        changed = inside or row.kind not in (RowKind.SAME, RowKind.NOTE)
        if changed and (not changed_before or row.hunk != before):
            out.append(index)
        changed_before, before = changed, row.hunk
    return out


def wrapped(row: Row, width: int) -> list[Row]:
    """A row of words in pieces no longer than `width`; one of a changed text as it is."""
    return pieces(row, width) if row.kind in (RowKind.SAME, RowKind.NOTE) else [row]


def pieces(row: Row, width: int) -> list[Row]:
    """A row in pieces no longer than `width`, the later ones indented under the first's words, with
    what changed within each.

    The words stand after one or two columns: "scale       the score", "  G4  pass   19 runs".
    """
    text = row.text
    if len(text) <= width:
        return [row]
    words = re.match(r"\s*(?:\S+(?: \S+)?\s{2,}){1,2}", text)
    indent = min(len(words.group()), width // 2) if words else len(text) - len(text.lstrip())
    parts = textwrap.wrap(
        text, width, subsequent_indent=" " * indent, drop_whitespace=True, replace_whitespace=False,
        break_on_hyphens=False, expand_tabs=False,
    ) or [""]  # fmt: skip
    out, at = [replace(row, text=parts[0])], len(parts[0])
    for part in parts[1:]:
        words_of = part[indent:]
        at = text.index(words_of, at)
        moved = tuple((a - at + indent, b - at + indent) for a, b in row.changed if b > at)
        changed = tuple((max(a, indent), b) for a, b in moved)
        out.append(replace(row, text=part, number=None, origin="", sign=" ", changed=changed))
        at += len(words_of)
    return out


def fitted(
    rows: Sequence[Row], width: int, kinds: frozenset[RowKind] = NOTES
) -> tuple[Sequence[Row], Sequence[int]]:
    """The rows with those of some kinds that are too long in pieces, and which row each is of."""
    out: list[Row] = []
    places: list[int] = []
    for at, row in enumerate(rows):
        mine = pieces(row, width) if row.kind in kinds else [row]
        out += mine
        places += [at] * len(mine)
    return (rows, range(len(rows))) if out == [*rows] else (tuple(out), places)
