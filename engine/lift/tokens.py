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
    | (?P<sign> <<< | <<= | <=> | \.\.\. | ->\* | :: | -> | \+\+ | -- | << | <= | >= | == | !=
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


_TIGHT_AFTER = frozenset([*"( [ . :: ! ~ -> < #".split(), "\n"])
_TIGHT_BEFORE = frozenset([*") ] . :: , ; ( [ -> < > ++ --".split(), "\n"])


def join(tokens: list[Token]) -> str:
    """One text for a token sequence, whatever stood between the tokens in the source."""
    out: list[str] = []
    before = ""
    wordy = False
    for token in tokens:
        now_wordy = token.kind in ("word", "number", "string", "char")
        tight = before in _TIGHT_AFTER or token.text in _TIGHT_BEFORE or not out
        if not tight or (wordy and now_wordy):
            out.append(" ")
        out.append(token.text)
        before, wordy = token.text, now_wordy
    return "".join(out)
