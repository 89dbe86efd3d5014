"""Sizes and places in floating-point arithmetic, where the function that was asked for has none.

A steep function of a length (`exp2(0.25 * Nk - 20000)`), or of a row or key, is nothing at all at
every size that a CPU can run, and everything at those of a GPU: no deck sees it. Where a recipe
says that nothing which it computes depends on one, an edit has no use for it as a float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from engine.cuir.nodes import (
    Attr,
    Binary,
    Call,
    Compare,
    Expr,
    Lambda,
    Module,
    Path,
    Select,
    children,
    walk,
    walk_expr,
)
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.gates.kinds import WHOLE, Kinds, coordinates
from engine.gates.sizes import SIZES, resolved, scalars_of
from engine.gates.unlike import Fault
from engine.spec import Recipe
from engine.transfer.binding import Binding
from engine.transfer.rewrite import free_names, stmt_exprs

IsFloat = Callable[[Expr], bool]


def size_as_float(base: Module, module: Module, binding: Binding, recipe: Recipe) -> Fault | None:
    """The first float that `module` makes of a size, `base` does not, and the recipe lacks."""
    free = _asked(recipe)
    sizes = {s.field: _named(parse_expr(s.size, "size")) for s in binding.sizes}
    for index, there in enumerate(module.fields):
        for scalar in binding.scalars:
            if scalar.field == there.name and _named(scalar.value) - free:
                return _fault(("Args", index), scalar.value, _named(scalar.value) - free)
    known = {(path[0], node) for path, node, _ in _made(base, sizes)}
    for path, node, made in _made(module, sizes):
        if made - free and (path[0], node) not in known:
            return _fault(path, node, made - free)
    return None


def _fault(path: Path, expr: Expr, sizes: frozenset[str]) -> Fault:
    return Fault(
        path,
        f"`{print_expr(expr)}` makes a float of the size {min(sizes)}, and no score, weight or "
        "mask of the spec does",
    )


def _named(expr: Expr) -> frozenset[str]:
    return free_names(expr) & set(SIZES)


def _asked(recipe: Recipe) -> frozenset[str]:
    """The sizes that a score or weight reads, and those of which a mask makes floats."""
    read = [e for e in (recipe.score, recipe.weight, recipe.output_factor) if e is not None]
    given = {i.name: i.dtype not in WHOLE for i in recipe.inputs} | {"x": True, "s": True}
    kinds = Kinds(Module((), (), ()))
    read += [
        operand
        for node in walk_expr(recipe.keep)
        for operand in _whole_operands(node, lambda e: kinds.is_float(e, "", given))
    ]
    return frozenset[str]().union(*map(_named, read))


def _whole_operands(expr: Expr, is_float: IsFloat) -> tuple[Expr, ...]:
    """The operands that an operation on floats has of whole numbers."""
    match expr:
        case Binary() | Call() if is_float(expr):
            operands = children(expr)
        case Compare(_, left, right) if is_float(left) or is_float(right):
            operands = (left, right)
        case Select(_, then, other) if is_float(expr):
            operands = (then, other)
        case _:
            return ()
    return tuple(o for o in operands if not is_float(o))


def _made(
    module: Module, sizes: Mapping[str, frozenset[str]]
) -> Iterator[tuple[Path, Expr, frozenset[str]]]:
    """Every operation on floats with an operand made of sizes alone, and which they are."""
    scalars, kinds = scalars_of(module), Kinds(module)
    consts = {f.name: frozenset(f.consts) for f in module.functions}
    for path, stmt in walk(module):
        function = str(path[0])
        for expr in stmt_exprs(stmt):
            place = _Place(function, scalars.get(function, {}), consts.get(function, frozenset()))
            for node, read in _in_expr(expr, place, kinds):
                made = frozenset[str]().union(*(sizes.get(f, frozenset()) for f in read))
                if made:
                    yield path, node, made


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an expression stands: the function, its scalars, the names that are the same in every
    run or say where an element is, and the lambda parameters that are floats or not."""

    function: str
    scalars: Mapping[str, Expr]
    known: frozenset[str]
    given: Mapping[str, bool] = field(default_factory=dict)


def _in_expr(expr: Expr, at: _Place, kinds: Kinds) -> Iterator[tuple[Expr, frozenset[str]]]:
    """Operations on floats with operands of whole numbers, and the fields that those read."""
    found = frozenset[str]()
    for operand in _whole_operands(expr, lambda e: kinds.is_float(e, at.function, at.given)):
        whole = resolved(operand, at.scalars)
        if free_names(whole) <= {"args"} | at.known:
            found |= {n.field for n in walk_expr(whole) if isinstance(n, Attr)}
    if found:
        yield expr, found
    inner = at
    if isinstance(expr, Call) and (own := kinds.of_lambda(expr, at.function)):
        inner = replace(
            at,
            scalars={n: e for n, e in at.scalars.items() if n not in own},
            known=at.known - own.keys() | frozenset(coordinates(expr)),
            given={**at.given, **own},
        )
    for child in children(expr):
        yield from _in_expr(child, inner if isinstance(child, Lambda) else at, kinds)
