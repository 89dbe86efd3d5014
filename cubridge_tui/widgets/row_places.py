"""Where to go among rows: a line, a hunk, and the place that a changed text had before."""

from __future__ import annotations

from collections.abc import Sequence

from cubridge_tui.model.rows import Row, RowKind, hunk_starts


def same_place(rows: Sequence[Row], cursor: int, before: Row) -> int:
    """Where a cursor that stood on `before` belongs among other rows.

    The same row, else the same op's line, the same hunk, the same line number, the same index.
    """
    if cursor < len(rows) and rows[cursor].text == before.text:
        return cursor
    tests = (
        [before.key is not None and r.key == before.key and r.text == before.text for r in rows],
        [bool(before.hunk) and r.hunk == before.hunk for r in rows],
        [before.number is not None and r.number == before.number for r in rows],
    )
    for found in tests:
        if True in found:
            return found.index(True)
    return min(cursor, max(len(rows) - 1, 0))


def nearest_line(rows: Sequence[Row], number: int) -> int | None:
    """The row of a line of the text, or of the nearest one that is shown."""
    numbered = [(abs(r.number - number), i) for i, r in enumerate(rows) if r.number is not None]
    return min(numbered)[1] if numbered else None


def next_start(rows: Sequence[Row], cursor: int, step: int) -> int | None:
    """The next (1) or previous (-1) changed stretch's first row, round the end."""
    starts = hunk_starts(rows)
    if not starts:
        return None
    if step > 0:
        return next((s for s in starts if s > cursor), starts[0])
    return next((s for s in reversed(starts) if s < cursor), starts[-1])


def hunk_end(rows: Sequence[Row], index: int) -> int:
    """The last row of the stretch that a hunk's head begins; of another row itself."""
    if index >= len(rows) or rows[index].kind is not RowKind.HEAD:
        return index
    end = index
    while end + 1 < len(rows) and rows[end + 1].hunk == rows[index].hunk:
        end += 1
    return end


def runs(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending indexes as stretches without a gap: first index and length of each."""
    out: list[tuple[int, int]] = []
    for index in indexes:
        if out and index == sum(out[-1]):
            out[-1] = (out[-1][0], out[-1][1] + 1)
        else:
            out.append((index, 1))
    return out
