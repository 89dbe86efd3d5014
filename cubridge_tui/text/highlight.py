"""Colouring of what is visible, and of nothing else.

Lines are lexed in small chunks when they are first shown. What can span lines (block comments,
triple-quoted strings) is tracked by a cheap scan, so a chunk in the middle of a comment is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

CHUNK = 4
KEPT = 1024  # chunks whose colours are kept
LONGEST = 1200  # characters of a line that are coloured; the rest of it is plain


class Span(NamedTuple):
    """Characters `start` up to `end` of a line are of a kind (see `KINDS`)."""

    start: int
    end: int
    kind: str


# Pygments token -> kind, most special first; a theme has a style per kind.
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

        return CuirLexer(stripnl=False, ensurenl=False)
    if language == "cuda":
        from cubridge_tui.text.cuda_lexer import CudaLexer

        return CudaLexer(stripnl=False, ensurenl=False)
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def coloured(lexer: Any, text: str) -> Iterable[tuple[int, int, Any]]:
    """Start, end and token of what a lexer finds in a text."""
    scan = getattr(lexer, "coloured", None)  # ours, see `text.scan`
    if scan is not None:
        return scan(text)  # type: ignore[no-any-return]
    return ((at, at + len(value), token) for at, token, value in lexer.get_tokens_unprocessed(text))


class Highlighter:
    """Spans of the lines of one text, on demand. `line(i)` gives the shown text of line i."""

    def __init__(self, count: int, line: Callable[[int], str], language: str) -> None:
        self._count, self._line, self._language = count, line, language
        self._chunks: dict[int, list[list[Span]]] = {}
        self._opened: list[str] = [""]  # what each chunk starts inside of, as far as scanned

    def spans(self, index: int) -> Sequence[Span]:
        """The spans of a line, in order, without overlap."""
        lexer = lexer_for(self._language)
        if lexer is None:
            return ()
        chunk, place = divmod(index, CHUNK)
        if chunk not in self._chunks:
            if len(self._chunks) >= KEPT:
                self._chunks.clear()
            self._chunks[chunk] = self._lex(chunk, lexer)
        return self._chunks[chunk][place]

    def _lex(self, chunk: int, lexer: Any) -> list[list[Span]]:
        first = chunk * CHUNK
        lines = [self._line(i)[:LONGEST] for i in range(first, min(first + CHUNK, self._count))]
        head = self._inside(chunk)
        # Lexers end a line comment at its newline, so the last line has one too.
        text = "\n".join([head, *lines, ""] if head else [*lines, ""])
        out: list[list[Span]] = [[] for _ in range(CHUNK)]
        row = -1 if head else 0
        first, end = 0, text.find("\n")  # of the row that tokens are in
        for start, stop, token in coloured(lexer, text):
            kind = kind_of(token)
            while start < stop:
                while start > end:  # a line end belongs to the row before it
                    row, first, end = row + 1, end + 1, text.find("\n", end + 1)
                upto = min(stop, end)
                if kind and start < upto and row >= 0:
                    out[row].append(Span(start - first, upto - first, kind))
                start = upto + 1 if stop > end else stop
        return out

    def _inside(self, chunk: int) -> str:
        """The delimiter that is open where a chunk starts."""
        while len(self._opened) <= chunk:
            first = (len(self._opened) - 1) * CHUNK
            state = self._opened[-1]
            for i in range(first, min(first + CHUNK, self._count)):
                state = _after(self._line(i), state, self._language)
            self._opened.append(state)
        return self._opened[chunk]


_PAIRS = {
    "cuda": {"/*": "*/"},
    "c++": {"/*": "*/"},
    "ptx": {"/*": "*/"},
    "python": {'"""': '"""', "'''": "'''"},
}


def _after(line: str, state: str, language: str) -> str:
    """What is open after `line`, when `state` was open before it."""
    pairs = _PAIRS.get(language)
    if pairs is None:
        return ""
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
