"""Other writings of the same source: every one must lift to the same text."""

from __future__ import annotations

import random

from engine.lift.cpp.tokens import Token, Tokens

BLANKS = (b" ", b"\n", b"\t", b"\r\n", b"  ", b" \n\n ", b"\v", b"\f")
COMMENTS = (
    b"/* c */", "/* 注释：按行 */".encode(), b"// line ); }\n", b"/* } ; { \" ' */", b"/**/",
    "// あ — é\r\n".encode(), b"/* // */", b"// a backslash \\\n goes on\n",
)  # fmt: skip


def pieces(source: bytes) -> list[Token | bytes]:
    """The source as tokens and whole preprocessor lines."""
    out: list[Token | bytes] = []
    tokens = Tokens(source).all
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.text == "#":
            end = at
            while end < len(tokens) and tokens[end].text != "\n":
                end += 1
            last = tokens[end - 1]
            out.append(source[token.start : last.end])
            at = end + 1
            continue
        out.append(token)
        at += 1
    return out


def reformatted(source: bytes, seed: int, comments: bool = True) -> bytes:
    """The same tokens with random blanks and comments between them."""
    chooser = random.Random(seed)
    density = chooser.choice((0.0, 0.3, 0.9))
    out = bytearray()
    before: Token | bytes | None = None
    for piece in pieces(source):
        if isinstance(piece, bytes):
            out += b"\n" + piece + chooser.choice((b"\n", b"\r\n"))
        else:
            gap = b"".join(
                chooser.choice(COMMENTS if comments and chooser.random() < 0.3 else BLANKS)
                for _ in range(3)
                if chooser.random() < density
            )
            if isinstance(before, Token) and not gap and _must_part(before, piece):
                gap = chooser.choice(BLANKS)
            if isinstance(before, Token) and before.text == "/" and gap.startswith(b"/"):
                gap = b" " + gap
            out += gap + piece.text.encode()
        before = piece
    return bytes(out) + chooser.choice((b"", b"\n", b"\r\n", b"  ", b" // end"))


def _must_part(before: Token, after: Token) -> bool:
    if "sign" not in (before.kind, after.kind):
        return True
    if before.kind == after.kind == "sign":
        return before.end != after.start
    # `1 .x` and `.5` would become other tokens.
    return "." in (before.text, after.text) and "number" in (before.kind, after.kind)


def without_comments(source: bytes) -> bytes:
    """Every comment replaced by one blank."""
    out, at = bytearray(), 0
    for start, end in Tokens(source).comments:
        out += source[at:start] + b" "
        at = end
    return bytes(out) + source[at:]


def renamed(source: bytes, names: dict[str, str]) -> bytes:
    """The names replaced wherever they stand as whole words, fields aside."""
    out, at = bytearray(), 0
    tokens = Tokens(source).all
    struct = False
    for position, token in enumerate(tokens):
        struct = (struct and token.text != "}") or token.text == "struct"
        if struct:
            continue
        if token.kind == "word" and token.text in names and tokens[position - 1].text != ".":
            out += source[at : token.start] + names[token.text].encode()
            at = token.end
    return bytes(out) + source[at:]
