"""The lowerer's templates: how CuIR is written as C++.

The declarations of `engine.cuir.ops` hold them, beside the lifter's patterns and apart from them,
so that lifting a lowered text proves something.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from engine.cuir.functions import FUNCTIONS, ScalarFunction
from engine.cuir.nodes import Call, Expr, Index, Lambda, Name, Slice, Tuple
from engine.cuir.ops import OPS
from engine.cuir.ops.spelling import (
    INDEXING,
    MANY,
    ONE,
    WORDS,
    Spelling,
    Word,
    as_names,
    both,
    holes,
)
from engine.cuir.parser import parse_expr
from engine.errors import CuBridgeError

_NUMBERS = frozenset({"bool", "i32", "i64", "f32"})

Holes = dict[str, Expr | tuple[Expr, ...]]
HasKind = Callable[[Expr, str], bool]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a template's C++: plain text, or a hole and what its place asks for.

    `place` is "atom" (before `.`, `(` or `[`), "template" (inside `<...>`) or "operand".
    """

    text: str
    hole: str = ""
    many: bool = False
    place: str = "operand"


@dataclass(frozen=True, slots=True)
class Template:
    """One op: the CuIR with holes, its C++, the kind of its value."""

    cuir: Expr
    pieces: tuple[Piece, ...]
    type: str
    kinds: Mapping[str, str]  # of a hole, where the entry is for values of that kind alone
    elements: tuple[str, ...]  # holes whose elements the op's lambda takes before coordinates
    numbers: Mapping[str, str]  # what C++ converts a hole's number to

    def wants(self, operand: Expr, holes: Holes) -> str | None:
        """The number that C++ converts an operand to, where the template says one."""
        hole = next((h for h, value in holes.items() if value is operand), "")
        return self.numbers.get(hole)

    def holes(self, expr: Expr, has_kind: HasKind) -> Holes | None:
        """What the holes stand for when `expr` is an instance of this op."""
        found: Holes = {}
        if not _match(self.cuir, expr, found):
            return None
        for hole, kind in self.kinds.items():
            value = found[hole]
            assert not isinstance(value, tuple)
            if not has_kind(value, kind):
                return None
        return found


@dataclass(frozen=True, slots=True)
class Templates:
    """All of them. `ops` is keyed by the op's name, or by `[]` for indexing."""

    names: Mapping[str, Word]
    scalars: Mapping[str, ScalarFunction]
    casts: Mapping[str, str]
    ops: Mapping[str, tuple[Template, ...]]

    def find(self, expr: Call | Index, has_kind: HasKind) -> tuple[Template, Holes] | None:
        key = expr.fn if isinstance(expr, Call) else "[]"
        for template in self.ops.get(key, ()):
            found = template.holes(expr, has_kind)
            if found is not None:
                return template, found
        return None

    def cxx_words(self) -> frozenset[str]:
        """Every C++ identifier that they write: no variable may take such a name."""
        texts = [w.lower or "" for w in self.names.values()]
        texts += [*self.scalars, *self.casts.values()]
        for group in self.ops.values():
            texts += [p.text for template in group for p in template.pieces]
        words = re.findall(r"(?<![\w.])[A-Za-z_]\w*", " ".join(texts))
        return frozenset(words)


# --- matching --------------------------------------------------------------------------------


def _match(pattern: Expr, expr: Expr, found: Holes) -> bool:
    if isinstance(pattern, Name) and pattern.id.startswith(ONE):
        found[pattern.id[len(ONE) :]] = expr
        return True
    match pattern, expr:
        case Call(), Call():
            named = [key for key, _ in pattern.kwargs] == [key for key, _ in expr.kwargs]
            return (
                pattern.fn == expr.fn
                and named
                and _match_list(pattern.params, expr.params, found)
                and _match_list(pattern.args, expr.args, found)
                and all(
                    _match(p, e, found)
                    for (_, p), (_, e) in zip(pattern.kwargs, expr.kwargs, strict=True)
                )
            )
        case Index(), Index():
            return _match(pattern.base, expr.base, found) and _match_list(
                pattern.index, expr.index, found
            )
        case Slice(start), Slice(other):
            return _match(start, other, found)
        case Tuple(items), Tuple(others):
            return _match_list(items, others, found)
    return pattern == expr


