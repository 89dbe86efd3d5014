"""The lowerer's table: data that says how a CuIR op is written as C++.

`kernels/catalogue/lower.toml` holds it; docs/lower.md shows how to add an entry. It is read by the
lowerer alone: the lifter's patterns are another table, so that lifting a lowered text proves
something.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.cuir.nodes import Call, Expr, Index, Lambda, Name, Slice, Tuple
from engine.cuir.parser import parse_expr
from engine.errors import CuBridgeError, LowerError, Where
from engine.resources import kernels_dir

_HOLE = re.compile(r"\{([A-Za-z_]\w*)(\.\.\.)?(?::([a-z_0-9]+))?\}")
_ONE, _MANY = "hole__", "holes__"
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
    elements: tuple[str, ...] | None
    numbers: Mapping[str, str]  # what C++ converts a hole's number to

    def wants(self, operand: Expr, holes: Holes) -> str | None:
        """The number that C++ converts an operand to, where the table says one."""
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
class Symbol:
    """A name of CuIR's own: its C++ and its kind."""

    cxx: str
    kind: str


@dataclass(frozen=True, slots=True)
class ScalarFn:
    takes: tuple[str, ...]
    type: str


@dataclass(frozen=True, slots=True)
class Templates:
    """The whole table. `ops` is keyed by the op's name, or by `[]` for indexing."""

    names: Mapping[str, Symbol]
    scalars: Mapping[str, ScalarFn]
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
        """Every C++ identifier that the table writes: no variable may take such a name."""
        texts = (
            [s.cxx for s in self.names.values()] + list(self.scalars) + list(self.casts.values())
        )
        for group in self.ops.values():
            texts += [p.text for template in group for p in template.pieces]
        words = re.findall(r"(?<![\w.])[A-Za-z_]\w*", " ".join(texts))
        return frozenset(words)


# --- matching --------------------------------------------------------------------------------


def _match(pattern: Expr, expr: Expr, found: Holes) -> bool:
    if isinstance(pattern, Name) and pattern.id.startswith(_ONE):
        found[pattern.id[len(_ONE) :]] = expr
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
        if isinstance(pattern, Name) and pattern.id.startswith(_MANY):
            after = len(patterns) - at - 1
            taken = len(exprs) - at - after
            if taken < 0:
                return False
            middle = exprs[at : at + taken]
            if any(isinstance(e, Slice | Lambda) for e in middle):
                return False
            found[pattern.id[len(_MANY) :]] = middle
            rest = zip(patterns[at + 1 :], exprs[at + taken :], strict=True)
            return all(_match(p, e, found) for p, e in rest)
        if at >= len(exprs) or not _match(pattern, exprs[at], found):
            return False
    return len(patterns) == len(exprs)


# --- reading the table -----------------------------------------------------------------------


@lru_cache(maxsize=4)
def _read(path: Path, stamp: tuple[int, int]) -> Templates:
    return parse_templates(path.read_bytes(), str(path))


def default_templates() -> Templates:
    """The table that comes with CuBridge, read again when the file changes."""
    path = kernels_dir() / "catalogue" / "lower.toml"
    try:
        stat = path.stat()
    except OSError as error:
        raise LowerError(
            f"the lowerer's templates cannot be read: {error.strerror}",
            where=Where(str(path)),
            fix="install CuBridge again, or restore the file",
        ) from None
    return _read(path, (stat.st_mtime_ns, stat.st_size))


