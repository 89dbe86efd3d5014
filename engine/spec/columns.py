"""Columns beside the keys: a sink put behind or before the scores, a key of zeros behind k and v.

`cat([scores, sink], -1)` makes sums and maxima over one position more than there are keys, with a
choice inside by position. Taken apart there, they are a reduction over the keys and the terms of the
other positions: `sum exp(s) + exp(sink)`.
"""

from __future__ import annotations

from functools import reduce

from engine.cuir.nodes import Binary, Bool, Call, Compare, Expr, Lambda, Name, Num, Select, walk_expr
from engine.scalar_algebra.rewrite import map_children, rename
from engine.spec import build
from engine.spec.build import value_of

MOST = 8  # positions beside the keys
JOINS = {"sum_over": build.add, "max_over": lambda a, b: build.call("max", a, b)}


def without_columns(expr: Expr) -> Expr:
    """`expr` with reductions over keys and a few more positions taken apart.

    Nothing changes where no reduction runs over a choice by position that ends near its end or
    begins near its beginning.
    """
    widths = {found for e in walk_expr(expr) if (found := _columns(e)) is not None}
    if len(widths) != 1:
        return expr
    ((keys, first),) = widths
    return _apart(expr, keys, first, {})


def _columns(expr: Expr) -> tuple[int, int] | None:
    """(keys, place of the first one) of a reduction over keys and a few positions more."""
    match expr:
        case Call("sum_over" | "max_over", (Lambda((var,), body), Num(int() as extent))):
            pass
        case _:
            return None
    for e in walk_expr(body):
        match e:
            case Compare("<" | ">=", Name(id), Num(int() as at)) if id == var:
                if extent - MOST <= at < extent and at > MOST:
                    return at, 0
                if 0 < at <= MOST and extent - at > MOST:
                    return extent - at, at
    return None


def _apart(expr: Expr, keys: int, first: int, extents: dict[str, int]) -> Expr:
    """`expr` where positions beside the `keys` stand alone, and choices by position are made."""
    match expr:
        case Call(("sum_over" | "max_over") as fn, (Lambda((var,), body), Num(int() as extent))):
            if _columns(expr) == (keys, first):
                own = rename(body, {var: build.add(Name(var), Num(first))})
                main = _apart(own, keys, first, {**extents, var: keys})
                places = [n for n in range(extent) if not first <= n < first + keys]
                parts = [
                    _folded(_apart(rename(body, {var: Num(n)}), keys, first, extents))
                    for n in places
                ]
                join = JOINS[fn]
                return reduce(join, parts, Call(fn, (Lambda((var,), main), Num(keys))))
            inner = _apart(body, keys, first, {**extents, var: extent})
            return Call(fn, (Lambda((var,), inner), Num(extent)))
        case Lambda(params, body):
            return Lambda(params, _apart(body, keys, first, extents))
        case Compare(op, left, Num(int() as at)) if at in (first, first + keys):
            left = _apart(left, keys, first, extents)
            span = build.bounds(left, extents)
            if span is not None and op in ("<", ">="):
                if span[1] < at:
                    return Num(op == "<")
                if span[0] >= at:
                    return Num(op == ">=")
            return Compare(op, left, Num(at))
        case Select(cond, then, other):
            return build.select(*(_apart(e, keys, first, extents) for e in (cond, then, other)))
        case Bool(op, left, right):
            join = build.both if op == "and" else build.either
            return join(*(_apart(e, keys, first, extents) for e in (left, right)))
        case Binary("+" | "-", _, _) if first and _is_index(expr):
            return build.index_expr(build.index_poly(expr))
    return map_children(expr, lambda e: _apart(e, keys, first, extents))


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


__all__ = ["without_columns"]
