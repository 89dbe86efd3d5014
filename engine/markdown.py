"""Text of others in Markdown: readable, and never markup of its own."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


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
    line, out, at = flat(text), [], 0
    for span in _CODE.finditer(line):
        if span[1].strip():
            out += [_escaped(line[at : span.start()]), code(span[1])]
            at = span.end()
    return "".join([*out, _escaped(line[at:])])


def cell(text: str) -> str:
    """`prose` for a table, where a bar ends a cell inside code too."""
    return re.sub(r"(?<!\\)\|", r"\\|", prose(text))


def _escaped(text: str) -> str:
    return _ENTITY.sub(r"\\&", _SPECIAL.sub(r"\\\1", text))
