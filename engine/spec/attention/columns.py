"""Columns beside the keys: a sink put behind or before the scores, a key of zeros behind k and v.

`cat([scores, sink], -1)` makes sums and maxima over one position more than there are keys, with
a choice inside by position. Taken apart there, they are a reduction over the keys and the terms of
the other positions: `sum exp(s) + exp(sink)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from engine.cuir.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Lambda,
    Name,
    Num,
    Select,
    walk_expr,
)
from engine.scalar_algebra.rewrite import map_children, rename
from engine.spec.expressions import build
from engine.spec.expressions.build import value_of

MOST = 8  # positions beside the keys
JOINS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "sum_over": build.add, "max_over": lambda a, b: build.call("max", a, b),
}  # fmt: skip


def without_columns(expr: Expr, sizes: frozenset[int]) -> Expr:
    """`expr` with reductions over keys and a few more positions taken apart.

    `sizes` are those of the inputs' dimensions: what runs over one of them runs over no more.
    """
    widths = {found for e in walk_expr(expr) if (found := _columns(e, sizes)) is not None}
    return expr if len(widths) != 1 else _apart(expr, widths.pop(), {})


@dataclass(frozen=True, slots=True)
class _Columns:
    """A reduction over `extent` positions, of which those from `first` on are `keys`."""

    keys: int
    first: int
    extent: int


def _columns(expr: Expr, sizes: frozenset[int]) -> _Columns | None:
    """What a reduction over keys and a few more positions runs over."""
    match expr:
        case Call("sum_over" | "max_over", (Lambda((var,), body), Num(int() as extent))):
            pass
        case _:
            return None
    if extent in sizes:
        return None
    for e in walk_expr(body):
        match e:
            case Compare("<" | ">=", Name(id), Num(int() as at)) if id == var:
                if at in sizes and extent - at <= MOST:
                    return _Columns(at, 0, extent)
                if extent - at in sizes and at <= MOST:
                    return _Columns(extent - at, at, extent)
    return None


def _apart(expr: Expr, of: _Columns, extents: dict[str, int]) -> Expr:
    """`expr` where positions beside the keys stand alone, and choices by position are made."""
    ends = (of.first, of.first + of.keys)
    match expr:
        case Call(("sum_over" | "max_over") as fn, (Lambda((var,), body), Num(int() as extent))):
            if extent == of.extent and _chooses(body, var, ends):
                own = rename(body, {var: build.add(Name(var), Num(of.first))})
                main = _apart(own, of, {**extents, var: of.keys})
                parts = [
                    _folded(_apart(rename(body, {var: Num(n)}), of, extents))
                    for n in range(extent)
                    if not ends[0] <= n < ends[1]
                ]
                over_keys: Expr = Call(fn, (Lambda((var,), main), Num(of.keys)))
                return reduce(JOINS[fn], parts, over_keys)
            inner = _apart(body, of, {**extents, var: extent})
            return Call(fn, (Lambda((var,), inner), Num(extent)))
        case Lambda(params, body):
            return Lambda(params, _apart(body, of, extents))
        case Compare(("<" | ">=") as op, left, Num(int() as at)) if at in ends:
            left = _apart(left, of, extents)
            span = build.bounds(left, extents)
            if span is not None and (span[1] < at or span[0] >= at):
                return Num((span[1] < at) == (op == "<"))
            return Compare(op, left, Num(at))
        case Select(cond, then, other):
            return build.select(*(_apart(e, of, extents) for e in (cond, then, other)))
        case Bool(op, left, right):
            both = build.both if op == "and" else build.either
            return both(*(_apart(e, of, extents) for e in (left, right)))
        case Binary("+" | "-", _, _) if of.first and _is_index(expr):
            return build.index_expr(build.index_poly(expr))
    return map_children(expr, lambda e: _apart(e, of, extents))


def _chooses(body: Expr, var: str, ends: tuple[int, int]) -> bool:
    """Whether a body asks on which side of the keys' ends its position is."""
    return any(
        isinstance(e, Compare) and e.left == Name(var) and e.right in (Num(ends[0]), Num(ends[1]))
        for e in walk_expr(body)
    )


def _is_index(expr: Expr) -> bool:
    return all(isinstance(e, Binary | Name | Num) for e in walk_expr(expr))


def _folded(expr: Expr) -> Expr:
    """What a column of zeros makes of products, sums and exponentials."""
    expr = map_children(expr, _folded)
    match expr:
        case Binary("*", left, right) if 0 in (value_of(left), value_of(right)):
            return Num(0)
        case Binary("/", left, _) if value_of(left) == 0:
            return Num(0)
        case Binary("+", left, right):
            return build.add(left, right)
        case Binary("-", left, right):
            return build.sub(left, right)
        case Call("sum_over", (Lambda(_, body), _)) if value_of(body) == 0:
            return Num(0)
        case Call("exp" | "exp2", (arg,)) if value_of(arg) == 0:
            return Num(1)
    return expr
