"""Text of others in Markdown: readable, and never markup of its own."""

from __future__ import annotations

import re
import textwrap

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# What may begin markup in the middle of a line; `a_b`, `x * y`, `i <= j`, `k[B, D]` read better
# as they are.
_INLINE = re.compile(
    r"""
      [\\`~]
    | (?<!\w)_ | _(?!\w)
    | (?<!\s)\* | \*(?!\s)
    | <(?=[A-Za-z/!?])
    | &(?=\#?\w+;)
    | \[(?!\w[^\[\]]*\][^(\[:])
    """,
    re.VERBOSE,
)
_FIRST = re.compile(r"[-+=>#*:|\[](?!\w)|[>#|\[]|\d+(?=[.)](?:\s|$))")


def flat(text: str) -> str:
    """On one line, without control characters."""
    return _CONTROL.sub(" ", text)


def code(text: str) -> str:
    """A code span that shows exactly this text, whatever backticks it has."""
    line = flat(text)
    longest = max(map(len, re.findall(r"`+", line)), default=0)
    if not longest and line.strip() and line[0] + line[-1] != "  ":
        return f"`{line}`"
    if not line.strip():
        return prose(line)  # no code span is blank
    fence = "`" * (longest + 1)
    return f"{fence} {line} {fence}"


def prose(text: str) -> str:
    """On one line; what stands between two backticks is code, all else is shown as it is."""
    line = flat(text).strip()
    out: list[str] = []
    at = 0
    for span in _CODE.finditer(line):
        if span[1].strip():
            out += [_escaped(line[at : span.start()]), code(span[1])]
            at = span.end()
    made = "".join([*out, _escaped(line[at:])])
    begins = _FIRST.match(made)
    if begins is not None:  # a list, a quote, a heading, a table
        cut = begins.end() if begins[0].isdigit() else 0
        made = f"{made[:cut]}\\{made[cut:]}"
    return re.sub(r"(?<!\\)#+$", lambda end: "\\#" * len(end[0]), made)


def wrapped(text: str, width: int, indent: str = "") -> str:
    """A line of Markdown as lines of at most `width` columns where its words allow it, those after
    the first behind `indent`; none of them begins what Markdown reads as a block."""
    bound = re.sub(rf" (?={_FIRST.pattern})", "\0", text)
    lines = textwrap.wrap(
        bound, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace("\0", " ")


def cell(text: str) -> str:
    """`prose` for a table, where a bar ends a cell inside code too."""
    return re.sub(r"(?<!\\)\|", r"\|", prose(text))


def _escaped(text: str) -> str:
    return _INLINE.sub(r"\\\g<0>", text)
