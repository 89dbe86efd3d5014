"""Throughput as bars: one group per case, ours in colour, rivals in grey.

picture = bars("softcap_causal", groups, ["measured on ...", "TFLOP/s = ..."])
svg(picture)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.report.picture import DIM, INK, OURS, RIVAL, Box, Line, Picture, Shape, Text

_WIDTH, _LINE, _LEFT, _RIGHT, _EDGE = 960, 24, 200, 330, 16
_WRAP = 140  # characters of a note in one line


@dataclass(frozen=True, slots=True)
class Bar:
    """One contestant: `value` in the group's unit, `words` right of its bar.

    With a `reason` there is no bar, and the reason stands in its place. `mark` is another value
    that a line across the bar shows, such as a prediction.
    """

    name: str
    value: float = 0.0
    words: str = ""
    ours: bool = False
    reason: str = ""
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Bars that are compared with each other, and so share a scale."""

    title: str
    bars: tuple[Bar, ...]


def bars(title: str, groups: Sequence[Group], notes: Sequence[str] = ()) -> Picture:
    """The groups below each other, the notes (device, method, formula) under them."""
    shapes: list[Shape] = [Text(_EDGE, 34, title, 18, INK, True)]
    y = 42
    room = _WIDTH - _LEFT - _RIGHT
    for group in groups:
        y += _LINE + 8
        shapes.append(Text(_EDGE, y, group.title, 13, INK, True))
        top = max((max(b.value, b.mark or 0.0) for b in group.bars if not b.reason), default=0.0)
        for bar in group.bars:
            y += _LINE
            shapes.append(Text(_EDGE, y, bar.name, 13, OURS if bar.ours else INK, bar.ours))
            if bar.reason:
                shapes.append(Text(_LEFT, y, bar.reason[:100], 12, DIM))
                continue
            length = room * (bar.value / top) if top > 0 else 0.0
            fill = OURS if bar.ours else RIVAL
            shapes.append(Box(_LEFT, y - 14, max(length, 1.0), 18, fill))
            if bar.mark is not None and top > 0:
                at = _LEFT + room * bar.mark / top
                shapes.append(Line(at, y - 17, at, y + 7, INK, 2))
            shapes.append(Text(_WIDTH - _RIGHT + 12, y, bar.words, 13))
    y += 8
    for note in notes:
        for line in _lines(note):
            y += 18
            shapes.append(Text(_EDGE, y, line, 11, DIM))
    return Picture(_WIDTH, y + _EDGE, tuple(shapes))


def _lines(note: str) -> list[str]:
    out = [""]
    for word in note.split():
        if out[-1] and len(out[-1]) + len(word) + 1 > _WRAP:
            out.append("")
        out[-1] = f"{out[-1]} {word}".strip()
    return out
