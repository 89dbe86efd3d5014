"""Integer expressions with `min` and `max` outermost: sums move into them, and what cannot be the
extreme goes."""

from __future__ import annotations

from functools import reduce

from engine.cuir.nodes import Binary, Call, Expr, Select
from engine.transfer.linear import linear, linear_difference


def spread(expr: Expr) -> Expr:
    """The same value: `min(a, b) + c` is `min(a + c, b + c)`, and of two operands that differ by a
    number one goes. `max(min(a, b), min(a, c))` is `min(a, max(b, c))`."""
    form = linear(expr)
    for atom, coefficient in form.terms:
        rest = form.without(atom).to_expr()
        match atom:
            case Call("min" | "max" as fn, (left, right)) if coefficient == 1:
                a, b = (spread(Binary("+", side, rest)) for side in (left, right))
                return _extreme(fn, a, b)
            case Select(cond, then, other) if coefficient == 1:
                yes, no = spread(Binary("+", then, rest)), spread(Binary("+", other, rest))
                return Select(cond, yes, no)
    return form.to_expr()


def _extreme(fn: str, left: Expr, right: Expr) -> Expr:
    sides = _operands(fn, left), _operands(fn, right)
    kept: list[Expr] = []
    for operand in (*sides[0], *sides[1]):
        if not any(_is_extreme(fn, other, operand) for other in kept):
            kept = [other for other in kept if not _is_extreme(fn, operand, other)] + [operand]
    inner = "min" if fn == "max" else "max"
    parts = [_operands(inner, operand) for operand in kept]
    common = [e for e in parts[0] if all(e in part for part in parts[1:])]
    rests = [[e for e in part if e not in common] for part in parts]
    if len(parts) > 1 and common:
        if not all(rests):  # one of them is an operand of all others
            return _joined(inner, common)
        within = reduce(lambda a, b: _extreme(fn, a, b), (_joined(inner, rest) for rest in rests))
        return _joined(inner, [*common, within])
    return _joined(fn, kept)


def _operands(fn: str, expr: Expr) -> list[Expr]:
    match expr:
        case Call(name, (left, right)) if name == fn:
            return [*_operands(fn, left), *_operands(fn, right)]
    return [expr]


def _joined(fn: str, operands: list[Expr]) -> Expr:
    return reduce(lambda a, b: Call(fn, (a, b)), operands)


def _is_extreme(fn: str, one: Expr, other: Expr) -> bool:
    """Whether `one` is the smaller (of `max`: the larger) of both whatever the sizes are."""
    difference = linear_difference(one, other)
    below = difference.constant if fn == "min" else -difference.constant
    return not difference.terms and below <= 0
