"""Weights in the sum over keys: softmax in all its writings, and weights without it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from engine.cuir.nodes import (
    Binary,
    Call,
    Expr,
    Index,
    Lambda,
    Name,
    Num,
    Select,
    Unary,
    names_in,
    walk_expr,
)
from engine.scalar_algebra.canonical import polynomial
from engine.scalar_algebra.polynomial import Poly, nice, to_expr
from engine.scalar_algebra.rewrite import TRUE, contains, map_children, substitute
from engine.spec.expressions import build
from engine.spec.expressions.factors import (
    Factor,
    factors,
    has_reduction,
    is_mask,
    is_row_sum,
    mentions,
    over,
    split_mask,
    sum_of,
    terms,
)  # fmt: skip
from engine.spec.tracing.symbolic import is_size_name

X, S = Name("x"), Name("s")
LLM = "rewrite this part of the spec, or use --transfer llm"


class NotAttention(Exception):
    """The traced output is not attention as a recipe says it; `about` is the part in question."""

    def __init__(self, message: str, fix: str, about: Expr | None = None) -> None:
        super().__init__(message)
        self.message, self.fix, self.about = message, fix, about


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of keys, taken apart; `sink` is the logit that a normalised row has beside."""

    own: list[Factor]
    late: list[Expr]  # masks that zero weights after they are normalised
    scaled: list[Factor]  # and what else multiplies each of them then
    outer: list[Factor]  # other factors of the output
    normalised: bool
    sink: Expr | None = None


def weights_of(inner: list[Factor], outer: list[Factor], j: str, keys: Expr) -> Weights:
    """Which factors are weights, and what they are divided by."""
    have = Counter(inner)
    for total in [f for f in [*outer, *inner] if f.inverse]:
        divisor = _row_total(total.base)
        if divisor is None:
            continue
        summed, beside = divisor
        assert isinstance(summed.args[0], Lambda)
        (var,), body = summed.args[0].params, summed.args[0].body
        wanted = over(body, var, j)
        if wanted - have or summed.args[1] != keys:
            continue
        extra = list((have - wanted - Counter([total])).elements())
        masks = [f for f in extra if is_mask(f) and mentions(f.base, j)]
        scaled = [f for f in extra if f not in masks and mentions(f.base, j)]
        changed = next((f for f in scaled if has_reduction(f.base)), None)
        if changed is not None:
            raise NotAttention(
                "weights are multiplied by what is made of scores after they are normalised", LLM,
                changed.base,
            )  # fmt: skip
        left = [f for f in extra if f not in masks and f not in scaled]
        rest = [f for f in outer if f is not total]
        late = [f.base.cond for f in masks if isinstance(f.base, Select)]
        sink = None if beside is None else _logit(beside)
        return Weights(list(wanted.elements()), late, scaled, rest + left, True, sink)
    return Weights(inner, [], [], outer, False)


def _row_total(divisor: Expr) -> tuple[Call, Expr | None] | None:
    """A sum over keys and what is added to it, which is the same for all keys."""
    parts = terms(divisor)
    sums = [(sign, e) for sign, e in parts if is_row_sum(e)]
    others = [(sign, e) for sign, e in parts if not is_row_sum(e)]
    if len(sums) != 1 or sums[0][0] < 0:
        return None
    summed = sums[0][1]
    assert isinstance(summed, Call)
    if any(has_reduction(e) for _, e in others):
        return None
    return summed, sum_of(others) if others else None


def _logit(beside: Expr) -> Expr:
    """The logit whose exponential a softmax's sum has beside its keys."""
    match factors(beside):
        case []:
            return Num(0.0)
        case [Factor(Call("exp", (logit,)), False)]:
            return logit
        case [Factor(Num(value), False)] if value > 0:
            return Num(math.log(value))
    return Call("log", (beside,))


# --- elementwise normalisers ---------------------------------------------------------------------


