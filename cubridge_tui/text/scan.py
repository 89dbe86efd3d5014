"""Lexers of one pattern: each token is found by one search, and each word by one look-up.

Pygments' own tries some sixty patterns at every place of a C++ text, 0.15 ms a line: more than all
else that a page of a pane costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pygments.lexer import Lexer
from pygments.token import Name, Token


class ScanLexer(Lexer):  # type: ignore[misc, unused-ignore]
    """A language whose tokens do not depend on those before the last one.

    `pattern` has a named group for each kind of token; what no group matches is plain text.
    `groups` says the token of a group. A word (the group `word`) is looked up in `words`; where it
    is not there, `after` tells by the word before it, and `word` in all other cases.
    """

    pattern: ClassVar[re.Pattern[str]]
    groups: ClassVar[Mapping[str, Any]]
    words: ClassVar[Mapping[str, Any]]
    after: ClassVar[Mapping[str, Any]]

    def coloured(self, text: str) -> list[tuple[int, int, Any]]:
        """Start, end and token of all that is not plain text."""
        out: list[tuple[int, int, Any]] = []
        add = out.append
        groups, words, after = self.groups, self.words, self.after
        before = ""
        for match in self.pattern.finditer(text):
            start, end = match.span()
            token = groups.get(match.lastgroup or "")
            if token is not None:
                add((start, end, token))
                before = ""
                continue
            word = text[start:end]
            token = words.get(word)
            if token is None:
                token = after.get(before) or self.word(word, text[end : end + 1])
            if token is not Name:
                add((start, end, token))
            before = word
        return out

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Place, token and text of each token; together they are the whole text."""
        at = 0
        for start, end, token in self.coloured(text):
            if start > at:
                yield at, Token.Text, text[at:start]
            yield start, token, text[start:end]
            at = end
        if at < len(text):
            yield at, Token.Text, text[at:]

    def word(self, word: str, following: str) -> Any:
        """The token of a word that no table tells of; `following` is the character after it."""
        return Name
