"""Two attentions of one v whose outputs are combined element by element, as differential attention
subtracts them.

`(softmax(q1 k1) - lam * softmax(q2 k2)) v` is `softmax(q1 k1) v - lam * softmax(q2 k2) v`. What
becomes of both is read apart from each, so that what remains is an attention as any other: one that
multiplies q1 and k1, and beside it one that multiplies q2 and k2.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.nodes import Binary, Call, Expr, Index, Lambda, Name, children
from engine.scalar_algebra.rewrite import contains, load_names, map_children, rename
from engine.spec.attention.prologue import products
from engine.spec.expressions.build import is_reduction
from engine.spec.expressions.factors import (
    Factor,
    alike,
    factors,
    is_row_sum,
    mentions,
    product,
    sum_of,
    terms,
    without_guards,
)
from engine.spec.recipes.recipe import OTHER, OUTPUT


@dataclass(frozen=True, slots=True)
class Combined:
    """An output with one attention alone, what the other one is by itself, and what `o` of the one
    and `o2` of the other one become together (over the output's own variables)."""

    one: Expr
    other: Expr
    value: Expr


def combined(expr: Expr, outputs: tuple[str, ...], floats: frozenset[str]) -> Combined | None:
    """The output `expr` taken apart; None where it is not of two attentions over the same v."""
    whole = _distributed(alike(without_guards(expr)), outputs, floats)
    found: list[Expr] = []
    marked = _marked(whole, outputs, floats, found)
    if len(found) != 2 or len({_rows_read(e, floats) for e in found}) != 1:
        return None
    meeting = _meeting(marked)
    if any(map(is_reduction, _all(meeting))):
        return None
    first, second = found
    both = rename(meeting, {OUTPUT.id: first, OTHER.id: second})
    (columns,) = {_column_of(e, outputs, floats) for e in found}
    one = _replaced(whole, both, _normalised(first), columns)
    if load_names(one) & (load_names(second) - load_names(first)):
        return None
    return Combined(alike(one), second, meeting)


def _normalised(expr: Expr) -> Expr:
    """Weights times v, divided by their row's sum, with the division at the weights."""
    match expr:
        case Binary("/", Call("sum_over", (Lambda((j,), body), extent)), row):
            return Call("sum_over", (Lambda((j,), Binary("/", body, row)), extent))
    return expr


def _all(expr: Expr) -> list[Expr]:
    return [expr, *(e for child in children(expr) for e in _all(child))]


def _distributed(expr: Expr, columns: tuple[str, ...], floats: frozenset[str]) -> Expr:
    """`expr` where a sum over keys of weights of several attentions is a sum of such sums; any of
    `columns` may be the column of v."""
    match expr:
        case Call(fn, (Lambda((var,), body), extent)) if is_reduction(expr):
            inner = _distributed(body, (*columns, var), floats)
            return _apart(Call(fn, (Lambda((var,), inner), extent)), columns, floats)
    return map_children(expr, lambda e: _distributed(e, columns, floats))


def _apart(expr: Call, columns: tuple[str, ...], floats: frozenset[str]) -> Expr:
    """A sum over keys as one for each attention whose weights are added in it."""
    match expr:
        case Call("sum_over", (Lambda((j,), body), extent)):
            pass
        case _:
            return expr
    parts = _multiplied(body)
    for part in parts:
        added = terms(part)
        if len({frozenset(_pairs(term, j, floats)) for _, term in added}) > 1:
            rest = [p for p in parts if p is not part]
            cores = [_over(j, [term, *rest], extent, floats) for _, term in added]
            if all(_column_of(core, columns, floats) is not None for core, _ in cores):
                whole = [product([Factor(core), *others]) for core, others in cores]
                return sum_of((sign, e) for (sign, _), e in zip(added, whole, strict=True))
    return expr


def _multiplied(expr: Expr) -> list[Expr]:
    match expr:
        case Binary("*", left, right):
            return [*_multiplied(left), *_multiplied(right)]
    return [expr]


def _over(
    j: str, parts: list[Expr], extent: Expr, floats: frozenset[str]
) -> tuple[Expr, list[Factor]]:
    """The sum over keys of a product, divided by its row's sum, and what no key changes of it."""
    own = factors(Call("sum_over", (Lambda((j,), product(map(Factor, parts))), extent)))
    inside = [f for f in own if is_row_sum(f.base) and any(_pairs_of_sum(f.base, floats))]
    return product(inside), [f for f in own if f not in inside]


def _pairs_of_sum(expr: Expr, floats: frozenset[str]) -> set[frozenset[str]]:
    match expr:
        case Call("sum_over", (Lambda((j,), body), _)):
            return _pairs(body, j, floats)
    return set()


def _pairs(expr: Expr, j: str, floats: frozenset[str]) -> set[frozenset[str]]:
    """Which inputs are multiplied to scores of key `j`."""
    return {frozenset(load_names(p.q) | load_names(p.k)) for p in products(expr, j, floats)}


def _marked(
    expr: Expr, outputs: tuple[str, ...], floats: frozenset[str], found: list[Expr]
) -> Expr:
    """`expr` with the normalised outputs of attentions, which `found` then has, as `o` and
    `o2`."""
    if _column_of(expr, outputs, floats) is not None:
        if expr not in found:
            found.append(expr)
        return (OUTPUT, OTHER, *[expr] * len(found))[found.index(expr)]
    return map_children(expr, lambda e: _marked(e, outputs, floats, found))


def _column_of(expr: Expr, outputs: tuple[str, ...], floats: frozenset[str]) -> str | None:
    """The output's variable that is the column of v, where `expr` is weights times v, divided by a
    row's sum or not."""
    match expr:
        case Binary("/", value, row) if any(_pairs_of_sum(row, floats)):
            return _column_of(value, outputs, floats)
        case Call("sum_over", (Lambda((j,), body), _)) if products(body, j, floats):
            parts = factors(body)
        case _:
            return None
    for part in parts:
        others = [p.base for p in parts if p is not part]
        for o in outputs:
            if (
                not part.inverse
                and isinstance(part.base, Index)
                and load_names(part.base) <= floats
                and all(mentions(part.base, name) for name in (o, j))
                and not any(mentions(other, o) for other in others)
            ):
                return o
    return None


def _rows_read(expr: Expr, floats: frozenset[str]) -> frozenset[str]:
    """The float inputs that stand beside the weights: v."""
    match expr:
        case Binary("/", value, _):
            return _rows_read(value, floats)
        case Call("sum_over", (Lambda((j,), body), _)):
            plain = [f.base for f in factors(body) if isinstance(f.base, Index)]
            return frozenset().union(*(load_names(e) & floats for e in plain if mentions(e, j)))
    return frozenset()


def _meeting(marked: Expr) -> Expr:
    """The smallest part that both attentions are in."""
    for child in children(marked):
        if contains(child, OUTPUT) and contains(child, OTHER):
            return _meeting(child)
    return marked


def _replaced(expr: Expr, both: Expr, first: Expr, column: str | None) -> Expr:
    """`expr` with `first` where `both` is, also at another column inside a sum over columns."""
    match expr:
        case _ if expr == both:
            return first
        case Call(fn, (Lambda((var,), body), extent)) if is_reduction(expr) and column is not None:
            here = {column: Name(var)}
            inner = _replaced(body, rename(both, here), rename(first, here), None)
            return Call(fn, (Lambda((var,), _replaced(inner, both, first, column)), extent))
    return map_children(expr, lambda e: _replaced(e, both, first, column))
