"""A picture as a list of shapes, written as SVG: text stays text.

Nothing in a text is markup: what cannot be printed is dropped, what XML reads otherwise is escaped.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape

INK, DIM, FAINT, PAPER = "#222222", "#666666", "#d5dadd", "#ffffff"
OURS, RIVAL = "#0072b2", "#b9c4cc"
# Told apart by people of every colour vision (Okabe and Ito), for series of points.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

_SANS = "Inter, Helvetica, Arial, sans-serif"

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Text:
    """Words with their baseline at (x, y); `anchor` says which end of them lies at x."""

    x: float
    y: float
    words: str
    size: int = 13
    fill: str = INK
    bold: bool = False
    anchor: Anchor = "start"


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    fill: str


@dataclass(frozen=True, slots=True)
class Line:
    x0: float
    y0: float
    x1: float
    y1: float
    stroke: str = FAINT
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    radius: float
    fill: str


Shape = Text | Box | Line | Dot


@dataclass(frozen=True, slots=True)
class Picture:
    """Shapes on white paper, in pixels."""

    width: int
    height: int
    shapes: tuple[Shape, ...]


def printable(words: str) -> str:
    """`words` as one line without control, format, surrogate or unassigned characters."""
    return "".join(
        " " if c in "\t\r\n" else c
        for c in words
        if c in "\t\r\n" or unicodedata.category(c)[0] != "C"
    )


def svg(picture: Picture) -> str:
    """The picture as a self-contained SVG document."""
    body = "\n".join(map(_svg_shape, picture.shapes))
    size = f'width="{picture.width}" height="{picture.height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {picture.width} {picture.height}" font-family="{_SANS}">\n'
        f'<rect {size} fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


def _svg_shape(shape: Shape) -> str:
    match shape:
        case Text(x, y, words, size, fill, bold, anchor):
            weight = ' font-weight="bold"' if bold else ""
            end = f' text-anchor="{anchor}"' if anchor != "start" else ""
            return (
                f'<text x="{x:g}" y="{y:g}" font-size="{size}"{weight}{end} fill="{fill}">'
                f"{escape(printable(words))}</text>"
            )
        case Box(x, y, width, height, fill):
            return (
                f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" fill="{fill}"/>'
            )
        case Line(x0, y0, x1, y1, stroke, width):
            return (
                f'<line x1="{x0:g}" y1="{y0:g}" x2="{x1:g}" y2="{y1:g}" stroke="{stroke}" '
                f'stroke-width="{width:g}"/>'
            )
        case Dot(x, y, radius, fill):
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"/>'
