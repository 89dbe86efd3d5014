"""C++ text for a prompt: code alone. Comments hold words for people, and none for a model."""

from __future__ import annotations

from collections.abc import Sequence

from engine.lift.cpp.tokens import Tokens


def definitions(source: bytes, names: set[str]) -> list[str]:
    """The functions and macros called `names`, without comments."""
    tokens = Tokens(source)
    out: list[str] = []
    begin = 0  # where the text of the item that we are in starts
    depth = 0
    found = False
    for at, token in enumerate(tokens.all):
        if token.text == "#" and depth == 0:
            begin, found = token.start, False
        if token.kind == "word" and token.text in names and depth == 0:
            after = tokens.all[at + 1].text if at + 1 < len(tokens.all) else ""
            macro = at >= 2 and tokens.all[at - 1].text == "define"
            found = found or after == "(" or macro
        if token.text == "{":
            depth += not _is_namespace(tokens, at)
        ended = False
        if token.text == "}":
            ended = depth == 1
            depth = max(depth - 1, 0)
        if depth == 0 and (ended or token.text in (";", "\n") or _opens_namespace(tokens, at)):
            if found:
                out.append(without_comments(source, tokens.comments, begin, token.end))
            begin, found = token.end, False
    return out


def _is_namespace(tokens: Tokens, at: int) -> bool:
    """Whether the brace at `at` opens a namespace, whose items stand for themselves."""
    words = [t.text for t in tokens.all[max(at - 6, 0) : at]]
    return "namespace" in words and not {";", "}", ")"} & set(words[words.index("namespace") :])


def _opens_namespace(tokens: Tokens, at: int) -> bool:
    return tokens.all[at].text == "{" and _is_namespace(tokens, at)


def without_comments(
    source: bytes, comments: Sequence[tuple[int, int]], start: int, end: int
) -> str:
    """Bytes `start` to `end` as text with the comments taken out, and lines that held only them."""
    out = bytearray()
    at = start
    for first, last in comments:
        if last <= start or first >= end:
            continue
        out += source[at : max(first, at)]
        at = max(at, last)
    out += source[at:end]
    text = out.decode("utf-8", "replace").replace("\r\n", "\n")
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())
