"""Rebuild, substitute and inspect scalar expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.cuir.nodes import (
    Bool,
    Expr,
    Index,
    Lambda,
    Name,
    Num,
    children,
    rebuild,
    walk_expr,
)  # fmt: skip


def map_children(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """`expr` with `change` applied to each direct subexpression (the base of a load excepted)."""
    if isinstance(expr, Index):
        return Index(expr.base, tuple(map(change, expr.index)))
    return rebuild(expr, change)


def substitute(expr: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """`expr` with every occurrence of a key replaced by its value, outermost first."""
    if expr in values:
        return values[expr]
    return map_children(expr, lambda child: substitute(child, values))


def rename(expr: Expr, names: Mapping[str, Expr]) -> Expr:
    """`expr` with free names replaced; the base names of loads stay."""
    return substitute(expr, {Name(name): value for name, value in names.items()})


def free_names(expr: Expr) -> frozenset[str]:
    """The names of variables and sizes that `expr` mentions (bases of loads excluded)."""
    if isinstance(expr, Name):
        return frozenset((expr.id,))
    if isinstance(expr, Index):
        return frozenset().union(*(free_names(i) for i in expr.index))
    if isinstance(expr, Lambda):
        return free_names(expr.body) - frozenset(expr.params)
    return frozenset().union(*(free_names(child) for child in children(expr)))


def loads(expr: Expr) -> tuple[Index, ...]:
    """Every load in `expr`, each once, in order of appearance."""
    found = (e for e in walk_expr(expr) if isinstance(e, Index) and isinstance(e.base, Name))
    return tuple(dict.fromkeys(found))


def load_names(expr: Expr) -> frozenset[str]:
    """The names of the tensors that `expr` reads."""
    return frozenset(load.base.id for load in loads(expr) if isinstance(load.base, Name))


def contains(expr: Expr, wanted: Expr) -> bool:
    return wanted in walk_expr(expr)


def conjuncts(predicate: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction."""
    if isinstance(predicate, Bool) and predicate.op == "and":
        return (*conjuncts(predicate.left), *conjuncts(predicate.right))
    return (predicate,)


def disjuncts(predicate: Expr) -> tuple[Expr, ...]:
    """The parts of a disjunction."""
    if isinstance(predicate, Bool) and predicate.op == "or":
        return (*disjuncts(predicate.left), *disjuncts(predicate.right))
    return (predicate,)


TRUE = Num(True)
FALSE = Num(False)


def all_of(parts: tuple[Expr, ...] | list[Expr]) -> Expr:
    """`a and b and ...`; true when empty."""
    out: Expr | None = None
    for part in parts:
        out = part if out is None else Bool("and", out, part)
    return TRUE if out is None else out


def any_of(parts: tuple[Expr, ...] | list[Expr]) -> Expr:
    """`a or b or ...`; false when empty."""
    out: Expr | None = None
    for part in parts:
        out = part if out is None else Bool("or", out, part)
    return FALSE if out is None else out