def parse_templates(data: bytes, file: str) -> Templates:
    """The table in TOML bytes. Raises `LowerError` that names the entry."""
    return _Reader(file).templates(data)


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, entry: str, message: str) -> LowerError:
        return LowerError(f"{entry}: {message}", where=Where(self.file), fix="see docs/lower.md")

    def templates(self, data: bytes) -> Templates:
        try:
            table = tomllib.loads(data.decode("utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise self.fail("templates", f"not TOML: {error}") from None
        extra = set(table) - {"version", "names", "scalar", "casts", "op"}
        if table.get("version") != 1 or extra:
            raise self.fail("templates", f"unknown or wrong key: {', '.join(extra) or 'version'}")
        ops: dict[str, list[Template]] = {}
        for entry in table.get("op", []):
            template = self.template(entry)
            head = template.cuir
            key = head.fn if isinstance(head, Call) else "[]"
            if any(template.cuir == other.cuir for other in ops.get(key, [])):
                raise self.fail(entry["cuir"], "the op stands twice")
            ops.setdefault(key, []).append(template)
        casts = table.get("casts", {})
        if not all(isinstance(value, str) for value in casts.values()):
            raise self.fail("casts", 'expected name = "C++ type"')
        return Templates(
            {name: self.symbol(name, value) for name, value in table.get("names", {}).items()},
            {name: self.scalar(name, value) for name, value in table.get("scalar", {}).items()},
            casts,
            {key: tuple(group) for key, group in ops.items()},
        )

    def symbol(self, name: str, value: Any) -> Symbol:
        match value:
            case {"cxx": str(cxx), "type": str(kind)} if len(value) == 2:
                return Symbol(cxx, kind)
        raise self.fail(name, 'expected { cxx = "...", type = "..." }')

    def scalar(self, name: str, value: Any) -> ScalarFn:
        match value:
            case {"takes": [*takes], "type": str(kind)} if len(value) == 2:
                return ScalarFn(tuple(map(str, takes)), kind)
        raise self.fail(name, 'expected { takes = ["...", ...], type = "..." }')

    def template(self, entry: Any) -> Template:
        match entry:
            case {"cuir": str(cuir), "type": str(kind)} if set(entry) <= {
                "cuir",
                "cxx",
                "type",
                "elements",
            }:
                pass
            case _:
                raise self.fail(str(entry), "an op is cuir, type, and maybe cxx and elements")
        kinds: dict[str, str] = {}

        def name(found: re.Match[str]) -> str:
            hole, many, wanted = found.groups()
            if wanted is not None:
                kinds[hole] = wanted
            return (_MANY if many else _ONE) + hole

        try:
            tree = parse_expr(_HOLE.sub(name, cuir), self.file)
        except CuBridgeError as error:
            raise self.fail(cuir, f"its CuIR does not parse: {error.message}") from None
        if not isinstance(tree, Call | Index):
            raise self.fail(cuir, "an op is a call or an index")
        cxx = entry.get("cxx")
        pieces = self.pieces(cuir, cxx) if cxx is not None else self.plain(cuir, tree)
        inside = {hole for _, hole, _ in _holes(cuir)}
        unknown = {p.hole for p in pieces if p.hole} - inside - {"stream"}
        missing = inside - {p.hole for p in pieces}
        if unknown or missing:
            names = ", ".join(sorted(unknown | missing))
            raise self.fail(cuir, f"the holes of CuIR and C++ are not the same: {names}")
        elements = entry.get("elements")
        numbers = {hole: wanted for hole, wanted in kinds.items() if wanted in _NUMBERS}
        kinds = {hole: wanted for hole, wanted in kinds.items() if wanted not in _NUMBERS}
        given = None if elements is None else tuple(elements)
        return Template(tree, pieces, kind, kinds, given, numbers)

    def plain(self, cuir: str, tree: Call | Index) -> tuple[Piece, ...]:
        """`f[A](x)` as `f<A>(x)`."""
        if not isinstance(tree, Call) or tree.kwargs:
            raise self.fail(cuir, "only a call without keywords is written as it is")
        cxx = cuir.replace("[", "<", 1).replace("](", ">(", 1) if tree.params else cuir
        return self.pieces(cuir, re.sub(r":[a-z_0-9]+\}", "}", cxx))

    def pieces(self, entry: str, cxx: Any) -> tuple[Piece, ...]:
        if not isinstance(cxx, str) or "\n" in cxx:
            raise self.fail(entry, "cxx is one line of text")
        out: list[Piece] = []
        at = 0
        for found in _HOLE.finditer(cxx):
            before, after = cxx[: found.start()], cxx[found.end() :]
            out.append(Piece(before[at:]))
            if before.count("<") > before.count(">") and ">" in after:
                place = "template"
            else:
                place = "atom" if after[:1] in (".", "(", "[") and after else "operand"
            out.append(Piece("", found.group(1), bool(found.group(2)), place))
            at = found.end()
        out.append(Piece(cxx[at:]))
        return tuple(p for p in out if p.text or p.hole)


def _holes(text: str) -> Iterable[tuple[str, str, str]]:
    for found in _HOLE.finditer(text):
        yield found.group(0), found.group(1), found.group(2) or ""
