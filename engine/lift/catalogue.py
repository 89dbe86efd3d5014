"""The lifter's catalogue: data that says what a C++ spelling means in CuIR.

`kernels/catalogue/lift.toml` holds it; `docs/lift.md` shows how to add an entry. A pattern is C++
with holes and is parsed by the same parser as the kernels, so matching is on trees.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.cuir.nodes import (
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Lambda,
    Name,
    Num,
    Select,
    Slice,
    Str,
    Tuple,
    Unary,
    walk_expr,
)  # fmt: skip
from engine.cuir.parser import parse_expr
from engine.errors import CuBridgeError, LiftError, Where
from engine.lift.syntax import Node, NotAnExpression, parse_expression
from engine.lift.tokens import Tokens
from engine.resources import kernels_dir

# In the order of C++'s usual conversions. No variable is unsigned: `u32` and `u64` are what C++
# makes of block numbers and sizes before they are stored.
NUMBERS = ("bool", "i32", "u32", "i64", "u64", "f32")
UNSIGNED = frozenset({"u32", "u64"})
KINDS = frozenset({
    "none", "i32", "u32", "i64", "u64", "f32", "bool", "same", "tile", "region", "shared", "stages",
    "barriers", "barrier", "words", "word", "layout", "type", "coordinates", "tensor",
    "tensor_map", "row_map", "status", "kernel", "stream", "lambda",
})  # fmt: skip
_HOLE = re.compile(r"\{([a-z_A-Z][a-zA-Z0-9]*)(\.\.\.)?(?::([a-z_0-9]+))?\}")
_OP_KEYS = frozenset({"cxx", "cuir", "type", "lambda"})
_PREFIX, _LIST_PREFIX = "hole__", "holes__"


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
    # Of an op with a lambda: the hole whose items are its values, and the kind of its result.
    lambda_values: str = ""
    lambda_returns: str = "any"


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
    pragmas: frozenset[str]
    attributes: frozenset[str]
    qualifiers: frozenset[str]
    headers: frozenset[str]  # of the system, as `#include <...>` names them

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
        case "name" if node.text.startswith(_PREFIX):
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
    if pattern.kind == "name" and pattern.text.startswith(_PREFIX):
        holes[pattern.text[len(_PREFIX) :]] = node
        return True
    if pattern.kind != node.kind or pattern.text != node.text:
        return False
    return _match_list(pattern.kids, node.kids, holes)


def _match_list(
    patterns: tuple[Node, ...], nodes: tuple[Node, ...], holes: dict[str, Node | tuple[Node, ...]]
) -> bool:
    for at, pattern in enumerate(patterns):
        if pattern.kind == "name" and pattern.text.startswith(_LIST_PREFIX):
            after = len(patterns) - at - 1
            taken = len(nodes) - at - after
            if taken < 0:
                return False
            holes[pattern.text[len(_LIST_PREFIX) :]] = nodes[at : at + taken]
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
            if isinstance(item, Name) and item.id.startswith(_LIST_PREFIX):
                value = holes[item.id[len(_LIST_PREFIX) :]]
                assert isinstance(value, tuple)
                out += value
            else:
                out.append(one(item))
        return tuple(out)

    def one(expr: Expr) -> Expr:
        match expr:
            case Name(id):
                if id.startswith(_PREFIX):
                    value = holes[id[len(_PREFIX) :]]
                    assert not isinstance(value, tuple)
                    return value
                return Name(id)
            case Num(value):
                return Num(value)
            case Str(value):
                return Str(value)
            case Attr(base, field):
                return Attr(one(base), field)
            case Call(fn, args, kwargs, params):
                named = tuple((key, one(value)) for key, value in kwargs)
                return Call(fn, many(args), named, many(params))
            case Slice(start):
                return Slice(one(start))
            case Index(base, index):
                return Index(one(base), many(index))
            case Unary(op, operand):
                return Unary(op, one(operand))
            case Binary(op, left, right):
                return Binary(op, one(left), one(right))
            case Compare(op, left, right):
                return Compare(op, one(left), one(right))
            case Bool(op, left, right):
                return Bool(op, one(left), one(right))
            case Select(cond, then, other):
                return Select(one(cond), one(then), one(other))
            case Lambda(params, body):
                return Lambda(params, one(body))
            case Tuple(items):
                return Tuple(many(items))
        raise TypeError(f"not a CuIR expression: {expr!r}")

    return one(template)


# --- reading the file --------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _read(path: Path, stamp: tuple[int, int]) -> Catalogue:
    return parse_catalogue(path.read_bytes(), str(path))


def default_catalogue() -> Catalogue:
    """The catalogue that comes with CuBridge, read again when the file changes."""
    path = kernels_dir() / "catalogue" / "lift.toml"
    try:
        stat = path.stat()
    except OSError as error:
        raise LiftError(
            f"the lifter's catalogue cannot be read: {error.strerror}",
            where=Where(str(path)),
            fix="install CuBridge again, or restore the file",
        ) from None
    return _read(path, (stat.st_mtime_ns, stat.st_size))


def parse_catalogue(data: bytes, file: str) -> Catalogue:
    """The catalogue in TOML bytes. Raises `LiftError` that names the entry."""
    return _Reader(file).catalogue(data)


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, entry: str, message: str) -> LiftError:
        return LiftError(f"{entry}: {message}", where=Where(self.file), fix="see docs/lift.md")

    def catalogue(self, data: bytes) -> Catalogue:
        try:
            table = tomllib.loads(data.decode("utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise self.fail("catalogue", f"not TOML: {error}") from None
        known = {"version", "types", "constants", "scalar", "op", "asm", "ignored"}
        if table.get("version") != 1 or set(table) - known:
            extra = ", ".join(sorted(set(table) - known)) or "version"
            raise self.fail("catalogue", f"unknown or wrong key: {extra}")
        types = {name: self.symbol(name, value) for name, value in table.get("types", {}).items()}
        constants = {n: self.symbol(n, value) for n, value in table.get("constants", {}).items()}
        entries = [*self.scalars(table.get("scalar", {})), *table.get("op", [])]
        templates = set(types).union(*(self.template_names(e) for e in entries))
        patterns = [self.pattern(entry, templates) for entry in entries]
        by_head: dict[str, list[Pattern]] = {}
        for pattern in patterns:
            by_head.setdefault(head(pattern.tree), []).append(pattern)
        for bucket in by_head.values():
            seen: set[str] = set()
            for pattern in bucket:
                if pattern.cxx in seen:
                    raise self.fail(pattern.cxx, "the pattern stands twice")
                seen.add(pattern.cxx)
        ignored = table.get("ignored", {})
        return Catalogue(
            types,
            constants,
            {key: tuple(bucket) for key, bucket in by_head.items()},
            tuple(self.asm(entry) for entry in table.get("asm", [])),
            frozenset(templates),
            frozenset(ignored.get("functions", [])).union(
                types, constants, *(_names(p.tree) for p in patterns)
            ),
            *(
                frozenset(ignored.get(k, []))
                for k in ("pragmas", "attributes", "qualifiers", "headers")
            ),
        )

    def symbol(self, name: str, value: Any) -> Symbol:
        match value:
            case {"cuir": str(cuir), "kind": str(kind)} if kind in KINDS and len(value) == 2:
                return Symbol(self.cuir(name, cuir), kind)
        raise self.fail(name, 'expected { cuir = "...", kind = "..." }')

    def cuir(self, entry: str, text: str) -> Expr:
        try:
            return parse_expr(text, self.file)
        except CuBridgeError as error:
            raise self.fail(entry, f"its CuIR does not parse: {error.message}") from None

    def scalars(self, table: Mapping[str, Any]) -> list[dict[str, str]]:
        out = []
        for name, value in table.items():
            match value:
                case {"arity": int(arity), "type": str(kind)}:
                    of = f":{kind}" if kind != "same" else ""
                    holes = ", ".join(f"{{x{i}{of}}}" for i in range(arity))
                    out.append({"cxx": f"{name}({holes})", "type": kind})
                case _:
                    raise self.fail(name, 'expected { arity = N, type = "..." }')
        return out

    def template_names(self, entry: Any) -> list[str]:
        text = entry.get("cxx", "") if isinstance(entry, dict) else ""
        return re.findall(r"((?:\w|::)+)<", text) if isinstance(text, str) else []

    def holes(self, entry: str, text: str) -> tuple[str, dict[str, str]]:
        """The text with holes as identifiers, and the kinds that holes are bound to."""
        kinds: dict[str, str] = {}

        def name(found: re.Match[str]) -> str:
            hole, many, kind = found.groups()
            if kind is not None:
                if kind not in KINDS | {"view", "lambda"}:
                    raise self.fail(entry, f"unknown kind {kind}")
                kinds[hole] = kind
            return (_LIST_PREFIX if many else _PREFIX) + hole

        return _HOLE.sub(name, text), kinds

    def pattern(self, entry: Any, templates: set[str]) -> Pattern:
        match entry:
            case {"cxx": str(cxx), "type": str(kind)} if set(entry) <= _OP_KEYS:
                pass
            case _:
                raise self.fail(str(entry), f"an op has the keys {', '.join(sorted(_OP_KEYS))}")
        text, constraints = self.holes(cxx, cxx)
        try:
            tree = parse_expression(Tokens(text.encode()).all, templates)
        except NotAnExpression as error:
            raise self.fail(cxx, f"its C++ does not parse: {error}") from None
        written = entry.get("cuir")
        if written is None:
            written = cxx.replace("<", "[", 1).replace(">(", "](", 1) if "<" in cxx else cxx
        cuir = self.cuir(cxx, self.holes(cxx, written)[0])
        missing = set(_holes_of_expr(cuir)) - set(_holes_of_node(tree))
        if missing:
            raise self.fail(cxx, f"the CuIR has holes that the C++ has not: {', '.join(missing)}")
        base = kind.split(":")[0]
        of = kind.partition(":")[2]
        plain = ("",) if base not in ("tile", "region", "view", "element") else ()
        known = of in (*plain, *NUMBERS) or (of[:1] == "{" and of[1:-1] in _holes_of_node(tree))
        if base not in KINDS | {"view", "element"} or not known:
            raise self.fail(cxx, f"unknown kind {kind}")
        values, returns = "", "any"
        match entry.get("lambda"):
            case None:
                if "lambda" in constraints.values():
                    raise self.fail(cxx, "an op with a lambda says what it takes: see `lambda`")
            case {"values": str(values), "returns": "any" | "bool" as returns}:
                pass
            case _:
                raise self.fail(cxx, 'lambda is { values = "HOLE", returns = "any" or "bool" }')
        return Pattern(cxx, tree, cuir, kind, constraints, values, returns)

    def asm(self, entry: Any) -> AsmPattern:
        match entry:
            case {"ptx": str(ptx), "cuir": str(cuir)} if len(entry) == 2:
                text, kinds = self.holes(ptx, ptx)
                written = self.cuir(ptx, self.holes(ptx, cuir)[0])
                words = asm_words(text)
                missing = {*_holes_of_expr(written)} - {asm_hole(word) for word in words}
                if missing or not isinstance(written, Call):
                    raise self.fail(ptx, "the CuIR is a call with the holes of the instruction")
                return AsmPattern(words, written, kinds)
        raise self.fail(str(entry), "an asm entry is ptx and cuir")


def _names(tree: Node) -> set[str]:
    """The names in a pattern's C++ that are no holes; of `std::is_same_v` also the end."""
    own = tree.text if tree.kind in ("name", "template") else ""
    found = {own, own.rpartition("::")[2]} if not own.startswith((_PREFIX, _LIST_PREFIX)) else set()
    return (found - {""}).union(*map(_names, tree.kids))


def asm_words(text: str) -> tuple[str, ...]:
    """One instruction as words: blanks gone, commas and the last semicolon no words."""
    return tuple(re.findall(r"[\[\]]|[^\s,;\[\]]+", text))


def asm_hole(word: str) -> str | None:
    return word[len(_PREFIX) :] if word.startswith(_PREFIX) else None


def _holes_of_expr(expr: Expr) -> list[str]:
    return [
        n.id.split("__", 1)[1]
        for n in walk_expr(expr)
        if isinstance(n, Name) and n.id.startswith((_PREFIX, _LIST_PREFIX))
    ]


def _holes_of_node(node: Node) -> list[str]:
    own = [node.text.split("__", 1)[1]] if node.text.startswith((_PREFIX, _LIST_PREFIX)) else []
    return own + [hole for kid in node.kids for hole in _holes_of_node(kid)]
