"""Sizes in floating-point arithmetic, where the function that was asked for has none.

A steep function of a length (`exp2(0.25 * Nk - 20000)`) is nothing at all at every size that a CPU
can run, and everything at those of a GPU: no deck sees it. Where a recipe says that no score or
weight depends on a size, an edit has no use for one as a float.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.cuir.nodes import (
    Attr,
    Binary,
    Call,
    Compare,
    Expr,
    Lambda,
    Module,
    Name,
    Num,
    Path,
    Select,
    Unary,
    children,
    walk,
    walk_expr,
)
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.cuir.scalar import FUNCTIONS
from engine.gates.sizes import SIZES, resolved, scalars_of
from engine.gates.unlike import Fault
from engine.spec import Recipe
from engine.transfer.binding import Binding
from engine.transfer.rewrite import free_names, stmt_exprs

_FLOATS = frozenset({"f32", "float", "f16", "bf16"})
_ELEMENTS = frozenset({"i", "j"})


def size_as_float(base: Module, module: Module, binding: Binding, recipe: Recipe) -> Fault | None:
    """The first float that `module` makes of a size, `base` does not, and the recipe lacks."""
    asked = [e for e in (recipe.score, recipe.weight, recipe.output_factor) if e is not None]
    free = {n for e in asked for n in free_names(e)} & set(SIZES)
    sizes = {s.field: _named(parse_expr(s.size, "size")) for s in binding.sizes}
    for index, field in enumerate(module.fields):
        for scalar in binding.scalars:
            if scalar.field == field.name and _named(scalar.value) - free:
                return _fault(("Args", index), scalar.value, _named(scalar.value) - free)
    known = {(path[0], node) for path, node, _ in _made(base, sizes)}
    for path, node, made in _made(module, sizes):
        if made - free and (path[0], node) not in known:
            return _fault(path, node, made - free)
    return None


def _fault(path: Path, expr: Expr, sizes: frozenset[str]) -> Fault:
    return Fault(
        path,
        f"`{print_expr(expr)}` makes a float of the size {min(sizes)}, and no score or weight of "
        "the spec depends on it",
    )


def _named(expr: Expr) -> frozenset[str]:
    return free_names(expr) & set(SIZES)


def _made(
    module: Module, sizes: Mapping[str, frozenset[str]]
) -> Iterator[tuple[Path, Expr, frozenset[str]]]:
    """Every operation on floats with an operand made of sizes alone, and which they are."""
    scalars = scalars_of(module)
    fields = {f.name for f in module.fields if f.type == "f32"}
    for path, stmt in walk(module):
        names = scalars.get(str(path[0]), {})
        for expr in stmt_exprs(stmt):
            for node, read in _in_expr(expr, names, fields, frozenset()):
                made = frozenset().union(*(sizes.get(f, frozenset()) for f in read))
                if made:
                    yield path, node, made


def _in_expr(
    expr: Expr, names: Mapping[str, Expr], fields: set[str], tiles: frozenset[str]
) -> Iterator[tuple[Expr, frozenset[str]]]:
    """Operations on floats with operands of whole numbers, and the fields that those read."""
    if isinstance(expr, Lambda):
        tiles |= set(expr.params) - _ELEMENTS
        names = {n: e for n, e in names.items() if n not in expr.params}

    floats: dict[str, bool] = {}

    def is_float(inner: Expr) -> bool:
        match inner:
            case Num(value):
                return isinstance(value, float)
            case Name(id):
                if id not in floats:
                    floats[id] = id in tiles or (id in names and is_float(names[id]))
                return floats[id]
            case Attr(_, field):
                return field in fields
            case Binary("/", _, _):
                return True
            case Binary(_, left, right) | Select(_, left, right):
                return is_float(left) or is_float(right)
            case Call(fn, args):
                gives = FUNCTIONS[fn].gives if fn in FUNCTIONS else ""
                return (
                    fn in _FLOATS
                    or gives == "float"
                    or (gives == "same" and any(map(is_float, args)))
                )
            case Unary("-", operand):
                return is_float(operand)
        return False

    operands: tuple[Expr, ...] = ()
    match expr:
        case Binary() | Call() if is_float(expr):
            operands = children(expr)
        case Compare(_, left, right) if is_float(left) or is_float(right):
            operands = (left, right)
    found = frozenset[str]()
    for operand in operands:
        whole = resolved(operand, names)
        if not is_float(operand) and free_names(whole) <= {"args"} | _ELEMENTS:
            found |= {n.field for n in walk_expr(whole) if isinstance(n, Attr)}
    if found:
        yield expr, found
    for child in children(expr):
        yield from _in_expr(child, names, fields, tiles)
