"""Take a traced value apart into factors, with what cancels brought together.

A weight may be written as softmax, as exp over its own sum, as exp of a log-softmax, divided before
or after the second matmul: as factors all of these are exp(s) and 1 / sum exp(s).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from engine.cuir.nodes import Binary, Call, Expr, Lambda, Name, Num, Select, Unary, walk_expr
from engine.scalar_algebra.rewrite import FALSE, TRUE, contains, map_children, rename
from engine.spec.expressions import build
from engine.spec.expressions.build import is_reduction, value_of

# A fill at or below this removes a pair: exp(-1e4 - m) is 0 in every format unless every score of
# the row is as low. -10000 is the smallest that model code uses (BERT).
NEGATIVE = -1e4
TINY = 1e-6


@dataclass(frozen=True, slots=True)
class Factor:
    """`base` times or, when `inverse`, divided into the product."""

    base: Expr
    inverse: bool = False


def is_removed(expr: Expr) -> bool:
    """Whether a score of `expr` removes the pair."""
    value = value_of(expr)
    return value is not None and value <= NEGATIVE


def is_zero(expr: Expr) -> bool:
    return value_of(expr) == 0


def is_mask(factor: Factor) -> bool:
    """Whether a factor is 1 or 0 by a condition."""
    match factor.base:
        case Select(_, Num(1), Num(0)):
            return not factor.inverse
    return False


def mentions(expr: Expr, name: str) -> bool:
    return contains(expr, Name(name))


def has_reduction(expr: Expr) -> bool:
    return any(is_reduction(e) for e in walk_expr(expr))


def without_guards(expr: Expr) -> Expr:
    """Without what only rows without a kept key can notice.

    `nan_to_num(w)`, `where(row_has_key, o, 0)`, `where(isinf(m), 0, m)`, `where(l == 0, 1, l)`,
    and a denominator clamped to a tiny number. What asks about a pair of row and key is no guard.
    """
    return _unguarded(expr, frozenset())


def _unguarded(expr: Expr, keys: frozenset[str]) -> Expr:
    """`without_guards` inside sums and maxima over the variables `keys`."""
    match expr:
        case Call("nan_to_num", (inner,)):
            return _unguarded(inner, keys)
        case Select(cond, then, other) if _asks_about_row(cond) and not any(
            mentions(cond, key) for key in keys
        ):
            if value_of(then) is not None or (isinstance(then, Num) and value_of(other) is None):
                return _unguarded(other, keys)
            if value_of(other) is not None:
                return _unguarded(then, keys)
        case Call("max", (inner, Num(value))) if is_row_sum(inner) and 0 < value <= TINY:
            return _unguarded(inner, keys)
        case Call("max", (inner, Num(value))) if _is_row_max(inner) and value <= NEGATIVE:
            return _unguarded(inner, keys)
        case Lambda(params, body):
            return Lambda(params, _unguarded(body, keys.union(params)))
    return map_children(expr, lambda e: _unguarded(e, keys))


def is_row_sum(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn == "sum_over"


def _is_row_max(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn == "max_over"


def _asks_about_row(cond: Expr) -> bool:
    return has_reduction(cond) or any(
        isinstance(e, Call) and e.fn == "isnan" for e in walk_expr(cond)
    )


# --- sums of terms -------------------------------------------------------------------------------


def terms(expr: Expr, sign: int = 1) -> list[tuple[int, Expr]]:
    """`expr` as a sum of signed terms."""
    match expr:
        case Binary("+", left, right):
            return terms(left, sign) + terms(right, sign)
        case Binary("-", left, right):
            return terms(left, sign) + terms(right, -sign)
        case Unary("-", operand):
            return terms(operand, -sign)
        case Binary("*", Num(value), inner) | Binary("*", inner, Num(value)) if value == -1:
            return terms(inner, -sign)
        case Binary("*", inner, Num(value)) if len(parts := terms(inner, sign)) > 1:
            return [(s, build.mul(part, Num(value))) for s, part in parts]
        case Binary("*", Num(value), inner) if len(parts := terms(inner, sign)) > 1:
            return [(s, build.mul(part, Num(value))) for s, part in parts]
        case Binary("/", inner, Num(value)) if len(parts := terms(inner, sign)) > 1:
            return [(s, build.div(part, Num(value))) for s, part in parts]
    return [(sign, expr)]


def sum_of(parts: Iterable[tuple[int, Expr]]) -> Expr:
    out: Expr | None = None
    for sign, part in parts:
        if out is None:
            out = part if sign > 0 else build.neg(part)
        else:
            out = build.add(out, part) if sign > 0 else build.sub(out, part)
    return Num(0) if out is None else out


# --- products of factors -------------------------------------------------------------------------


def factors(expr: Expr, inverse: bool = False) -> list[Factor]:
    """`expr` as a product, with sums cleared of what does not depend on their variable."""
    match expr:
        case Num(value) if value == 1 and not isinstance(value, bool):
            return []
        case Binary("*", left, right):
            return factors(left, inverse) + factors(right, inverse)
        case Binary("/", left, right):
            return factors(left, inverse) + factors(right, not inverse)
        case Unary("-", operand):
            return [Factor(Num(-1)), *factors(operand, inverse)]
        case Call("exp", (arg,)):
            return _exponential(arg, inverse)
        case Call("exp2", (arg,)):
            return _exponential(build.mul(arg, Num(math.log(2))), inverse)
        case Select(cond, then, other) if is_zero(other) and not inverse:
            if value_of(then) == 1:
                return [Factor(expr)]
            return [Factor(Select(cond, Num(1), Num(0))), *factors(then)]
        case Select(cond, then, other) if is_zero(then) and not inverse:
            return factors(build.select(build.negate(cond), other, then))
        case Call("sum_over", (Lambda((var,), body), extent)):
            return _summed(var, body, extent, inverse)
        case Binary("+" | "-") if any(map(_sums_row, walk_expr(expr))):
            return [Factor(f.base, f.inverse != inverse) for f in _total(expr)]
        case Call("sigmoid", (arg,)) if any(map(_sums_row, walk_expr(arg))):
            total = build.add(Num(1), build.call("exp", build.neg(arg)))
            return factors(total, not inverse)
    return [Factor(expr, inverse)]


def _sums_row(expr: Expr) -> bool:
    """Whether `expr` is the sum of exponentials over keys, which a softmax divides by."""
    match expr:
        case Call("sum_over", (Lambda((var,), body), _)):
            return any(
                isinstance(e, Call) and e.fn in ("exp", "exp2") and mentions(e, var)
                for e in walk_expr(body)
            )
    return False


def _total(expr: Expr) -> list[Factor]:
    """A sum of which a term holds a row's sum: what all terms are multiplied or divided by, such as
    the exponential of a row maximum, and the rest as one factor."""
    parts = [(sign, Counter(factors(term))) for sign, term in terms(expr)]
    below: Counter[Factor] = Counter()
    for _, own in parts:
        below |= Counter({f: n for f, n in own.items() if f.inverse and has_reduction(f.base)})
    above = [
        (sign, Counter(cancelled([*own.elements(), *(Factor(f.base) for f in below.elements())])))
        for sign, own in parts
    ]
    common = above[0][1]
    for _, own in above:
        common = common & own
    rest = sum_of((sign, product((own - common).elements())) for sign, own in above)
    return [*below.elements(), *common.elements(), Factor(rest)]


def _exponential(arg: Expr, inverse: bool) -> list[Factor]:
    match arg:
        case Select(cond, then, other) if is_removed(other) and not inverse:
            return [Factor(Select(cond, Num(1), Num(0))), *_exponential(then, inverse)]
        case Select(cond, then, other) if is_removed(then) and not inverse:
            return [
                Factor(Select(build.negate(cond), Num(1), Num(0))),
                *_exponential(other, inverse),
            ]
    out: list[Factor] = []
    kept: list[tuple[int, Expr]] = []
    for sign, term in terms(arg):
        match term:
            case Call("log", (inner,)):
                out += factors(inner, inverse != (sign < 0))
            case _ if _is_shift(term):
                out.append(Factor(Call("exp", (term,)), inverse != (sign < 0)))
            case _:
                kept.append((sign, term))
    if kept:
        out.append(Factor(Call("exp", (sum_of(kept),)), inverse))
    return out


def _is_shift(term: Expr) -> bool:
    """A row maximum (or anything made of it) that softmax subtracts."""
    return any(isinstance(e, Call) and e.fn == "max_over" for e in walk_expr(term))


def _summed(var: str, body: Expr, extent: Expr, inverse: bool) -> list[Factor]:
    parts = factors(body)
    inside: list[Factor] = []
    if any(mentions(f.base, var) for f in parts):
        # A mask of rows or heads alone stays in: outside it would cancel against itself, as 0 / 0.
        inside = [f for f in parts if mentions(f.base, var) or is_mask(f)]
    outside = [f for f in parts if f not in inside]
    if not inside:
        outside.append(Factor(extent))
    else:
        summed = Call("sum_over", (Lambda((var,), product(inside)), extent))
        outside.append(Factor(summed))
    return [Factor(f.base, f.inverse != inverse) for f in outside]


def product(parts: Iterable[Factor]) -> Expr:
    """The factors multiplied up again; numbers are folded first."""
    number: float | int = 1
    top: Expr | None = None
    bottom: list[Expr] = []
    for part in parts:
        value = value_of(part.base)
        if value is not None and not (part.inverse and value == 0):
            number = number / value if part.inverse else number * value
        elif part.inverse:
            bottom.append(part.base)
        else:
            top = part.base if top is None else Binary("*", top, part.base)
    out: Expr = (
        Num(number) if top is None else (top if number == 1 else Binary("*", top, Num(number)))
    )
    for item in bottom:
        out = Binary("/", out, item)
    return out


def cancelled(parts: list[Factor]) -> list[Factor]:
    """Without pairs of a factor and its inverse; order kept."""
    balance: Counter[Expr] = Counter()
    for part in parts:
        balance[part.base] += -1 if part.inverse else 1
    out: list[Factor] = []
    for part in parts:
        wanted = balance[part.base]
        if wanted > 0 and not part.inverse:
            out.append(part)
            balance[part.base] -= 1
        elif wanted < 0 and part.inverse:
            out.append(part)
            balance[part.base] += 1
    return out


def over(body: Expr, var: str, other: str) -> Counter[Factor]:
    """The factors of a sum's body, with its variable renamed."""
    return Counter(factors(rename(body, {var: Name(other)})))


