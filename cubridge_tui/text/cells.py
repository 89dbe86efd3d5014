"""Lines and columns: from the characters of a file to the cells of a terminal and back.

Raw columns count code points of the file's line. Shown columns count code points of what is shown
(tabs expanded). Cells count terminal columns: a wide character takes two.
"""

from __future__ import annotations

from rich.cells import cell_len

from cubridge_tui.text.sanitise import visible

TAB = 4


def split_lines(text: str) -> list[str]:
    """The lines of a text: LF ends a line and nothing else does (`splitlines` knows eight more).

    A CR before it stays in the line, where it is shown, unless every line ends that way.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if lines and all(line.endswith("\r") for line in lines):
        lines = [line[:-1] for line in lines]
    return lines


def shown(line: str) -> str:
    """The line as it is shown: tabs expanded to their stops, everything else one to one."""
    if "\t" not in line:
        return visible(line)
    parts: list[str] = []
    column = 0
    for piece in line.split("\t"):
        if parts:
            width = TAB - column % TAB
            parts.append(" " * width)
            column += width
        text = visible(piece)
        parts.append(text)
        column += cell_len(text)
    return "".join(parts)


def shown_column(line: str, column: int) -> int:
    """The shown column of a raw column of `line`."""
    return len(shown(line[:column]))
