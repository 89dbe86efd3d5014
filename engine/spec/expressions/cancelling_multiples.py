"""Large multiples that cancel, brought together.

`(1 - mask) * -10000` is added to scores, and as a polynomial it is `10000 * mask - 10000`: the same
number, until a score is added first and float32 has no digits left for it. Terms with one large
factor in common are one product again, whose sum is exact where the mask is 0 or 1.
"""

from __future__ import annotations

from functools import partial, reduce

from engine.cuir.nodes import Binary, Expr, Num, Unary

LARGE = 256.0  # factors from here on cost a score digits that show in a weight


def grouped(score: Expr) -> Expr:
    """`score` with terms of one large factor as one product."""
    groups: dict[float, list[tuple[float, Expr | None]]] = {}
    for number, rest in _terms(score, 1.0):
        groups.setdefault(abs(number), []).append((number, rest))
    together = {
        size: parts for size, parts in groups.items()
        if size >= LARGE and len(parts) > 1 and any(rest is not None for _, rest in parts)
    }  # fmt: skip
    if not together:
        return score
    alone = [part for size, parts in groups.items() if size not in together for part in parts]
    terms = [*(_scaled(*part) for part in alone), *map(_product, together.values())]
    return reduce(partial(Binary, "+"), terms)


def _product(parts: list[tuple[float, Expr | None]]) -> Expr:
    """number * (a +- b ...), the first term that is no constant leading."""
    parts = sorted(parts, key=lambda part: part[1] is None)
    number, first = parts[0]
    assert first is not None
    total = first
    for other, rest in parts[1:]:
        total = Binary("+" if other == number else "-", total, rest or Num(1.0))
    return Binary("*", total, Num(number))


def _terms(expr: Expr, sign: float) -> list[tuple[float, Expr | None]]:
    """A sum's terms as (number, the rest); None is 1."""
    match expr:
        case Binary("+", left, right):
            return [*_terms(left, sign), *_terms(right, sign)]
        case Binary("-", left, right):
            return [*_terms(left, sign), *_terms(right, -sign)]
        case Unary("-", inner):
            return _terms(inner, -sign)
    number, rest = _factors(expr)
    return [(sign * number, rest)]


def _factors(expr: Expr) -> tuple[float, Expr | None]:
    match expr:
        case Num(value) if not isinstance(value, bool):
            return float(value), None
        case Binary("*", left, right):
            (a, one), (b, other) = _factors(left), _factors(right)
            if one is None or other is None:
                return a * b, one or other
            return a * b, Binary("*", one, other)
    return 1.0, expr


def _scaled(number: float, rest: Expr | None) -> Expr:
    if rest is None:
        return Num(number)
    return rest if number == 1.0 else Binary("*", rest, Num(number))
