"""The lifter's catalogue: what a C++ spelling means in CuIR.

The declarations of `engine.cuir.ops` hold it. A pattern is C++ with holes and is parsed by the same
parser as the kernels, so matching is on trees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from engine.cuir.nodes import (
    Call,
    Expr,
    Index,
    Name,
    Num,
    Str,
    Tuple,
    rebuild,
    walk_expr,
)  # fmt: skip
from engine.cuir.ops import SPELLINGS
from engine.cuir.ops.spelling import MANY, ONE, WORDS, Spelling, as_names, both, hole_of
from engine.cuir.parser import parse_expr
from engine.cuir.static.conversions import NUMBERS
from engine.errors import CuBridgeError
from engine.lift.cpp import ignored_words as ignored
from engine.lift.cpp.syntax import Node, NotAnExpression, parse_expression
from engine.lift.cpp.tokens import Tokens

KINDS = frozenset({
    "none", "i32", "u32", "i64", "u64", "f32", "bool", "same", "tile", "region", "shared", "stages",
    "barriers", "barrier", "words", "word", "layout", "type", "coordinates", "tensor",
    "tensor_map", "row_map", "status", "kernel", "stream", "lambda",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Symbol:
    """A type name or constant: its CuIR name and its kind."""

    cuir: Expr
    kind: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """One entry: a C++ tree with holes, the CuIR tree with the same holes, the result's kind."""

    cxx: str
    tree: Node
    cuir: Expr
    type: str
    constraints: Mapping[str, str]  # hole -> kind
    elements: str = ""  # the hole whose items' elements the op's lambda takes first
    condition: bool = False  # whether the lambda is a predicate


