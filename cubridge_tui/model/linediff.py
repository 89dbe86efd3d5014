"""Line by line: one text as a diff against another, and as itself with marks."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from cubridge_tui.model.rows import Key, Row, RowKind

Ops = Sequence[tuple[str, int, int, int, int]]
Spans = tuple[tuple[int, int], ...]
ALIKE = 0.5  # of two lines' words are the same
MOST_PAIRED = 40  # lines that come in one place, each looked at beside each that goes
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


def opcodes(old: Sequence[str], new: Sequence[str]) -> Ops:
    """What turns `old` into `new`."""
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def unified(
    old: Sequence[str],
    new: Sequence[str],
    ops: Ops,
    old_keys: Mapping[int, Key],
    new_keys: Mapping[int, Key],
    origins: Mapping[Key, str],
    hunk_of: Mapping[Key, str],
    heads: Mapping[str, str],
) -> tuple[Row, ...]:
    """All of `new`, with the lines of `old` that are gone above what replaced them.

    `origins` and `hunk_of` say for an op who wrote it and which hunk it came from; `heads` gives a
    hunk's head line, shown once above its first changed line.
    """
    rows: list[Row] = []
    shown: set[str] = set()
    for tag, i1, i2, j1, j2 in ops:
        if tag == "equal":
            rows += [
                Row(new[j], RowKind.SAME, j + 1, "expert", "", new_keys.get(j + 1))
                for j in range(j1, j2)
            ]
            continue
        keys = [new_keys.get(j + 1) for j in range(j1, j2)]
        keys += [old_keys.get(i + 1) for i in range(i1, i2)]
        hunk = next((hunk_of[k] for k in keys if k is not None and k in hunk_of), "")
        if hunk in heads and hunk not in shown:
            shown.add(hunk)
            rows.append(Row(heads[hunk], RowKind.HEAD, None, "", hunk, keys[0] if keys else None))
        for i in range(i1, i2):
            key = old_keys.get(i + 1)
            rows.append(Row(old[i], RowKind.DEL, None, "expert", hunk, key))
        for j in range(j1, j2):
            key = new_keys.get(j + 1)
            mine = hunk_of.get(key, hunk) if key is not None else hunk
            origin = origins.get(key, "rules") if key is not None else "rules"
            rows.append(Row(new[j], RowKind.ADD, j + 1, origin, mine, key))
    return tuple(rows)


def with_changed_words(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with the words marked that differ between a line and the one that takes its place,
    where most of the two is the same."""
    out = list(rows)
    at = 0
    while at < len(out):
        gone, at = _stretch(out, at, (RowKind.DEL, RowKind.OUT_DEL))
        came, at = _stretch(out, at, (RowKind.ADD, RowKind.OUT_ADD))
        for old in gone if len(came) <= MOST_PAIRED else ():
            same = [n for n in came if out[n].hunk == out[old].hunk and not out[n].changed]
            words = {n: changed_words(out[old].text, out[n].text) for n in same}
            new = max(same, key=lambda n: words[n][0], default=None)
            if new is not None and words[new][0] >= ALIKE:
                out[old] = replace(out[old], changed=words[new][1])
                out[new] = replace(out[new], changed=words[new][2])
        at += not gone and not came
    return tuple(out)


def _stretch(rows: Sequence[Row], at: int, kinds: tuple[RowKind, ...]) -> tuple[range, int]:
    end = at
    while end < len(rows) and rows[end].kind in kinds:
        end += 1
    return range(at, end), end


@lru_cache(maxsize=4096)
def changed_words(old: str, new: str) -> tuple[float, Spans, Spans]:
    """How alike two lines are, and the columns of each that the other has not."""
    a, b = _WORDS.findall(old), _WORDS.findall(new)
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    spans: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            for side, words, low, high in ((0, a, i1, i2), (1, b, j1, j2)):
                start = len("".join(words[:low]))
                if high > low:
                    spans[side].append((start, start + len("".join(words[low:high]))))
    return matcher.ratio(), tuple(spans[0]), tuple(spans[1])


def marked_new(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The new text, changed lines marked: the right side of a side-by-side view.

    What only the old text has is on the other side. All else stays: a hunk that cannot be seen,
    with what it would add, cannot be decided on.
    """
    return tuple(r for r in rows if r.number is not None or r.kind is not RowKind.DEL)


def with_every_hunk(rows: Sequence[Row], reviewed: Sequence[Row]) -> tuple[Row, ...]:
    """`rows` with every hunk of `reviewed` that left no line in them: head, old and new lines.

    A rejected or undecided hunk is no difference between two texts; it stands where its lines
    would.
    """
    shown = {r.hunk for r in rows if r.kind is RowKind.HEAD}
    missing: dict[int, list[Row]] = {}
    goes: dict[int, Row] = {}  # lines that an undecided hunk would take away
    waiting: list[Row] = []
    apart = (RowKind.HEAD, RowKind.ADD, RowKind.OUT_ADD)
    for row in reviewed:
        if row.hunk not in shown and row.number is None and row.kind in apart:
            waiting.append(row)
        elif row.number is not None:
            if row.hunk not in shown and row.kind is RowKind.DEL:
                goes[row.number] = row
            if waiting:
                missing.setdefault(row.number, []).extend(waiting)
                waiting = []
    out: list[Row] = []
    places = sorted(missing)
    for row in rows:
        while places and row.number is not None and row.number >= places[0]:
            out += missing[places.pop(0)]
        taken = goes.get(row.number) if row.number is not None else None
        if taken is not None and row.kind is RowKind.SAME:
            row = replace(row, kind=RowKind.DEL, hunk=taken.hunk)
        out.append(row)
    for place in places:
        out += missing[place]
    return (*out, *waiting)


FILLER = Row("", RowKind.NOTE)


def aligned(
    left: Sequence[Row], right: Sequence[Row], ops: Ops
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Both sides with fillers, so that lines which `ops` says are equal stand in one row."""
    lefts = {r.number: i for i, r in enumerate(left) if r.number is not None}
    rights = {r.number: i for i, r in enumerate(right) if r.number is not None}
    out: tuple[list[Row], list[Row]] = ([], [])
    i = j = 0

    def to(a: int, b: int) -> None:
        nonlocal i, j
        out[0].extend(left[i:a])
        out[1].extend(right[j:b])
        rows = max(map(len, out))
        for side in out:
            side.extend([FILLER] * (rows - len(side)))
        i, j = a, b

    for tag, i1, i2, j1, _ in ops:
        for k in range(i2 - i1 if tag == "equal" else 0):
            a, b = lefts.get(i1 + k + 1, -1), rights.get(j1 + k + 1, -1)
            if a >= i and b >= j:
                to(a, b)
    to(len(left), len(right))
    return tuple(out[0]), tuple(out[1])


def marked_old(old: Sequence[str], ops: Ops, keys: Mapping[int, Key]) -> tuple[Row, ...]:
    """The old text alone, lines that are gone marked: the left side of a side-by-side view."""
    gone = {i for tag, i1, i2, _, _ in ops if tag != "equal" for i in range(i1, i2)}
    return tuple(
        Row(text, RowKind.DEL if i in gone else RowKind.SAME, i + 1, "expert", "", keys.get(i + 1))
        for i, text in enumerate(old)
    )
