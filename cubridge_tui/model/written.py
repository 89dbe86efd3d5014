"""A lowering that was written by a model: the expert's source with its regions as hunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cubridge_tui.model.links import Links
from cubridge_tui.model.meanings import Decided
from cubridge_tui.model.review import head_of
from cubridge_tui.model.rows import Row, RowKind
from cubridge_tui.text.cells import split_lines
from engine.service.session.lowerings import present_lowering
from engine.transfer.llm.lowering import LowerTask, Region, fitted, lowered_source
from engine.types import DecisionKind, Stage
from sessions.state import SessionState


def decided_regions(state: SessionState) -> tuple[Decided, ...]:
    """The hunks of the lowering that was written for the present target, with their decisions."""
    found = present_lowering(state)
    if found is None:
        return ()
    return tuple((found, h, state.decision(found.id, h.id)) for h in found.hunks)


@dataclass(frozen=True, slots=True)
class _Group:
    """Regions that share lines of the source: lines `first` to `last`, 0-based, the end outside."""

    first: int
    last: int
    regions: tuple[tuple[Region, Decided], ...]


def written_rows(
    task: LowerTask, source: str, regions: Sequence[Decided], links: Links,
    drafts: Mapping[str, tuple[str, str]], lowered: str | None,
) -> tuple[Row, ...]:  # fmt: skip
    """Rows that, read where they are numbered, are the source with the accepted regions in it.

    Where that is the lowered source, its lines bear its own ops; else those of the expert's.
    """
    lines = split_lines(source)
    keys = links.lines.get(Stage.SOURCE, {})
    rows: list[Row] = []
    number = 0

    def stay(at: int, kind: RowKind = RowKind.SAME, hunk: str = "") -> None:
        nonlocal number
        number += 1
        rows.append(Row(lines[at], kind, number, "expert", hunk, keys.get(at + 1)))

    at = 0
    for group in _groups(task, regions):
        while at < group.first:
            stay(at)
            at += 1
        names = [f"{d[0].id}/{d[1].id}" for _, d in group.regions]
        key = keys.get(min(group.first + 1, len(lines)))
        for (_, (_, hunk, decision)), name in zip(group.regions, names, strict=True):
            head = head_of(hunk, decision, drafts.get(name, ("", ""))[1])
            rows.append(Row(head, RowKind.HEAD, None, hunk.origin.value, name, key))
        kinds = [d[2].kind if d[2] is not None else None for _, d in group.regions]
        refused = DecisionKind.REJECTED
        taken = {n for n, k in enumerate(kinds) if k is not None and k is not refused}
        asked = {n for n, k in enumerate(kinds) if k is None}
        left = {n for n, k in enumerate(kinds) if k is refused}
        lead = names[min(asked or taken or left)]
        origin = "person" if DecisionKind.EDITED in kinds else group.regions[0][1][1].origin.value
        for n in range(group.first, group.last):
            if taken:
                rows.append(Row(lines[n], RowKind.DEL, None, "expert", lead, keys.get(n + 1)))
            else:
                stay(n, RowKind.DEL if asked else RowKind.SAME, lead)
        if taken:
            sign = "~" if origin == "person" else "+"
            for text in _piece(task, group, taken):
                number += 1
                rows.append(Row(text, RowKind.ADD, number, origin, lead, key, sign))
        if asked:
            rows += _apart(_piece(task, group, taken | asked), RowKind.ADD, origin, lead)
        elif left and not taken:
            rows += _apart(_piece(task, group, left), RowKind.OUT_ADD, origin, lead)
        at = group.last
    while at < len(lines):
        stay(at)
        at += 1
    if lowered is None or [r.text for r in rows if r.number is not None] != split_lines(lowered):
        return tuple(rows)
    own = links.lines.get(Stage.LOWERED, {})
    return tuple(replace(r, key=own.get(r.number, r.key)) if r.number else r for r in rows)


def _apart(lines: list[str], kind: RowKind, origin: str, hunk: str) -> Iterator[Row]:
    """Lines that the lowered source does not have."""
    sign = "x" if kind is RowKind.OUT_ADD else ""
    return (Row(text, kind, None, origin, hunk, None, sign) for text in lines)


def _groups(task: LowerTask, decided: Sequence[Decided]) -> list[_Group]:
    source = task.lifted.source
    by_name = {d[1].id: d for d in decided}
    out: list[_Group] = []
    for region in task.regions:
        if region.name not in by_name:
            continue
        start, end = region.place.start, region.place.end
        first = source.count(b"\n", 0, start)
        whole = region.empty and (start == 0 or source[start - 1 : start] == b"\n")
        last = first if whole else source.count(b"\n", 0, max(end - 1, start)) + 1
        mine = (region, by_name[region.name])
        if out and first < out[-1].last:
            before = out.pop()
            last = max(last, before.last)
            out.append(_Group(before.first, last, (*before.regions, mine)))
        else:
            out.append(_Group(first, last, (mine,)))
    return out


def _piece(task: LowerTask, group: _Group, which: set[int]) -> list[str]:
    """The group's lines with some of its regions replaced."""
    source = task.lifted.source
    texts = {}
    for n in which:
        region, (_, hunk, decision) = group.regions[n]
        edited = decision.replacement if decision is not None else None
        texts[region.name] = fitted(hunk.after if edited is None else edited, region, task)
    whole = lowered_source(texts, task)
    starts = _line_starts(source)
    begin = starts[group.first]
    behind = len(source) - starts[group.last]
    text = whole[begin : len(whole) - behind].decode("utf-8", "surrogateescape")
    return split_lines(text) if text else []


def _line_starts(source: bytes) -> list[int]:
    out = [0]
    at = source.find(b"\n")
    while at >= 0:
        out.append(at + 1)
        at = source.find(b"\n", at + 1)
    return [*out, len(source)]
