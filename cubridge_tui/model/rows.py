"""Rows: what a pane shows, line by line, whatever text or diff it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from engine.cuir.nodes import Path

# An op's name across panes: its path in the lifted module, or in the target when it is new there.
Key: TypeAlias = "tuple[str, Path]"


SEPARATOR, DRAFT = " · ", "DRAFT"  # in a hunk's head line


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


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a pane.

    `text` is the raw line of the artifact; `number` its 1-based line there (None: no line of it);
    `origin` who wrote it; `hunk` the proposal/hunk that it belongs to; `key` the op that it shows;
    `sign` overrides the kind's sign.
    """

    text: str
    kind: RowKind = RowKind.SAME
    number: int | None = None
    origin: str = ""
    hunk: str = ""
    key: Key | None = None
    sign: str = ""


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
        changed = row.kind is not RowKind.SAME and row.kind is not RowKind.NOTE
        if changed and (not changed_before or row.hunk != before):
            out.append(index)
        changed_before, before = changed, row.hunk
    return out
