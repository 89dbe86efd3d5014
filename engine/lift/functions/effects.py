"""What an opaque text may read and write, from its names alone. Errs on the side of more.

`*` among the writes stands for everything that names do not show: memory behind pointers, barriers,
control flow, calls of unknown functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.cuir.ops import OPS
from engine.lift.cpp.tokens import Token
from engine.lift.names.scope import C_TYPES, Program, Scope

ANYTHING = "*"
_ASSIGN = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<="})
_CONTROL = frozenset({
    "break", "continue", "return", "goto", "asm", "__asm__", "throw", "while", "do", "switch",
    "new", "delete", "volatile", "extern", "static", "__shared__", "__device__", "__global__",
    "__constant__",
})  # fmt: skip
_STATEMENTS = frozenset({"if", "else", "for", "case", "sizeof", "define", "ifdef", "ifndef"})
_WORDS = frozenset({
    "if", "else", "for", "const", "constexpr", "auto", "true", "false", "sizeof",
    "static_cast", "unsigned", "signed", "using", "typename", "template", "struct", "case",
    "default",
})  # fmt: skip


def effects(
    tokens: Sequence[Token], program: Program, scope: Scope
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The CuIR names that the text reads and writes, sorted."""
    reads: set[str] = set()
    writes: set[str] = set()
    argument_of_unknown = _arguments_of_unknown(tokens, program)
    for at, token in enumerate(tokens):
        if token.text in _CONTROL or token.text in ("#", "->"):
            writes.add(ANYTHING)
        if token.kind != "word":
            if token.text in _ASSIGN and at and tokens[at - 1].text in ("]", ")"):
                writes.add(ANYTHING)
            continue
        before = tokens[at - 1].text if at else ""
        after = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if before == "." or token.text in _WORDS or token.text in C_TYPES:
            if before == "." and after in _ASSIGN:
                writes.add(ANYTHING)
            continue
        local = scope.find(token.text)
        name = getattr(local.cuir, "id", token.text) if local is not None else token.text
        if token.text == scope.args:
            name = "args"
        if local is not None or name == "args":
            reads.add(name)
        stepped = "++" in (before, after) or "--" in (before, after)
        address = before == "&" and (at < 2 or tokens[at - 2].kind == "sign")
        typed = at > 0 and tokens[at - 1].kind == "word" and before not in _CONTROL | _STATEMENTS
        declared = local is None and typed and after != "("
        if after in _ASSIGN or stepped or address or at in argument_of_unknown or declared:
            writes.add(name)
        if before == "*" and after in _ASSIGN and _is_statement_start(tokens, at - 1):
            writes.add(ANYTHING)
        if after in ("[", "(") and local is not None:
            writes.add(name)
    if _calls_unknown(tokens, program):
        writes.add(ANYTHING)
    return tuple(sorted(reads)), tuple(sorted(writes))


def _is_statement_start(tokens: Sequence[Token], at: int) -> bool:
    return at == 0 or tokens[at - 1].text in (";", "{", "}", ")")


def objects(tokens: Sequence[Token]) -> list[tuple[int, Token]]:
    """The names that the text mentions, and where: `a` of `a.x`, not the member."""
    return [
        (at, token) for at, token in enumerate(tokens)
        if token.kind == "word" and (not at or tokens[at - 1].text not in (".", "->"))
    ]  # fmt: skip


def assigned(tokens: Sequence[Token]) -> set[str]:
    """The C++ names whose value, or a member's, the text assigns, steps or takes the address of."""
    out: set[str] = set()
    for at, token in objects(tokens):
        before, last = tokens[at - 1].text if at else "", at
        while last + 2 < len(tokens) and tokens[last + 1].text in (".", "->"):
            last += 2
        after = tokens[last + 1].text if last + 1 < len(tokens) else ""
        steps = ("++", "--")
        if after in _ASSIGN or after in steps or before in steps or before == "&":
            out.add(token.text)
    return out


def _is_pure(name: str, program: Program) -> bool:
    """Whether a function of this name only computes a scalar."""
    if name in _WORDS or name in C_TYPES or name in program.catalogue.types:
        return True
    scalar = ("i32", "i64", "f32", "bool", "same")
    patterns = program.catalogue.by_head.get(f"call name {name}", ())
    effect = name in OPS and bool(OPS[name].effects)
    return bool(patterns) and not effect and all(p.type in scalar for p in patterns)


def _calls(tokens: Sequence[Token]) -> list[tuple[str, int]]:
    """Called names (as far as tokens show them) with the position of their parenthesis."""
    out = []
    for at, token in enumerate(tokens):
        if token.text != "(" or not at:
            continue
        if tokens[at - 1].kind == "word":
            out.append((tokens[at - 1].text, at))
        elif tokens[at - 1].text in (">", ")", "]"):
            out.append(("", at))
    return out


def _calls_unknown(tokens: Sequence[Token], program: Program) -> bool:
    return any(not _is_pure(name, program) for name, _ in _calls(tokens))


def _arguments_of_unknown(tokens: Sequence[Token], program: Program) -> set[int]:
    """Positions of bare names that an unknown function may take by reference."""
    out: set[int] = set()
    calls = {at: name for name, at in _calls(tokens)}
    inside: list[bool] = []  # of every open bracket: whether it belongs to such a call
    for at, token in enumerate(tokens):
        if token.text in ("(", "[", "{"):
            inside.append(at in calls and not _is_pure(calls[at], program))
        elif token.text in (")", "]", "}"):
            if inside:
                inside.pop()
        elif token.kind == "word" and inside and inside[-1]:
            after = tokens[at + 1].text if at + 1 < len(tokens) else ""
            if tokens[at - 1].text in ("(", ",") and after in (")", ",", "["):
                out.add(at)
    return out