def alike(expr: Expr) -> Expr:
    """`expr` with the variables of reductions named by what stands in them, so that two sums over
    the same are one expression."""
    return _alike(expr)[0]


def _alike(expr: Expr) -> tuple[Expr, int]:
    """The expression and how deep reductions stand in it."""
    depth = 0

    def inner(child: Expr) -> Expr:
        nonlocal depth
        made, below = _alike(child)
        depth = max(depth, below)
        return made

    made = map_children(expr, inner)
    match made:
        case Call(fn, (Lambda((var,), body), extent)) if is_reduction(made):
            name = f"%{fn}{depth}"
            return Call(fn, (Lambda((name,), rename(body, {var: Name(name)})), extent)), depth + 1
    return made, depth


# --- removed pairs -------------------------------------------------------------------------------


def _is_zero_or_one(then: Expr, other: Expr) -> bool:
    return {value_of(then), value_of(other)} == {0, 1}


def _times_truth(value: Expr, then: Expr, other: Expr) -> tuple[Expr, Expr]:
    """`value` times 1 and times 0, in the order of the choice."""
    first, second = (value if value_of(e) == 1 else Num(0.0) for e in (then, other))
    return first, second


def split_mask(score: Expr, chosen: bool = False) -> tuple[Expr, Expr]:
    """(keep, value): where a score is not removed, and what it is there.

    `chosen` says that some pairs alone have this score: a number that all pairs have added removes
    none of them, however far below 0 it is.
    """
    if not chosen and isinstance(score, Binary) and score.op in ("+", "-"):
        number = value_of(score.right)
        if number is not None and math.isfinite(number):
            keep, inner = split_mask(score.left)
            return keep, Binary(score.op, inner, score.right)
    if is_removed(score):
        return FALSE, Num(0.0)
    match score:
        case Select(cond, then, other):
            k1, s1 = split_mask(then, True)
            k2, s2 = split_mask(other, True)
            if k1 == k2 == TRUE:
                return TRUE, Select(cond, s1, s2)
            keep = build.either(build.both(cond, k1), build.both(build.negate(cond), k2))
            if k1 == FALSE:
                return keep, s2
            if k2 == FALSE:
                return keep, s1
            return keep, build.select(cond, s1, s2)
        case Binary("+", left, right):
            k1, s1 = split_mask(left, chosen)
            k2, s2 = split_mask(right, chosen)
            return build.both(k1, k2), build.add(s1, s2)
        case Binary("-", left, right):
            k1, s1 = split_mask(left, chosen)
            k2, s2 = split_mask(build.neg(right), chosen)
            if k2 == TRUE:
                return k1, build.sub(s1, right)
            return build.both(k1, k2), build.add(s1, s2)
        case Binary("*", removed, Select(cond, then, other)) | Binary(
            "*", Select(cond, then, other), removed
        ) if _is_zero_or_one(then, other) and split_mask(removed, True)[0] != TRUE:
            return split_mask(build.select(cond, *_times_truth(removed, then, other)), chosen)
        case Binary("*", left, Num(value)) if value > 0:
            keep, inner = split_mask(left, chosen)
            return keep, build.mul(inner, Num(value))
        case Binary("*", Num(value), right) if value > 0:
            keep, inner = split_mask(right, chosen)
            return keep, build.mul(Num(value), inner)
        case Binary("/", left, Num(value)) if value > 0:
            keep, inner = split_mask(left, chosen)
            return keep, build.div(inner, Num(value))
        case Call("min", (a, b)):
            k1, s1 = split_mask(a, chosen)
            k2, s2 = split_mask(b, chosen)
            if s1 == Num(0.0) or s2 == Num(0.0):
                pass
            elif k1 == TRUE == k2:
                return TRUE, score
            # min with a select of (+inf or 0, -inf): only the removed branch matters when the
            # other is +inf, which `minimum(scores, where(m, inf, -inf))` writes.
            if k1 != TRUE and k2 == TRUE and value_of(s1) == float("inf"):
                return k1, s2
            if k2 != TRUE and k1 == TRUE and value_of(s2) == float("inf"):
                return k2, s1
        case Call("max", (inner, Num(value))) | Call("max", (Num(value), inner)) if (
            value <= NEGATIVE
        ):
            return split_mask(inner, chosen)
        case Call("log", (Select(cond, then, other),)) if value_of(then) == 1 and is_zero(other):
            return cond, Num(0.0)
        case Call("log", (Select(cond, then, other),)) if is_zero(then) and value_of(other) == 1:
            return build.negate(cond), Num(0.0)
    return TRUE, score
