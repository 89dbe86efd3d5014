"""Seeded faults in kernel sources: what a tired engineer, or a bad patch, does to a kernel.

`all_mutations` enumerates every single fault of the listed kinds, at every place where it can
stand; `sample` picks some of each kind. A fault never only renames or reformats: it changes what
the source says, so a lift must never come out the same.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from engine.lift.cpp.tokens import Token, Tokens

RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "&&": "||", "||": "&&"}
# Names that stand in each other's place with the same type: swapped dimensions, tiles, views.
TWINS = {
    "Hq": "Hkv", "Hkv": "Hq", "Nq": "Nk", "Nk": "Nq", "BM": "BN", "BN": "BM",
    "sK": "sV", "sV": "sK",
    "K": "V", "V": "K", "h_kv": "h", "b": "h", "h": "b", "m_prev": "m", "q0": "n", "step": "n",
    "scale_log2": "LOG2E", "LOG2E": "LN2", "row_max": "row_sum", "row_sum": "row_max",
    "exp2_approx": "exp", "exp2": "exp", "log": "log2", "zeros": "fill", "STAGES": "WARPS",
    "k_full": "v_full", "v_full": "k_full", "k_empty": "v_empty", "v_empty": "k_empty",
    "gemm_async": "gemm_async_init", "gemm_async_init": "gemm_async", "LOW": "HIGH", "HIGH": "LOW",
    "named_sync": "named_arrive", "named_arrive": "named_sync", "q_map": "k_map", "k_map": "v_map",
    "arrive": "wait", "tile_count": "tile_full", "D": "BM", "DV": "D", "args": "nothing",
    "o": "s", "s": "o", "l": "m", "m": "l",
}  # fmt: skip
RELAXED = {"wait_async": 1, "mma_wait": 1, "tma_wait": 1}


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault: its kind, the line and the change in words, and the faulty source."""

    kind: str
    line: int
    words: str
    source: bytes

    def __str__(self) -> str:
        return f"{self.kind} at line {self.line}: {self.words}"


def all_mutations(source: bytes) -> Iterator[Mutation]:
    """Every fault, in source order per kind; only inside function bodies and their headers."""
    tokens = [t for t in Tokens(source).all if not _in_directive(source, t)]
    begin = next((at for at, t in enumerate(tokens) if t.text == "template"), 0)
    tokens = tokens[begin:]
    yield from _tokens(source, tokens)
    yield from _arguments(source, tokens)
    yield from _statements(source, tokens)


def sample(source: bytes, count: int, seed: int) -> list[Mutation]:
    """`count` faults, spread over the kinds, the same for the same seed."""
    by_kind: dict[str, list[Mutation]] = {}
    for mutation in all_mutations(source):
        by_kind.setdefault(mutation.kind, []).append(mutation)
    chooser = random.Random(seed)
    for bucket in by_kind.values():
        chooser.shuffle(bucket)
    out: list[Mutation] = []
    while len(out) < count and any(by_kind.values()):
        for bucket in by_kind.values():
            if bucket and len(out) < count:
                out.append(bucket.pop())
    return out


def _in_directive(source: bytes, token: Token) -> bool:
    start = source.rfind(b"\n", 0, token.start) + 1
    return source[start : token.start + 1].lstrip().startswith(b"#")


def _change(kind: str, source: bytes, start: int, end: int, new: bytes) -> Mutation:
    line = source.count(b"\n", 0, start) + 1
    old = source[start:end].decode(errors="replace")
    words = f"{old!r} -> {new.decode(errors='replace')!r}"
    return Mutation(kind, line, words, source[:start] + new + source[end:])


def _tokens(source: bytes, tokens: list[Token]) -> Iterator[Mutation]:
    for at, token in enumerate(tokens):
        before = tokens[at - 1] if at else token
        after = tokens[at + 1] if at + 1 < len(tokens) else token
        spaced = source[before.end : token.start] != b"" and source[token.end : after.start] != b""
        if token.text in RELATIONS and spaced:
            new = RELATIONS[token.text]
            yield _change("relation", source, token.start, token.end, new.encode())
        if token.text in ARITHMETIC and spaced and before.kind != "sign":
            new = ARITHMETIC[token.text]
            yield _change("arithmetic", source, token.start, token.end, new.encode())
        if token.text in ("++", "--"):
            new = "--" if token.text == "++" else "++"
            yield _change("direction", source, token.start, token.end, new.encode())
        if token.text == "!":
            yield _change("negation", source, token.start, token.end, b"")
        if token.kind == "number":
            yield from _numbers(source, token)
        if token.kind == "word":
            yield from _words(source, token, before, after)


