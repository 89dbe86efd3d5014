"""Colouring of what is visible, and of nothing else.

Each line is lexed when it is first shown. What can span lines (block comments, triple-quoted
strings, a directive that goes on) is tracked by a cheap scan, so a line amid a comment is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, NamedTuple

from cubridge_tui.text.scan import Coloured, ScanLexer

KEPT = 4096  # lines whose colours are kept
LONGEST = 1200  # characters of a line that are coloured; the rest of it is plain


class Span(NamedTuple):
    """Characters `start` up to `end` of a line are of a kind (see `KINDS`)."""

    start: int
    end: int
    kind: str


# Pygments token -> kind, most special first; a theme has a style per kind. Lexers of our own
# (`text.scan`) name kinds themselves.
KINDS: tuple[tuple[str, str], ...] = (
    ("Comment.Preproc", "preproc"),
    ("Comment.Special", "id"),
    ("Comment", "comment"),
    ("Keyword.Type", "type"),
    ("Keyword.Constant", "constant"),
    ("Keyword", "keyword"),
    ("Operator.Word", "keyword"),
    ("Operator", "operator"),
    ("Name.Builtin", "op"),
    ("Name.Decorator", "decorator"),
    ("Name.Function", "function"),
    ("Name.Class", "type"),
    ("Name.Namespace", "decorator"),
    ("Name.Attribute", "attribute"),
    ("Name.Label", "function"),
    ("Name.Entity", "constant"),
    ("Generic.Inserted", "added"),
    ("Generic.Deleted", "removed"),
    ("Generic.Heading", "heading"),
    ("Generic.Subheading", "heading"),
    ("Literal.String", "string"),
    ("Literal.Number", "number"),
    ("Punctuation", "operator"),
)


@cache
def kind_of(token: Any) -> str:
    """The kind of a Pygments token; empty for plain text."""
    name = str(token).removeprefix("Token.")
    for prefix, kind in KINDS:
        if name == prefix or name.startswith(prefix + "."):
            return kind
    return ""


@lru_cache(maxsize=8)
def lexer_for(language: str) -> Any:
    """The lexer of a language, or None for plain text."""
    if not language:
        return None
    if language == "cuir":
        from cubridge_tui.text.cuir_lexer import CuirLexer

        return CuirLexer()
    if language == "cuda":
        from cubridge_tui.text.cuda_lexer import CudaLexer

        return CudaLexer()
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def coloured(lexer: Any, text: str) -> Iterable[Coloured]:
    """Start, end and kind of what a lexer finds in a text."""
    if isinstance(lexer, ScanLexer):
        return lexer.coloured(text)
    found = lexer.get_tokens_unprocessed(text)
    return ((at, at + len(value), kind_of(token)) for at, token, value in found)


class Highlighter:
    """Spans of the lines of one text, on demand. `line(i)` gives the shown text of line i."""

    def __init__(self, line: Callable[[int], str], language: str) -> None:
        self._line, self._language = line, language
        self._kept: dict[int, list[Span]] = {}
        self._opened: list[str] = [""]  # what each line starts inside of, as far as scanned

    def spans(self, index: int) -> list[Span]:
        """The spans of a line, in order, without overlap."""
        kept = self._kept.get(index)
        if kept is None:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            kept = self._kept[index] = self._lex(index)
        return kept

    def _lex(self, index: int) -> list[Span]:
        lexer = lexer_for(self._language)
        if lexer is None:
            return []
        line, head = self._line(index)[:LONGEST], self._inside(index)
        first = len(head) + 1 if head else 0
        # Lexers end a line comment at its newline, so the line has one too.
        text = f"{head}\n{line}\n" if head else f"{line}\n"
        size = len(line)
        return [
            Span(max(start - first, 0), min(end - first, size), kind)
            for start, end, kind in coloured(lexer, text)
            if kind and end > first and start - first < size
        ]

    def _inside(self, index: int) -> str:
        """The delimiter that is open where a line starts."""
        opened = self._opened
        if self._language not in _PAIRS:
            return ""
        while len(opened) <= index:
            opened.append(_after(self._line(len(opened) - 1), opened[-1], self._language))
        return opened[index]


GOES_ON = "#\\"  # inside of a directive whose line ends in a backslash
_PAIRS = {
    "cuda": {"/*": "*/"},
    "c++": {"/*": "*/"},
    "ptx": {"/*": "*/"},
    "python": {'"""': '"""', "'''": "'''"},
}


def _after(line: str, state: str, language: str) -> str:
    """What is open after `line`, when `state` was open before it."""
    pairs = _PAIRS[language]
    if language != "python" and state in ("", GOES_ON):
        if line.endswith("\\") and (state or line.lstrip().startswith("#")):
            return GOES_ON
        state = ""
    position = 0
    while True:
        if state:
            end = line.find(pairs[state], position)
            if end < 0:
                return state
            position, state = end + len(pairs[state]), ""
            continue
        found = [(at, mark) for mark in pairs if (at := line.find(mark, position)) >= 0]
        if not found:
            return ""
        at, state = min(found)
        comment = line.find("//" if language != "python" else "#", position)
        if 0 <= comment < at:
            return ""
        position = at + len(state)
