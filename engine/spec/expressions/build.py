"""Smart constructors for the expressions of a trace: light folding only.

Folding must not depend on sizes by accident, since the traces at several sizes are laid over each
other afterwards; so nothing here reasons about ranges, except the exact radix split of a view.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from engine.cuir.nodes import (
    MIRRORED,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Lambda,
    Name,
    Num,
    Select,
    Unary,
)  # fmt: skip
from engine.scalar_algebra.evaluate import FUNCTIONS
from engine.scalar_algebra.kinds import Kind, Kinds, kind_of
from engine.scalar_algebra.polynomial import Poly, to_expr, to_poly
from engine.scalar_algebra.rewrite import FALSE, TRUE

ZERO, ONE = Num(0), Num(1)
REDUCTIONS = ("sum_over", "max_over", "any_over", "all_over")


class AllInt(Mapping[str, Kind]):
    """Kinds where every name is an integer: index arithmetic."""

    def __getitem__(self, key: str) -> Kind:
        return "int"

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(())

    def __len__(self) -> int:
        return 0


INDEX_KINDS = AllInt()


def probe(position: int) -> Expr:
    """A stand-in index, to try whether an element can be read."""
    return Name(f"%p{position}")


def value_of(expr: Expr) -> float | int | None:
    """The number that `expr` is, truth values excluded."""
    if isinstance(expr, Num) and not isinstance(expr.value, bool):
        return expr.value
    return None


def integer(expr: Expr) -> int:
    """The whole number that `expr` is."""
    assert isinstance(expr, Num) and isinstance(expr.value, int)
    return expr.value


def is_reduction(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn in REDUCTIONS


def reduction(fn: str, var: str, extent: int, body: Expr) -> Expr:
    """`fn` of `body` over `var` in 0..extent-1."""
    return Call(fn, (Lambda((var,), body), Num(extent)))


# --- arithmetic ----------------------------------------------------------------------------------


def add(a: Expr, b: Expr) -> Expr:
    x, y = value_of(a), value_of(b)
    if x is not None and y is not None:
        return Num(x + y)
    if x == 0:
        return b
    if y == 0:
        return a
    spread = _spread("+", a, b)
    return spread or Binary("+", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    x, y = value_of(a), value_of(b)
    if x is not None and y is not None:
        return Num(x - y)
    if y == 0:
        return a
    if x == 0:
        return neg(b)
    spread = _spread("-", a, b)
    return spread or Binary("-", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    x, y = value_of(a), value_of(b)
    if x is not None and y is not None:
        return Num(x * y)
    if _is_one(x):
        return b
    if _is_one(y):
        return a
    spread = _spread("*", a, b)
    if spread is None and y is not None and isinstance(a, Binary) and a.op == "*":
        inner = value_of(a.right)
        if inner is not None and _is_one(inner * y):
            return a.left
    return spread or Binary("*", a, b)


def _is_one(value: float | int | None) -> bool:
    """1, or what log2(e) * ln(2) comes to."""
    return value is not None and abs(value - 1) < 4e-16


def div(a: Expr, b: Expr) -> Expr:
    x, y = value_of(a), value_of(b)
    if x is not None and y:
        return Num(x / y)
    if y == 1:
        return a
    spread = _spread("/", a, b)
    return spread or Binary("/", a, b)


def neg(a: Expr) -> Expr:
    x = value_of(a)
    if x is not None:
        return Num(-x)
    if isinstance(a, Unary) and a.op == "-":
        return a.operand
    if isinstance(a, Select) and _constant_branches(a):
        return Select(a.cond, neg(a.then), neg(a.other))
    return Unary("-", a)


def _constant_branches(expr: Expr) -> bool:
    return (
        isinstance(expr, Select)
        and value_of(expr.then) is not None
        and value_of(expr.other) is not None
    )


def _spread(op: str, a: Expr, b: Expr) -> Expr | None:
    """A number with a select of numbers: the operation moves into the select."""
    apply = {"+": add, "-": sub, "*": mul, "/": div}[op]
    if isinstance(a, Select) and _constant_branches(a) and value_of(b) is not None:
        return select(a.cond, apply(a.then, b), apply(a.other, b))
    if isinstance(b, Select) and _constant_branches(b) and value_of(a) is not None:
        return select(b.cond, apply(a, b.then), apply(a, b.other))
    return None


def call(fn: str, *args: Expr) -> Expr:
    values = [value_of(a) for a in args]
    if fn in FUNCTIONS and all(v is not None for v in values):
        folded = FUNCTIONS[fn](*values)
        return Num(folded)
    if len(args) == 1 and isinstance(args[0], Select) and _constant_branches(args[0]):
        return select(args[0].cond, call(fn, args[0].then), call(fn, args[0].other))
    return Call(fn, args)


def power(a: Expr, b: Expr) -> Expr:
    """a ** b by products, roots and exp2."""
    x, y = value_of(a), value_of(b)
    if x is not None and y is not None:
        return Num(x**y)
    if y is not None:
        if float(y).is_integer() and abs(y) <= 8:
            out: Expr = ONE
            for _ in range(int(abs(y))):
                out = mul(out, a)
            return out if y >= 0 else div(Num(1.0), out)
        if y in (0.5, -0.5):
            return call("sqrt" if y > 0 else "rsqrt", a)
    if x is not None and x > 0:
        return call("exp2", mul(b, Num(math.log2(x))))
    if isinstance(a, Call) and a.fn in ("exp2", "exp"):
        return call(a.fn, mul(b, a.args[0]))
    return call("exp2", mul(b, call("log2", a)))


# --- predicates ----------------------------------------------------------------------------------


def negate(p: Expr) -> Expr:
    if isinstance(p, Num):
        return FALSE if p.value else TRUE
    if isinstance(p, Unary) and p.op == "not":
        return p.operand
    return Unary("not", p)


def both(a: Expr, b: Expr) -> Expr:
    if FALSE in (a, b):
        return FALSE
    if a == TRUE:
        return b
    return a if b == TRUE else Bool("and", a, b)


def either(a: Expr, b: Expr) -> Expr:
    if TRUE in (a, b):
        return TRUE
    if a == FALSE:
        return b
    return a if b == FALSE else Bool("or", a, b)


def select(cond: Expr, then: Expr, other: Expr) -> Expr:
    if cond == TRUE or then == other:
        return then
    if cond == FALSE:
        return other
    if then == TRUE and other == FALSE:
        return cond
    if then == FALSE and other == TRUE:
        return negate(cond)
    return Select(cond, then, other)


def compare(op: str, a: Expr, b: Expr) -> Expr:
    """A comparison; one of a select of two numbers with a number becomes its condition."""
    x, y = value_of(a), value_of(b)
    if x is not None and y is not None:
        return Num(
            bool(
                {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}[op]
            )
        )
    if isinstance(a, Select) and _constant_branches(a) and y is not None:
        return select(a.cond, compare(op, a.then, b), compare(op, a.other, b))
    if isinstance(b, Select) and _constant_branches(b) and x is not None:
        return compare(MIRRORED[op], b, a)
    return Compare(op, a, b)


def as_number(expr: Expr, kinds: Kinds) -> Expr:
    """A truth value as 1 or 0."""
    if isinstance(expr, Num) and isinstance(expr.value, bool):
        return Num(int(expr.value))
    return select(expr, ONE, ZERO) if kind_of(expr, kinds) == "bool" else expr


def as_truth(expr: Expr, kinds: Kinds) -> Expr:
    """A number as a truth value."""
    if isinstance(expr, Num):
        return Num(bool(expr.value))
    return expr if kind_of(expr, kinds) == "bool" else compare("!=", expr, ZERO)


# --- index arithmetic ----------------------------------------------------------------------------


def index_poly(expr: Expr) -> Poly:
    return to_poly(expr, Poly.atom)


def index_expr(poly: Poly) -> Expr:
    return to_expr(_recombined(poly), INDEX_KINDS)


def _recombined(poly: Poly) -> Poly:
    """c * (a // c) + a % c is a, at any common factor."""
    for mono, coefficient in poly.terms.items():
        match mono:
            case ((Call("floor_mod", (a, Num(int() as c))), power),) if power == 1:
                whole = ((Call("floor_div", (a, Num(c))), Fraction(1)),)
                if poly.terms.get(whole) == coefficient * c:
                    rest = Poly({m: k for m, k in poly.terms.items() if m not in (mono, whole)})
                    return _recombined(rest + index_poly(a).scaled(coefficient))
    return poly


def bounds(expr: Expr, extents: Mapping[str, int]) -> tuple[int, int] | None:
    """The least and greatest value of an index expression, when known."""
    match expr:
        case Num(int() as value):
            return value, value
        case Name(id) if id in extents:
            return 0, extents[id] - 1
        case Call("floor_mod", (_, Num(int() as c))) if c > 0:
            return 0, c - 1
        case Call("floor_div", (a, Num(int() as c))) if c > 0:
            inner = bounds(a, extents)
            return None if inner is None else (inner[0] // c, inner[1] // c)
        case Binary("+" | "-" | "*") | Unary("-", _):
            low = high = 0
            for mono, coefficient in index_poly(expr).terms.items():
                if len(mono) > 1 or (mono and mono[0][1] != 1) or coefficient.denominator != 1:
                    return None
                inner = bounds(mono[0][0], extents) if mono else (1, 1)
                if inner is None:
                    return None
                ends = (int(coefficient) * inner[0], int(coefficient) * inner[1])
                low, high = low + min(ends), high + max(ends)
            return low, high
    return None


def divmod_index(expr: Expr, by: int, extents: Mapping[str, int]) -> tuple[Expr, Expr]:
    """Quotient and remainder by a constant, split exactly where the radix is exact.

    The remainder part must run over all of 0..by-1: an extent that happens to be smaller than a
    constant of the user's (`i // 64` on a short trace) must not make the quotient vanish.
    """
    if by == 1:
        return expr, ZERO
    poly = index_poly(expr)
    whole = Poly({m: c for m, c in poly.terms.items() if c.denominator == 1 and c % by == 0})
    rest_poly = poly - whole
    rest = index_expr(rest_poly)
    span = bounds(rest, extents)
    if not rest_poly.terms or span in ((0, by - 1), (0, 0)):
        return index_expr(whole.scaled(Fraction(1, by))), rest
    quotient = index_expr(
        whole.scaled(Fraction(1, by)) + Poly.atom(Call("floor_div", (rest, Num(by))))
    )
    return quotient, Call("floor_mod", (rest, Num(by)))


def load(tensor: str, index: tuple[Expr, ...]) -> Expr:
    return Index(Name(tensor), index) if index else Name(tensor)