def _numbers(source: bytes, token: Token) -> Iterator[Mutation]:
    if token.text.endswith("f") and not token.text.startswith("0x"):
        value = float(token.text[:-1])
        new = f"{value + 0.5}f".encode()
        yield _change("float", source, token.start, token.end, new)
    elif token.text.isdigit():
        for step in (1, -1):
            new = str(int(token.text) + step).encode()
            yield _change("off by one", source, token.start, token.end, new)


def _words(source: bytes, token: Token, before: Token, after: Token) -> Iterator[Mutation]:
    declares = before.kind == "word" and before.text not in ("return", "case", "else")
    declared = declares or before.text == "&"
    if token.text in TWINS and not declared and after.text != "=":
        new = TWINS[token.text].encode()
        yield _change("twin", source, token.start, token.end, new)
    if token.text in ("transpose", "map", "keep", "row_reduce") and after.text == "(":
        new = (token.text + "_").encode()
        yield _change("unknown op", source, token.start, token.end, new)


def _arguments(source: bytes, tokens: list[Token]) -> Iterator[Mutation]:
    """Neighbouring arguments swapped, and the last one dropped."""
    for at, token in enumerate(tokens):
        if token.text != "(" or not at or tokens[at - 1].text in ("for", "if", "while", "]"):
            continue
        pieces = _pieces(tokens, at + 1)
        texts = [source[a:b] for a, b in pieces]
        named_before = tokens[at - 1]
        is_parameters = any(b" " in t.strip() and t.split()[0] in _TYPES for t in texts)
        if is_parameters or named_before.text == "__launch_bounds__":
            continue
        for (a, b), (c, d) in itertools.pairwise(pieces):
            if source[a:b] != source[c:d] and not source[c:d].startswith(b"[&]"):
                new = source[c:d] + source[b:c] + source[a:b]
                yield _change("operand order", source, a, d, new)
        if len(pieces) > 1:
            yield _change("lost argument", source, pieces[-2][1], pieces[-1][1], b"")


_TYPES = frozenset({b"const", b"int", b"float", b"bool", b"long", b"TensorArg", b"Args"})


def _pieces(tokens: list[Token], at: int) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    depth, start, end = 0, None, 0
    while at < len(tokens):
        token = tokens[at]
        if token.text in "([{" and token.kind == "sign":
            depth += 1
        if token.text in ")]}" and token.kind == "sign":
            if not depth:
                break
            depth -= 1
        if token.text == "," and not depth and _angles(tokens, at) == 0:
            if start is not None:
                out.append((start, end))
            start = None
        else:
            start = token.start if start is None else start
            end = token.end
        at += 1
    if start is not None:
        out.append((start, end))
    return out


def _angles(tokens: list[Token], at: int) -> int:
    """Whether the comma at `at` stands between template brackets: `f<A, B>(`."""
    depth = 0
    for token in reversed(tokens[max(at - 40, 0) : at]):
        if token.text in ("(", ";", "{", "}"):
            return 0
        depth += (token.text == ">") - (token.text == "<")
        if depth < 0:
            return 1
    return 0


def _statements(source: bytes, tokens: list[Token]) -> Iterator[Mutation]:
    """A simple statement removed, doubled, or swapped with the next one."""
    simple: list[tuple[int, int]] = []
    start, depth = None, 0
    body = 0
    for token in tokens:
        if token.text in ("{", "}") and not depth:
            body += 1 if token.text == "{" else -1
            start = None
            continue
        depth += (token.text in "([" and token.kind == "sign") - (
            token.text in ")]" and token.kind == "sign"
        )
        if not body:
            continue
        start = token.start if start is None else start
        if token.text == ";" and not depth:
            simple.append((start, token.end))
            start = None
        if token.text == ")" and not depth and source[start:].startswith((b"for", b"if")):
            start = None
    for at, (a, b) in enumerate(simple):
        text = source[a:b]
        if b" = " not in text.split(b"(")[0] and not text.startswith(b"return"):
            yield _change("missing statement", source, a, b, b"")
            yield _change("doubled statement", source, a, b, text + b" " + text)
        if text.startswith(b"return") and b"run<" not in text:
            yield _change("missing statement", source, a, b, b"")
        if at + 1 < len(simple):
            c, d = simple[at + 1]
            between = source[b:c]
            if not between.strip() and text != source[c:d]:
                yield _change("statement order", source, a, d, source[c:d] + between + text)
