"""Every hunk of a session as one row: decision, title, clause, what it needs, its first line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cubridge_tui.model.costs import change_of
from cubridge_tui.model.explained import NOTHING, lines_of, missing, needed
from cubridge_tui.model.meanings import Decided
from cubridge_tui.model.review import WORDS, head_of
from cubridge_tui.model.rows import SIGNS, Row, RowKind
from cubridge_tui.model.snapshot import Snapshot, View
from cubridge_tui.text.highlight import Span
from cubridge_tui.text.sanitise import one_line
from engine.types import Decision, DecisionKind, Stage

MARKS = {
    DecisionKind.ACCEPTED: "✓",
    DecisionKind.REJECTED: "x",
    DecisionKind.EDITED: "~",
    None: "·",
}
STYLES = {"✓": "pass", "x": "fail", "~": "overridden", "!": "stale"}
CODE_WIDTH = 110  # columns from which a row has its hunk's first line too
LEAST_TITLE, MOST_TITLE, MOST_NEEDS = 16, 48, 14


@dataclass(frozen=True, slots=True)
class Overview:
    """`names` are the hunks (`proposal/hunk`) of the rows, `open` those of them undecided."""

    rows: tuple[Row, ...]
    spans: tuple[tuple[Span, ...], ...]
    names: tuple[str, ...]
    open: tuple[str, ...]
    counts: str


def overview(snap: Snapshot, words: str, width: int) -> Overview:
    """The hunks that have all of `words` in their row, as rows of `width` columns."""
    wanted = words.lower().split()
    decided = {f"{p.id}/{h.id}": d for p, h, d in snap.all_hunks}
    short = {n for n in decided if missing(n, snap.explained, decided.get)}
    cells = [_cells(snap, d, f"{d[0].id}/{d[1].id}" in short) for d in snap.all_hunks]
    found = [c for c in cells if all(w in " ".join(c[1:]).lower() for w in wanted)]
    id_, title, clause, needs, cost = (
        max((len(c[i]) for c in found), default=0) for i in range(2, 7)
    )
    needs = min(needs, MOST_NEEDS)
    code = width >= CODE_WIDTH
    rest = id_ + clause + needs + cost + 12
    title = min(title, MOST_TITLE if code else max(width - rest, LEAST_TITLE))
    rows, spans = [], []
    for name, _, hunk, words_, kinds, givers, change, text in found:
        made = decided[name]
        mark = "!" if name in short else MARKS[made.kind if made is not None else None]
        line = f"{mark} {hunk:<{id_}}  {one_line(words_, title):<{title}}  "
        at = len(line)
        line += f"{kinds:<{clause}}  {one_line(givers, needs) if needs else '':<{needs}}"
        line += f"  {change:>{cost}}"
        rows.append(Row((f"{line}  {text}" if code else line).rstrip(), hunk=name))
        styled = [Span(0, 1, STYLES[mark])] if mark in STYLES else []
        spans.append((*styled, Span(at, at + len(kinds), "type")))
    names = tuple(c[0] for c in found)
    return Overview(
        tuple(rows), tuple(spans), names,
        tuple(n for n in names if decided[n] is None),
        _counts([decided[n] for n in names], len(short & set(names))),
    )  # fmt: skip


def _cells(snap: Snapshot, decided: Decided, short: bool) -> tuple[str, ...]:
    """Name, decision in words, id, title, clauses, what it needs, what its absence costs, its first
    line."""
    proposal, hunk, decision = decided
    name = f"{proposal.id}/{hunk.id}"
    lines = [x for x in (hunk.after or hunk.before).split("\n") if x and not x.startswith("@")]
    about = snap.explained.get(name, NOTHING)
    state = WORDS[decision.kind if decision is not None else None]
    state += " misses" if short else ""
    change = change_of(snap.costs, hunk.id) if name in snap.explained else ""
    return (name, state, hunk.id, one_line(hunk.title), hunk.clause, needed(about), change,
            one_line(lines[0] if lines else ""))  # fmt: skip


def _counts(made: Sequence[Decision | None], short: int) -> str:
    counted = Counter(WORDS[d.kind if d is not None else None] for d in made)
    told = ", ".join(f"{n} {word}" for word, n in counted.items())
    return (told or "no hunk") + (f", {short} with a name missing" if short else "")


def hunk_rows(snap: Snapshot, name: str) -> list[Row]:
    """A hunk by itself: its head, what it says of itself, its old and new lines."""
    found = snap.hunk(name)
    if found is None:
        return []
    _, hunk = found
    panes = snap.panes[View.OPS]
    mine = [
        r for s in (Stage.LIFTED, Stage.TARGET, Stage.LOWERED) for r in panes[s].rows
        if r.hunk == name
    ]  # fmt: skip
    head = next((r for r in mine if r.kind is RowKind.HEAD), None)
    if head is None:  # of an earlier proposal
        head = Row(head_of(hunk, snap.decision(name)), RowKind.HEAD, None, hunk.origin.value, name)
    about = snap.explained.get(name, NOTHING)
    notes = [Row(line, RowKind.NOTE, hunk=name) for line in lines_of(hunk, about, snap.cost(name))]
    changed = (r for r in mine if r.kind not in (RowKind.HEAD, RowKind.NOTE))
    return [replace(head, number=None), *notes, *map(_signed, changed)]


def _signed(row: Row) -> Row:
    """A row whose sign stands before its text, where there is no gutter."""
    sign = f"{row.sign or SIGNS[row.kind]} "
    moved = tuple((begin + len(sign), end + len(sign)) for begin, end in row.changed)
    return replace(row, text=sign + row.text, number=None, changed=moved)
