"""Lexers of one pattern: each token is found by one search, and each word by one look-up.

Pygments' own tries some sixty patterns at every place of a C++ text, 0.15 ms a line: more than all
else that a page of a pane costs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

Coloured = tuple[int, int, str]  # start, end and kind of what is not plain text


class ScanLexer:
    """A language whose tokens do not depend on those before the last one.

    `pattern` has a named group for each kind of token; what no group matches is plain text.
    `groups` says the kind of a group. A word (the group `word`) is looked up in `words`; where it
    is not there, `after` tells by the word before it, and `word` in all other cases.
    """

    pattern: ClassVar[re.Pattern[str]]
    groups: ClassVar[Mapping[str, str]]
    words: ClassVar[Mapping[str, str]]
    after: ClassVar[Mapping[str, str]]

    def coloured(self, text: str) -> list[Coloured]:
        """Start, end and kind of all that is not plain text."""
        out: list[Coloured] = []
        add = out.append
        groups, words, after = self.groups, self.words, self.after
        before = ""
        for match in self.pattern.finditer(text):
            start, end = match.span()
            kind = groups.get(match.lastgroup or "")
            if kind is not None:
                add((start, end, kind))
                before = ""
                continue
            word = text[start:end]
            kind = words.get(word)
            if kind is None:
                kind = after.get(before)
                if kind is None:
                    kind = self.word(word, text[end : end + 1])
            if kind:
                add((start, end, kind))
            before = word
        return out

    def word(self, word: str, following: str) -> str:
        """The kind of a word that no table tells of; `following` is the character after it."""
        return ""
