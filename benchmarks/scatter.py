"""Points over two equal axes with the diagonal: predicted against measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.report.picture import (
    DIM,
    INK,
    SERIES,
    Dot,
    Line,
    Picture,
    Shape,
    Text,
)

_SIZE, _LEFT, _TOP, _BELOW, _RIGHT = 520, 70, 60, 60, 240
_BAND = 0.1  # the lines beside the diagonal: a tenth more or less


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    label: str = ""


def scatter(
    title: str,
    series: Sequence[tuple[str, Sequence[Point]]],
    x_words: str,
    y_words: str,
    notes: Sequence[str] = (),
) -> Picture:
    """Points of each named series; dashes of a tenth above and below the diagonal."""
    top = max((max(p.x, p.y) for _, points in series for p in points), default=1.0)
    step = _step(top)
    end = step * math.ceil(top / step)

    def x(value: float) -> float:
        return _LEFT + _SIZE * value / end

    def y(value: float) -> float:
        return _TOP + _SIZE * (1 - value / end)

    shapes: list[Shape] = [Text(_LEFT, 34, title, 18, INK, True)]
    for index in range(round(end / step) + 1):
        value = index * step
        shapes += [
            Line(x(value), y(0), x(value), y(end)),
            Line(x(0), y(value), x(end), y(value)),
            Text(x(value), y(0) + 18, f"{value:g}", 11, DIM, anchor="middle"),
            Text(x(0) - 8, y(value) + 4, f"{value:g}", 11, DIM, anchor="end"),
        ]
    shapes.append(Line(x(0), y(0), x(end), y(end), INK, 1.5))
    shapes.append(Line(x(0), y(0), x(end / (1 + _BAND)), y(end), DIM))
    shapes.append(Line(x(0), y(0), x(end), y(end * (1 - _BAND)), DIM))
    for number, (name, points) in enumerate(series):
        fill = SERIES[number % len(SERIES)]
        row = _TOP + 14 + 22 * number
        shapes.append(Dot(_LEFT + _SIZE + 24, row - 4, 5, fill))
        shapes.append(Text(_LEFT + _SIZE + 36, row, name, 13))
        for point in points:
            shapes.append(Dot(x(point.x), y(point.y), 4.5, fill))
            if point.label:
                shapes.append(Text(x(point.x) + 7, y(point.y) + 4, point.label, 9, DIM))
    shapes.append(Text(_LEFT + _SIZE / 2, y(0) + 40, x_words, 13, anchor="middle"))
    shapes.append(Text(_LEFT, _TOP - 8, y_words, 13))
    below = _TOP + _SIZE + _BELOW
    for note in notes:
        below += 16
        shapes.append(Text(_LEFT, below, note, 11, DIM))
    return Picture(_LEFT + _SIZE + _RIGHT, round(below + 16), tuple(shapes))


def _step(top: float) -> float:
    """A round step that gives four to eight lines."""
    rough = top / 6
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
