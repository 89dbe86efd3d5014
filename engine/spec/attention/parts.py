"""q and k that are joined from parts along the head dimension.

Multi-head latent attention has keys with a part for each head and one that all heads share, which
carries positions. Joined before one product, or multiplied each with its own part of q and added:
a score that adds the products of parts is the one product of what is joined from them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from engine.cuir.nodes import (
    Binary,
    Call,
    Compare,
    Expr,
    Index,
    Lambda,
    Name,
    Num,
    Select,
    walk_expr,
)
from engine.scalar_algebra.rewrite import load_names, loads, map_children, rename
from engine.spec.attention.prologue import COLUMN, Product, product_of
from engine.spec.expressions import build
from engine.spec.expressions.factors import Factor, factors, mentions, product, sum_of, terms


def joined(expr: Expr, outputs: tuple[str, ...], j: str, floats: frozenset[str]) -> Expr:
    """`expr` with sums of products, each multiplied by the same, as one product over the columns of
    all: a column is the first product's, or else the next one's."""

    def visit(e: Expr) -> Expr:
        if not (isinstance(e, Binary) and e.op in ("+", "-")):
            return map_children(e, visit)
        parts = terms(e)
        alike: dict[frozenset[tuple[Factor, int]], list[Product]] = {}
        rest: list[tuple[int, Expr]] = []
        for sign, part in parts:
            found = _one_product(part, j, floats)
            if found is None or sign < 0:
                rest.append((sign, part))
            else:
                key = frozenset(Counter(found.scalars).items())
                alike.setdefault(key, []).append(found)
        if all(len(group) < 2 or not _same_row(group, outputs) for group in alike.values()):
            return map_children(e, visit)
        whole = [(1, product([*g[0].scalars, Factor(_end_to_end(g))])) for g in alike.values()]
        return sum_of([*whole, *((sign, visit(part)) for sign, part in rest)])

    return visit(expr)


def _one_product(part: Expr, j: str, floats: frozenset[str]) -> Product | None:
    """A term that is a product of a row of queries and key `j`, times what no column changes."""
    own = factors(part)
    found = [p for f in own if not f.inverse and (p := product_of(f.base, j, floats)) is not None]
    if len(found) != 1:
        return None
    (item,) = found
    others = [f for f in own if f.inverse or product_of(f.base, j, floats) is None]
    return replace(item, scalars=(*others, *item.scalars))


def _same_row(group: list[Product], outputs: tuple[str, ...]) -> bool:
    """Whether the products are of the same query row and key: no key hangs on the row."""
    rows = {o for o in outputs if all(mentions(p.q, o) for p in group)}
    return bool(rows - {o for o in outputs if any(mentions(p.k, o) for p in group)})


def _end_to_end(group: list[Product]) -> Expr:
    """The sum over the columns of all products, one behind the other."""
    var, first = Name(group[0].var), 0
    q = k = None
    ends: list[tuple[Product, int]] = []
    for item in group:
        ends.append((item, first))
        first += build.integer(item.extent)
    for item, start in reversed(ends):
        column = var if start == 0 else Binary("-", var, Num(start))
        own = [_with_index(rename(e, {item.var: column})) for e in (item.q, item.k)]
        inside = Compare("<", var, Num(start + build.integer(item.extent)))
        q = own[0] if q is None else build.select(inside, own[0], q)
        k = own[1] if k is None else build.select(inside, own[1], k)
    assert q is not None and k is not None
    return Call("sum_over", (Lambda((var.id,), Binary("*", q, k)), Num(first)))


def _with_index(expr: Expr) -> Expr:
    """`expr` with each place that is loaded as one sum: parts of one input may meet again."""
    expr = map_children(expr, _with_index)
    match expr:
        case Index(base, index):
            return Index(base, tuple(map(_summed, index)))
    return expr


def _summed(place: Expr) -> Expr:
    linear = all(
        isinstance(e, Name | Num) or (isinstance(e, Binary) and e.op in "+-*")
        for e in walk_expr(place)
    )
    return build.index_expr(build.index_poly(place)) if linear else place


def parts_of(made: Expr | None) -> tuple[str, ...]:
    """The inputs that a row is joined from, in the order of their columns; none where it is of one.

    `made` is what an element of q or k becomes, over its column.
    """
    for e in walk_expr(made) if made is not None else ():
        if isinstance(e, Select) and mentions(e.cond, COLUMN):
            then, other = (load_names(side) for side in (e.then, e.other))
            if then and other and not then & other:
                return (*_rows_of(e.then), *_rows_of(e.other))
    return ()


def _rows_of(side: Expr) -> tuple[str, ...]:
    """The inputs that give a part its columns: of those in it the ones with most dimensions."""
    below = parts_of(side)
    if below:
        return below
    ranks = {load.base.id: len(load.index) for load in loads(side) if isinstance(load.base, Name)}
    return tuple(n for n, rank in ranks.items() if rank == max(ranks.values()))[:1]