def elementwise(weight: Expr, numbers: Expr) -> tuple[Expr, Expr, Expr, bool]:
    """(keep, weight over s, score over x, whether `numbers` went into the weight).

    The score is the outermost argument of a function on which the whole weight depends: y of
    sigmoid(y) and of max(y, 0) * max(y, 0). For y * sigmoid(y), whose factors `numbers` were taken
    out of the sum, x is solved from y = c * x + b.
    """
    keep, value = _split_zero(_sigmoids(weight))
    arguments = [
        arg for e in walk_expr(value) if isinstance(e, Call) for arg in e.args if contains(arg, X)
    ]  # fmt: skip
    for candidate in arguments:
        direct = substitute(value, {candidate: S})
        if _alone(direct):
            return keep, direct, candidate, False
    for candidate in arguments:
        context = _solved(build.mul(value, numbers), candidate)
        if context is not None and _alone(context):
            return keep, context, candidate, True
    return keep, S, value, False


def _solved(value: Expr, score: Expr) -> Expr | None:
    """`value` over s instead of x, where s = `score` is c * x + b and c, b consist of sizes."""
    line = polynomial(score, {})
    steep = [m for m in line.terms if (X, Fraction(1)) in m]
    rest = Poly({m: c for m, c in line.terms.items() if m not in steep})
    if len(steep) != 1 or not all(of_sizes(atom) for atom in rest.atoms()):
        return None
    slope = [(atom, power) for atom, power in steep[0] if atom != X]
    if not all(of_sizes(atom) for atom, _ in slope):
        return None
    x = (Poly.atom(S) - rest).scaled(1 / line.terms[steep[0]])
    for atom, power in slope:
        x = x * Poly.atom(atom, -power)
    # The rounding of c and 1 / c cancels to a simple number.
    solved = polynomial(substitute(value, {X: to_expr(x, {})}), {})
    return to_expr(Poly({m: nice(float(c)) for m, c in solved.terms.items()}), {})


def split_numbers(parts: list[Factor]) -> tuple[list[Factor], list[Factor]]:
    """(other factors, numbers and what varies with sizes alone)."""
    plain = [f for f in parts if of_sizes(f.base)]
    return [f for f in parts if f not in plain], plain


def _alone(weight: Expr) -> bool:
    """Whether a weight depends on s and on sizes alone."""
    return all(n == "s" or is_size_name(n) for n in names_in(weight))


def of_sizes(expr: Expr) -> bool:
    """Whether `expr` is a number, or computed from sizes alone."""
    return not any(
        isinstance(e, Index) or (isinstance(e, Name) and not is_size_name(e.id))
        for e in walk_expr(expr)
    )


def _sigmoids(expr: Expr) -> Expr:
    """1 / (1 + exp(-y)) as sigmoid(y)."""
    expr = map_children(expr, _sigmoids)
    match expr:
        case Binary("/", Num(1 | 1.0), Binary("+", Num(1 | 1.0), Call("exp", (y,)))) | Binary(
            "/", Num(1 | 1.0), Binary("+", Call("exp", (y,)), Num(1 | 1.0))
        ):
            return Call("sigmoid", (y.operand if isinstance(y, Unary) else build.neg(y),))
    return expr


_ZERO_AT_MINUS_INFINITY = frozenset(("sigmoid", "exp", "exp2"))


def _split_zero(weight: Expr) -> tuple[Expr, Expr]:
    """(keep, value) of a weight: removed scores and zeroed weights both drop a pair."""
    if build.value_of(weight) == 0:
        return Num(False), weight
    match weight:
        case Select(cond, then, other):
            k1, w1 = _split_zero(then)
            k2, w2 = _split_zero(other)
            keep = build.either(build.both(cond, k1), build.both(build.negate(cond), k2))
            if k1 == Num(False):
                return keep, w2
            if k2 == Num(False):
                return keep, w1
            return keep, build.select(cond, w1, w2)
        case Call(fn, (arg,)) if fn in _ZERO_AT_MINUS_INFINITY:
            keep, inner = split_mask(arg)
            return keep, Call(fn, (inner,))
        case Call("max", (Select(cond, then, other), Num(0 | 0.0) as zero)):
            return _split_zero(
                build.select(cond, build.call("max", then, zero), build.call("max", other, zero))
            )
        case Binary("*", left, right):
            k1, w1 = _split_zero(left)
            k2, w2 = _split_zero(right)
            return build.both(k1, k2), build.mul(w1, w2)
        case Binary("/", left, right):
            keep, inner = _split_zero(left)
            return keep, build.div(inner, right)
    return TRUE, weight
