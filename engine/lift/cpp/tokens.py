"""The tokens of C++ source, on bytes: what is left when comments and blanks are gone.

Everything that must not depend on formatting (opaque text, expressions) is read from these.
`>` is always a token of its own, since only the parser knows whether `>>` closes two template
argument lists or shifts. The end of a preprocessor line is a token ("\\n").
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

# Raw strings first: they may hold quotes and comment signs. A `//` comment goes on after a
# backslash at the end of the line, as in the language.
_TOKEN = re.compile(
    rb"""
      (?P<blank> [\s\x00\x1a]+ | \\\r?\n )
    | (?P<comment> //(?:\\\r?\n|\\.|[^\\\n])* | /\*.*?(?:\*/|\Z) )
    | (?P<string> (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
                | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" )
    | (?P<char> (?:u8|[uUL])?'(?:\\.|[^'\\\n])*' )
    | (?P<number> \.?[0-9](?:'?[0-9A-Za-z_.]|(?<=[eEpP])[+-])* )
    | (?P<word> [A-Za-z_$\x80-\xff][A-Za-z0-9_$\x80-\xff]* )
    | (?P<sign> <<< | <<= | >>= | <=> | \.\.\. | ->\* | :: | -> | \+\+ | -- | << | <= | >= | == | !=
              | && | \|\| | \+= | -= | \*= | /= | %= | &= | \|= | \^= | \#\# | . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """`kind` is word, number, string, char or sign; `start` and `end` are byte offsets."""

    kind: str
    text: str
    start: int
    end: int


class Tokens:
    """The tokens of one source, in order, and those inside a byte range."""

    __slots__ = ("_starts", "all", "comments")

    def __init__(self, source: bytes) -> None:
        tokens: list[Token] = []
        comments: list[tuple[int, int]] = []
        fresh_line, directive = True, False
        for match in _TOKEN.finditer(source):
            kind = match.lastgroup or "sign"
            if kind == "blank":
                # A directive ends with its line; everywhere else lines mean nothing.
                if b"\n" in match.group() and not match.group().startswith(b"\\"):
                    if directive:
                        tokens.append(Token("sign", "\n", match.start(), match.start()))
                    fresh_line, directive = True, False
                continue
            if kind == "comment":
                comments.append(match.span())
                continue
            if kind in ("delimiter", "raw"):
                kind = "string"
            text = match.group().decode("utf-8", errors="replace")
            directive = directive or (fresh_line and text == "#")
            fresh_line = False
            tokens.append(Token(kind, text, match.start(), match.end()))
        self.all = tokens
        self.comments = comments
        self._starts = [t.start for t in tokens]

    def inside(self, start: int, end: int) -> list[Token]:
        """The tokens that start in bytes `start` up to and without `end`."""
        return self.all[bisect_left(self._starts, start) : bisect_left(self._starts, end)]


_TIGHT_AFTER = frozenset({"(", "[", ".", "::", "!", "~", "->", "#", "\n"})
_TIGHT_BEFORE = frozenset({")", "]", ".", "::", ",", ";", "(", "[", "->", "++", "--", "\n"})
_WORDY = frozenset({"word", "number", "string", "char"})
# What may stand between the brackets of template arguments, for the eye's sake only.
_IN_TEMPLATE = frozenset({",", "::", "*", "+", "-", "/", "(", ")", "<", ">", "&"})


def join(tokens: list[Token]) -> str:
    """One text for a token sequence, whatever stood between the tokens in the source."""
    out: list[str] = []
    brackets = _template_brackets(tokens)
    tight_next = True
    wordy = False
    for at, token in enumerate(tokens):
        now_wordy = token.kind in _WORDY
        tight = tight_next or token.text in _TIGHT_BEFORE or at in brackets
        if at > 2 and tokens[at - 2].text == "define" and tokens[at - 3].text == "#":
            # `#define F(x)` takes an argument, `#define F (x)` does not.
            tight = tokens[at - 1].end == token.start
        if not tight or (wordy and now_wordy):
            out.append(" ")
        out.append(token.text)
        opens = at in brackets and token.text == "<"
        tight_next, wordy = token.text in _TIGHT_AFTER or opens, now_wordy
    return "".join(out)


def _template_brackets(tokens: list[Token]) -> set[int]:
    """Positions of `<` and `>` that look like brackets."""
    found: set[int] = set()
    for at, token in enumerate(tokens):
        if token.text != "<" or not at or tokens[at - 1].kind != "word":
            continue
        depth, end = 0, at
        while end < len(tokens) and end < at + 64:
            inner = tokens[end]
            if inner.kind == "sign" and inner.text not in _IN_TEMPLATE:
                break
            depth += (inner.text == "<") - (inner.text == ">")
            if not depth:
                found |= {at, end}
                break
            end += 1
    return found
