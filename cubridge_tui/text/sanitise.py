"""Data as visible glyphs: what no terminal may obey, and what hides text, becomes something to see.

Every text from a file, a model, a compiler or a name goes through `visible` before it is shown.
One code point stays one code point, so columns of errors and provenance still point right.
"""

from __future__ import annotations

import unicodedata

HIDDEN = "▯"  # bidirectional overrides, joiners, byte order marks: there, but not to be obeyed
BROKEN = "\N{REPLACEMENT CHARACTER}"  # bytes that are no UTF-8, C1 controls, private characters
LINE_BREAK = "␤"  # line ends that are none of ours (U+2028, U+2029, U+0085)

_PICTURES = 0x2400
_VARIATION = range(0xFE00, 0xFE10)


class _Glyphs(dict[int, str]):
    """Code point -> what is shown for it, filled in as characters are met."""

    def __missing__(self, code: int) -> str:
        self[code] = shown = _glyph(code)
        return shown


def _glyph(code: int) -> str:
    if code < 0x20:
        return chr(_PICTURES + code)
    if code == 0x7F:
        return "␡"
    if code in (0x2028, 0x2029, 0x85):
        return LINE_BREAK
    if code in _VARIATION:
        return HIDDEN
    match unicodedata.category(chr(code)):
        case "Cf":
            return HIDDEN
        case "Cc" | "Cs" | "Co" | "Cn":
            return BROKEN
    return chr(code)


_GLYPHS = _Glyphs()


def visible(line: str) -> str:
    """`line` with every control, hidden or broken character as a glyph; never longer or shorter.

    Tabs become a glyph too: `text.cells.shown` expands them first.
    """
    if line.isascii() and line.isprintable():
        return line
    return line.translate(_GLYPHS)


def one_line(text: str, width: int = 0) -> str:
    """`text` on one line: line ends and tabs become blanks; cut with an ellipsis at `width`."""
    flat = visible(" ".join(text.replace("\t", " ").split("\n")))
    return flat if not width or len(flat) <= width else flat[: max(width - 1, 0)] + "…"


def visible_lines(text: str) -> list[str]:
    """The lines of `text` (LF ends one), each visible, tabs as blanks."""
    return [visible(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n")]