@dataclass(frozen=True, slots=True)
class AsmPattern:
    """One PTX instruction as words, where a hole stands for a literal or an operand."""

    words: tuple[str, ...]
    cuir: Expr
    constraints: Mapping[str, str]  # hole -> kind of the operand


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All entries. `by_head` finds the patterns that can match a node; see `head`."""

    types: Mapping[str, Symbol]
    constants: Mapping[str, Symbol]
    by_head: Mapping[str, tuple[Pattern, ...]]
    asm: tuple[AsmPattern, ...]
    templates: frozenset[str]
    names: frozenset[str]  # every C++ name that an entry gives a meaning, or says to have one

    def candidates(self, node: Node, only_general: bool = False) -> tuple[Pattern, ...]:
        """The patterns that may match `node`.

        `only_general`: the source gives the name in `node` a meaning of its own, so only patterns
        that begin with a hole may apply.
        """
        general = self.by_head.get(_shape(node), ())
        if only_general:
            # `{v:view}.tile(...)` has a head, yet its meaning hangs on the variable.
            named = self.by_head.get(head(node), ()) if head(node).startswith("call member") else ()
            return (*named, *general)
        return (*self.by_head.get(head(node), ()), *general)


def head(node: Node) -> str:
    """What a pattern must share with a node before trees are compared."""
    match node.kind:
        case "call":
            return f"call {_callee(node.kids[0])}"
        case "index":
            return f"index {_callee(node.kids[0])}"
        case "template" | "name":
            return f"{node.kind} {node.text}"
        case "member":
            return f"member {node.text}"
    return node.kind


def _callee(node: Node) -> str:
    match node.kind:
        case "name" if node.text.startswith(ONE):
            return "*"
        case "name" | "template":
            return f"{node.kind} {node.text}"
        case "member":
            return f"member {node.text}"
    return "*"


def _shape(node: Node) -> str:
    return f"{node.kind} *"


def match(pattern: Node, node: Node, holes: dict[str, Node | tuple[Node, ...]]) -> bool:
    """Whether `node` is an instance of `pattern`; fills `holes`."""
    if pattern.kind == "name" and pattern.text.startswith(ONE):
        holes[pattern.text[len(ONE) :]] = node
        return True
    if pattern.kind != node.kind or pattern.text != node.text:
        return False
    return _match_list(pattern.kids, node.kids, holes)


def _match_list(
    patterns: tuple[Node, ...], nodes: tuple[Node, ...], holes: dict[str, Node | tuple[Node, ...]]
) -> bool:
    for at, pattern in enumerate(patterns):
        if pattern.kind == "name" and pattern.text.startswith(MANY):
            after = len(patterns) - at - 1
            taken = len(nodes) - at - after
            if taken < 0:
                return False
            holes[pattern.text[len(MANY) :]] = nodes[at : at + taken]
            rest = nodes[at + taken :]
            return all(match(p, n, holes) for p, n in zip(patterns[at + 1 :], rest, strict=True))
        if at >= len(nodes) or not match(pattern, nodes[at], holes):
            return False
    return len(patterns) == len(nodes)


def fill(template: Expr, holes: Mapping[str, Expr | tuple[Expr, ...]]) -> Expr:
    """`template` with its holes replaced; always a new object at the top."""

    def many(items: tuple[Expr, ...]) -> tuple[Expr, ...]:
        out: list[Expr] = []
        for item in items:
            if isinstance(item, Name) and item.id.startswith(MANY):
                value = holes[item.id[len(MANY) :]]
                assert isinstance(value, tuple)
                out += value
            else:
                out.append(one(item))
        return tuple(out)

    def one(expr: Expr) -> Expr:
        match expr:
            case Name(id) if id.startswith(ONE):
                value = holes[id[len(ONE) :]]
                assert not isinstance(value, tuple)
                return value
            case Call(fn, args, kwargs, params):
                named = tuple((key, one(value)) for key, value in kwargs)
                return Call(fn, many(args), named, many(params))
            case Index(base, index):
                return Index(one(base), many(index))
            case Tuple(items):
                return Tuple(many(items))
            case Name() | Num() | Str():
                return replace(expr)
        return rebuild(expr, one)

    return one(template)


# --- made of the declarations -------------------------------------------------------------------


@cache
def default_catalogue() -> Catalogue:
    """The catalogue of all that is declared."""
    return catalogue(SPELLINGS)


def catalogue(spellings: Iterable[Spelling]) -> Catalogue:
    """The catalogue of these spellings. Raises `ValueError` that names the text."""
    spellings = tuple(spellings)
    symbols = [
        (cxx, Symbol(_cuir(word.name, word.name), word.kind)) for word in WORDS for cxx in word.lift
    ]
    types = {cxx: symbol for cxx, symbol in symbols if symbol.kind in ("type", "layout")}
    constants = {cxx: symbol for cxx, symbol in symbols if cxx not in types}
    texts = [(spelling, text) for spelling in spellings for text in spelling.lift]
    templates = set(types).union(*(re.findall(r"((?:\w|::)+)<", both(t)[0]) for _, t in texts))
    by_head: dict[str, list[Pattern]] = {}
    for spelling, text in texts:
        pattern = _pattern(spelling, text, templates)
        bucket = by_head.setdefault(head(pattern.tree), [])
        if any(pattern.cxx == other.cxx for other in bucket):
            raise ValueError(f"{pattern.cxx}: the pattern stands twice")
        bucket.append(pattern)
    trees = [pattern.tree for bucket in by_head.values() for pattern in bucket]
    return Catalogue(
        types,
        constants,
        {key: tuple(bucket) for key, bucket in by_head.items()},
        tuple(_instruction(text) for spelling in spellings for text in spelling.ptx),
        frozenset(templates),
        ignored.FUNCTIONS.union(types, constants, *map(_names, trees)),
    )


def _cuir(entry: str, text: str) -> Expr:
    try:
        return parse_expr(as_names(text)[0], entry)
    except CuBridgeError as error:
        raise ValueError(f"{entry}: its CuIR does not parse: {error.message}") from None


def _pattern(spelling: Spelling, entry: str, templates: set[str]) -> Pattern:
    cxx, written = both(entry)
    text, constraints = as_names(cxx)
    if unknown := set(constraints.values()) - KINDS - {"view"}:
        raise ValueError(f"{cxx}: unknown kind {', '.join(unknown)}")
    try:
        tree = parse_expression(Tokens(text.encode()).all, templates)
    except NotAnExpression as error:
        raise ValueError(f"{cxx}: its C++ does not parse: {error}") from None
    if written is None:
        written = cxx.replace("<", "[", 1).replace(">(", "](", 1) if "<" in cxx else cxx
    cuir = _cuir(cxx, written)
    known = set(_holes_of_node(tree))
    if missing := set(_holes_of_expr(cuir)) - known:
        raise ValueError(f"{cxx}: the CuIR has holes that the C++ has not: {', '.join(missing)}")
    base, _, of = spelling.kind.partition(":")
    plain = ("",) if base not in ("tile", "region", "view", "element") else ()
    if base not in KINDS | {"view", "element"} or not (
        of in (*plain, *NUMBERS) or (of[:1] == "{" and of[1:-1] in known)
    ):
        raise ValueError(f"{cxx}: unknown kind {spelling.kind}")
    return Pattern(
        cxx, tree, cuir, spelling.kind, constraints, spelling.elements, spelling.condition
    )


def _instruction(entry: str) -> AsmPattern:
    ptx, written = both(entry)
    text, kinds = as_names(ptx)
    words, cuir = asm_words(text), _cuir(ptx, written or "")
    missing = {*_holes_of_expr(cuir)} - {hole_of(word) for word in words}
    if missing or not isinstance(cuir, Call):
        raise ValueError(f"{ptx}: the CuIR is a call with the holes of the instruction")
    return AsmPattern(words, cuir, kinds)


def _names(tree: Node) -> set[str]:
    """The names in a pattern's C++ that are no holes; of `std::is_same_v` also the end."""
    own = tree.text if tree.kind in ("name", "template") else ""
    found = set() if hole_of(own) else {own, own.rpartition("::")[2]}
    return (found - {""}).union(*map(_names, tree.kids))


def asm_words(text: str) -> tuple[str, ...]:
    """One instruction as words: blanks gone, commas and the last semicolon no words."""
    return tuple(re.findall(r"[\[\]]|[^\s,;\[\]]+", text))


def _holes_of_expr(expr: Expr) -> list[str]:
    return [hole for n in walk_expr(expr) if isinstance(n, Name) and (hole := hole_of(n.id))]


def _holes_of_node(node: Node) -> list[str]:
    own = [hole] if (hole := hole_of(node.text)) else []
    return own + [hole for kid in node.kids for hole in _holes_of_node(kid)]
