"""Integer expressions as linear forms: the arithmetic under interval analysis and tidy printing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from engine.cuir.nodes import Attr, Binary, Call, Expr, Name, Num, Select, Unary


@dataclass(frozen=True, slots=True)
class Linear:
    """sum(coefficient * atom) + constant, with atoms that are not sums themselves."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def coefficient(self, atom: Expr) -> int:
        return dict(self.terms).get(atom, 0)

    def without(self, atom: Expr) -> Linear:
        return Linear(tuple(t for t in self.terms if t[0] != atom), self.constant)

    def scaled(self, factor: int) -> Linear:
        if factor == 0:
            return Linear((), 0)
        return Linear(tuple((a, c * factor) for a, c in self.terms), self.constant * factor)

    def plus(self, other: Linear) -> Linear:
        terms: dict[Expr, int] = dict(self.terms)
        for atom, coefficient in other.terms:
            terms[atom] = terms.get(atom, 0) + coefficient
        kept = tuple((a, c) for a, c in terms.items() if c)
        return Linear(kept, self.constant + other.constant)

    def to_expr(self) -> Expr:
        """Positive terms first, so that no leading minus is printed where it can be avoided."""
        out: Expr | None = None
        for atom, coefficient in sorted(self.terms, key=lambda t: t[1] < 0):
            size = abs(coefficient)
            term: Expr = atom if size == 1 else Binary("*", atom, Num(size))
            if out is None:
                out = term if coefficient > 0 else Unary("-", term)
            else:
                out = Binary("+" if coefficient > 0 else "-", out, term)
        if out is None:
            return Num(self.constant)
        if self.constant:
            out = Binary("+" if self.constant > 0 else "-", out, Num(abs(self.constant)))
        return out


@lru_cache(1 << 14)  # a nested minimum asks for each of its parts again at every level
def linear(expr: Expr) -> Linear:
    """The linear form of an integer expression; what is not linear becomes one (tidied) atom."""
    match expr:
        case Num(int() as value) if not isinstance(value, bool):
            return Linear((), value)
        case Binary("+", left, right):
            return linear(left).plus(linear(right))
        case Binary("-", left, right):
            return linear(left).plus(linear(right).scaled(-1))
        case Unary("-", operand):
            return linear(operand).scaled(-1)
        case Binary("*", left, right):
            a, b = linear(left), linear(right)
            if not a.terms:
                return b.scaled(a.constant)
            if not b.terms:
                return a.scaled(b.constant)
            return Linear(((Binary("*", a.to_expr(), b.to_expr()), 1),), 0)
        case Binary(op, left, right) if op in ("//", "%"):
            return Linear(((Binary(op, tidy(left), tidy(right)), 1),), 0)
        case Call(fn, args, kwargs, params):
            return _call(Call(fn, tuple(map(tidy, args)), kwargs, params))
        case Select(cond, then, other):
            yes, no = tidy(then), tidy(other)
            return linear(yes) if yes == no else Linear(((Select(cond, yes, no), 1),), 0)
        case _:
            return Linear(((expr, 1),), 0)


def _call(call: Call) -> Linear:
    if call.fn in ("min", "max") and len(call.args) == 2:
        a, b = call.args
        difference = linear_difference(a, b)
        if not difference.terms:  # comparable for certain
            smaller = a if difference.constant <= 0 else b
            larger = b if difference.constant <= 0 else a
            return linear(smaller if call.fn == "min" else larger)
    return Linear(((call, 1),), 0)


def linear_difference(left: Expr, right: Expr) -> Linear:
    return linear(left).plus(linear(right).scaled(-1))


def tidy(expr: Expr) -> Expr:
    """The same integer value, written as a short sum."""
    match expr:
        case Name() | Attr() | Num():
            return expr
    return linear(expr).to_expr()