def _match_list(patterns: tuple[Expr, ...], exprs: tuple[Expr, ...], found: Holes) -> bool:
    for at, pattern in enumerate(patterns):
        if isinstance(pattern, Name) and pattern.id.startswith(MANY):
            after = len(patterns) - at - 1
            taken = len(exprs) - at - after
            if taken < 0:
                return False
            middle = exprs[at : at + taken]
            if any(isinstance(e, Slice | Lambda) for e in middle):
                return False
            found[pattern.id[len(MANY) :]] = middle
            rest = zip(patterns[at + 1 :], exprs[at + taken :], strict=True)
            return all(_match(p, e, found) for p, e in rest)
        if at >= len(exprs) or not _match(pattern, exprs[at], found):
            return False
    return len(patterns) == len(exprs)


# --- made of the declarations -------------------------------------------------------------------


@cache
def default_templates() -> Templates:
    """The templates of all that is declared. `rcp` has none: `legal` writes it as a division."""
    words = {word.name: word for word in WORDS if word.lower is not None}
    casts = {
        word.name: word.lower for word in words.values()
        if word.lower is not None and word.name in _NUMBERS
    }  # fmt: skip
    scalars = {name: fn for name, fn in FUNCTIONS.items() if name != "rcp"}
    return Templates(words, scalars, casts, by_op((*(s.spelling for s in OPS.values()), *INDEXING)))


def by_op(spellings: Iterable[Spelling]) -> Mapping[str, tuple[Template, ...]]:
    """The templates of these spellings. Raises `ValueError` that names the text."""
    ops: dict[str, list[Template]] = {}
    for spelling in spellings:
        for text in spelling.lower:
            made = template(spelling, text)
            group = ops.setdefault(made.cuir.fn if isinstance(made.cuir, Call) else "[]", [])
            if any(made.cuir == other.cuir for other in group):
                raise ValueError(f"{text}: the op stands twice")
            group.append(made)
    return {key: tuple(group) for key, group in ops.items()}


def template(spelling: Spelling, text: str) -> Template:
    """One text of `lower`. Raises `ValueError` that names it."""
    cuir, cxx = both(text)
    named, kinds = as_names(cuir)
    try:
        tree = parse_expr(named, text)
    except CuBridgeError as error:
        raise ValueError(f"{text}: its CuIR does not parse: {error.message}") from None
    if not isinstance(tree, Call | Index):
        raise ValueError(f"{text}: an op is a call or an index")
    pieces = _pieces(cxx if cxx is not None else _plain(cuir, tree))
    inside, written = {m[1] for m in holes(cuir)}, {p.hole for p in pieces if p.hole}
    if wrong := (written - inside - {"stream"}) | (inside - written):
        raise ValueError(
            f"{text}: the holes of CuIR and C++ are not the same: {', '.join(sorted(wrong))}"
        )
    numbers = {hole: kind for hole, kind in kinds.items() if kind in _NUMBERS}
    others = {hole: kind for hole, kind in kinds.items() if kind not in _NUMBERS}
    elements = (spelling.elements,) if spelling.elements in inside else ()
    return Template(tree, pieces, spelling.kind, others, elements, numbers)


def _plain(cuir: str, tree: Call | Index) -> str:
    """`f[A](x)` as `f<A>(x)`."""
    if not isinstance(tree, Call) or tree.kwargs:
        raise ValueError(f"{cuir}: only a call without keywords is written as it is")
    return cuir.replace("[", "<", 1).replace("](", ">(", 1) if tree.params else cuir


def _pieces(cxx: str) -> tuple[Piece, ...]:
    out: list[Piece] = []
    at = 0
    for found in holes(cxx):
        before, after = cxx[: found.start()], cxx[found.end() :]
        out.append(Piece(before[at:]))
        if before.count("<") > before.count(">") and ">" in after:
            place = "template"
        else:
            place = "atom" if after[:1] in (".", "(", "[") and after else "operand"
        out.append(Piece("", found[1], bool(found[2]), place))
        at = found.end()
    out.append(Piece(cxx[at:]))
    return tuple(p for p in out if p.text or p.hole)
