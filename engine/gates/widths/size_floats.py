"""Sizes and places in floating-point arithmetic, where the function that was asked for has none.

A place is whatever else is a whole number: `f32(j) * 4096.0 < f32(i) * 4096.0 + 0.5` loses the
diagonal from row 2048 on.

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
    Bool,
    Call,
    Compare,
    Expr,
    If,
    Lambda,
    Module,
    Path,
    Select,
    children,
    free_names,
    stmt_exprs,
    walk,
    walk_expr,
)
from engine.cuir.ops.traits import BUILT, CONDITIONS
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.cuir.scalar import CASTS, FUNCTIONS
from engine.gates.analysis.float_expressions import WHOLE, Kinds, coordinates
from engine.gates.analysis.reference_mismatch import Fault
from engine.gates.analysis.size_comparisons import SIZES, resolved, scalars_of
from engine.spec import Recipe
from engine.transfer.binding import Binding

PLACE = "$place"  # a row, a key, a head, a tile, a number that is loaded
_BUILT = FUNCTIONS.keys() | CASTS.keys() | BUILT
IsFloat = Callable[[Expr], bool]


def size_as_float(base: Module, module: Module, binding: Binding, recipe: Recipe) -> Fault | None:
    """The first float that `module` makes of a size or a place, `base` does not, and the recipe
    lacks. A place in a condition is asked of conditions: of rows from 2^24 on floats lose some."""
    free, places = _asked(recipe), _asked_places(recipe)
    sizes = {s.field: _named(parse_expr(s.size, "size")) for s in binding.sizes}
    for index, there in enumerate(module.fields):
        for scalar in binding.scalars:
            if scalar.field == there.name and _named(scalar.value) - free:
                return _fault(("Args", index), scalar.value, _named(scalar.value) - free)
    known = {(path[0], node) for path, node, _, _ in _made(base, sizes)}
    for path, node, made, tested in _made(module, sizes):
        lacking = made - free - ({PLACE} if tested in places else frozenset())
        if lacking and (path[0], node) not in known:
            return _fault(path, node, lacking)
    return None


def _fault(path: Path, expr: Expr, made: frozenset[str]) -> Fault:
    of = "a place" if PLACE in made else f"the size {min(made)}"
    return Fault(
        path,
        f"`{print_expr(expr)}` makes a float of {of}, and no score, weight or mask of the spec "
        "does",
    )


def _named(expr: Expr) -> frozenset[str]:
    return free_names(expr) & set(SIZES)


def _asked(recipe: Recipe) -> frozenset[str]:
    """The sizes that a score or weight reads, and those of which a mask makes floats."""
    read = _values(recipe)
    read += [operand for operand, _ in _recipe_operands(recipe, recipe.keep, True)]
    return frozenset[str]().union(*map(_named, read))


def _values(recipe: Recipe) -> list[Expr]:
    other = None if recipe.other is None else recipe.other.value
    parts = (recipe.score, recipe.weight, recipe.late, recipe.sink, other, recipe.output)
    return [e for e in parts if e is not None]


def _asked_places(recipe: Recipe) -> frozenset[bool]:
    """Whether the recipe makes floats of whole numbers that are no sizes: in its conditions (True),
    in its values (False)."""
    parts = [(recipe.keep, True)]
    parts += [(e, False) for e in _values(recipe)]
    return frozenset(
        tested
        for expr, condition in parts
        for operand, tested in _recipe_operands(recipe, expr, condition)
        if free_names(operand) - set(SIZES)
    )


def _recipe_operands(recipe: Recipe, expr: Expr, tested: bool) -> Iterator[tuple[Expr, bool]]:
    """The whole numbers of which an expression of a recipe makes floats, and whether a condition
    does."""
    given = {i.name: i.dtype not in WHOLE for i in recipe.inputs} | {"x": True, "s": True}
    kinds = Kinds(Module((), (), ()))
    for node, condition in _with_conditions(expr, tested):
        for operand in _whole_operands(node, lambda e: kinds.is_float(e, "", given)):
            yield operand, condition


def _with_conditions(expr: Expr, tested: bool) -> Iterator[tuple[Expr, bool]]:
    """The nodes of an expression, and whether something is decided by what each gives."""
    yield expr, tested
    for child, decides in _children(expr, tested):
        yield from _with_conditions(child, decides)


def _children(expr: Expr, tested: bool) -> Iterator[tuple[Expr, bool]]:
    match expr:
        case Select(cond, then, other):
            yield from ((cond, True), (then, tested), (other, tested))
        case Compare() | Bool() | Call("i32" | "int" | "i64" | "bool" | "floor" | "ceil"):
            yield from ((child, True) for child in children(expr))
        case Call(fn) if fn in CONDITIONS:
            yield from ((child, isinstance(child, Lambda)) for child in children(expr))
        case _:
            yield from ((child, tested) for child in children(expr))


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
) -> Iterator[tuple[Path, Expr, frozenset[str], bool]]:
    """Every operation on floats with a whole operand, the sizes that it is made of (and `PLACE`,
    where it is made of more), and whether something is decided by it."""
    scalars, kinds = scalars_of(module), Kinds(module)
    consts = {f.name: frozenset(f.consts) for f in module.functions}
    for path, stmt in walk(module):
        function = str(path[0])
        for expr in stmt_exprs(stmt):
            known = consts.get(function, frozenset())
            place = _Place(function, scalars.get(function, {}), known)
            for node, read, tested in _in_expr(expr, place, kinds, isinstance(stmt, If)):
                made = read & {PLACE}
                made = made.union(*(sizes.get(f, frozenset()) for f in read))
                if made:
                    yield path, node, made, tested


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an expression stands: the function, its scalars, the names that are the same in every
    run, those that say where an element is, and the lambda parameters that are floats or not."""

    function: str
    scalars: Mapping[str, Expr]
    known: frozenset[str]
    coordinates: frozenset[str] = frozenset()
    given: Mapping[str, bool] = field(default_factory=dict)


def _in_expr(
    expr: Expr, at: _Place, kinds: Kinds, tested: bool
) -> Iterator[tuple[Expr, frozenset[str], bool]]:
    """Operations on floats with operands of whole numbers, and what those read."""
    found = frozenset[str]()
    for operand in _whole_operands(expr, lambda e: kinds.is_float(e, at.function, at.given)):
        whole = resolved(operand, at.scalars)
        names = free_names(whole) - {"args"} - at.known
        if names <= at.coordinates:
            found |= {n.field for n in walk_expr(whole) if isinstance(n, Attr)}
        calls = any(isinstance(n, Call) and n.fn not in _BUILT for n in walk_expr(whole))
        if calls or names:
            found |= {PLACE}
    if found:
        yield expr, found, tested
    inner = at
    if isinstance(expr, Call) and (own := kinds.of_lambda(expr, at.function)):
        inner = replace(
            at,
            scalars={n: e for n, e in at.scalars.items() if n not in own},
            known=at.known - own.keys(),
            coordinates=at.coordinates - own.keys() | frozenset(coordinates(expr)),
            given={**at.given, **own},
        )
    for child, decides in _children(expr, tested):
        yield from _in_expr(child, inner if isinstance(child, Lambda) else at, kinds, decides)
