"""Polynomials over scalar atoms with exact rational coefficients.

An atom is anything that is not a sum or a product: a variable, a size, a load, a call, a select.
Powers are rational, so that `rsqrt(D)` is D to the minus one half. Floats become the rational that
a person meant (`0.1` is 1/10) when that rational rounds to the same float within 4 ulp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

from engine.cuir.nodes import Binary, Call, Expr, Index, Name, Num, Unary
from engine.cuir.printer import print_expr
from engine.scalar_algebra.kinds import Kinds, is_int, is_nonnegative

Monomial = tuple[tuple[Expr, Fraction], ...]
ONE = Fraction(1)
_ORDER = {name: n for n, name in enumerate(
    ("x", "s", "j", "i", "h", "b", "Nk", "Nq", "Hq", "Hkv", "B", "D", "Dv")
)}  # fmt: skip
MAX_TERMS = 64


def atom_key(atom: Expr) -> tuple[int, str]:
    """Sorts variables as people read them, then everything else by its text."""
    if isinstance(atom, Name):
        return (_ORDER.get(atom.id, 20), atom.id)
    return (10 if isinstance(atom, Index) else 30, print_expr(atom))


def _mono_key(mono: Monomial) -> tuple[tuple[int, str, Fraction], ...]:
    return tuple((*atom_key(atom), power) for atom, power in mono)


def nice(value: float) -> Fraction:
    """The simplest rational within 4 ulp (denominator up to 1e6), else the exact value."""
    exact = Fraction(value)
    simple = exact.limit_denominator(1_000_000)
    return simple if abs(simple - exact) <= 4 * Fraction(math.ulp(value)) else exact


class _Hashed:
    """A set of terms whose hash is computed once."""

    __slots__ = ("hash", "terms")

    def __init__(self, terms: frozenset[tuple[Monomial, Fraction]]) -> None:
        self.terms = terms
        self.hash = hash(terms)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self.hash == other.hash and self.terms == other.terms


Key = _Hashed


class Poly:
    """A sum of coefficient times monomial; immutable by convention."""

    __slots__ = ("_key", "_negated_key", "terms")

    def __init__(self, terms: dict[Monomial, Fraction] | None = None) -> None:
        self.terms = {m: c for m, c in (terms or {}).items() if c}
        self._key: Key | None = None
        self._negated_key: Key | None = None

    @property
    def key(self) -> Key:
        """The terms that vary, to find polynomials that differ by a constant."""
        if self._key is None:
            self._key = _Hashed(frozenset((m, c) for m, c in self.terms.items() if m))
        return self._key

    @property
    def negated_key(self) -> Key:
        """The key of the negative."""
        if self._negated_key is None:
            self._negated_key = _Hashed(frozenset((m, -c) for m, c in self.terms.items() if m))
        return self._negated_key

    @staticmethod
    def number(value: Fraction | int) -> Poly:
        return Poly({(): Fraction(value)})

    @staticmethod
    def atom(expr: Expr, power: Fraction = ONE) -> Poly:
        return Poly({((expr, power),): ONE})

    def __add__(self, other: Poly) -> Poly:
        out = dict(self.terms)
        for mono, coefficient in other.terms.items():
            out[mono] = out.get(mono, Fraction(0)) + coefficient
        return Poly(out)

    def scaled(self, factor: Fraction | int) -> Poly:
        return Poly({m: c * factor for m, c in self.terms.items()})

    def __neg__(self) -> Poly:
        return self.scaled(-1)

    def __sub__(self, other: Poly) -> Poly:
        return self + (-other)

    def __mul__(self, other: Poly) -> Poly:
        out: dict[Monomial, Fraction] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in other.terms.items():
                mono = _times(m1, m2)
                out[mono] = out.get(mono, Fraction(0)) + c1 * c2
        return Poly(out)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Poly) and self.key == other.key and self.const == other.const

    def __hash__(self) -> int:
        return hash((self.key, self.const))

    @property
    def const(self) -> Fraction:
        return self.terms.get((), Fraction(0))

    @property
    def is_number(self) -> bool:
        return all(mono == () for mono in self.terms)

    def variables(self) -> Poly:
        """Without the constant term."""
        return Poly({m: c for m, c in self.terms.items() if m})

    def sorted_terms(self) -> list[tuple[Monomial, Fraction]]:
        # The constant goes last.
        return sorted(self.terms.items(), key=lambda t: (t[0] == (), _mono_key(t[0])))

    def atoms(self) -> Iterable[Expr]:
        for mono in self.terms:
            for atom, _ in mono:
                yield atom

    def is_integer(self, kinds: Kinds) -> bool:
        """Whether every value is an integer (integer atoms, powers and coefficients)."""
        return all(
            c.denominator == 1
            and all(p > 0 and p.denominator == 1 and is_int(a, kinds) for a, p in m)
            for m, c in self.terms.items()
        )

    def power(self, exponent: Fraction) -> Poly | None:
        """One monomial to a rational power; None when the result is not one of ours."""
        if len(self.terms) != 1:
            return None
        ((mono, coefficient),) = self.terms.items()
        if exponent.denominator != 1 and (
            coefficient < 0 or not all(is_nonnegative(atom) for atom, _ in mono)
        ):
            return None
        value = _rational_power(coefficient, exponent)
        if value is None:
            return None
        return Poly({tuple((a, p * exponent) for a, p in mono): value})


def _rational_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator == 1:
        return base ** int(exponent) if abs(exponent) <= 64 else None
    return nice(float(base) ** float(exponent))


def _times(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, Fraction(0)) + power
    items = [(a, p) for a, p in powers.items() if p]
    return tuple(sorted(items, key=lambda item: atom_key(item[0])))


def to_poly(expr: Expr, atom: Callable[[Expr], Poly]) -> Poly:
    """`expr` as a polynomial; `atom` gives the polynomial of whatever is not arithmetic."""
    match expr:
        case Num(value) if not isinstance(value, bool) and math.isfinite(value):
            return Poly.number(nice(value) if isinstance(value, float) else value)
        case Unary("-", operand):
            return -to_poly(operand, atom)
        case Binary("+", left, right):
            return to_poly(left, atom) + to_poly(right, atom)
        case Binary("-", left, right):
            return to_poly(left, atom) - to_poly(right, atom)
        case Binary("*", left, right):
            a, b = to_poly(left, atom), to_poly(right, atom)
            if len(a.terms) * len(b.terms) <= MAX_TERMS:
                return a * b
            return atom(expr)
        case Binary("/", left, right):
            denominator = to_poly(right, atom)
            inverse = denominator.power(Fraction(-1)) if denominator.terms else None
            if inverse is not None:
                return to_poly(left, atom) * inverse
            return atom(expr)
        case Call("sqrt" | "rsqrt" as fn, (arg,)):
            root = to_poly(arg, atom).power(Fraction(1, 2) if fn == "sqrt" else Fraction(-1, 2))
            return atom(expr) if root is None else root
        case Call("float", (arg,)):
            return to_poly(arg, atom)
    return atom(expr)


# --- back to expressions -----------------------------------------------------------------------


def to_expr(poly: Poly, kinds: Kinds) -> Expr:
    """The one expression of `poly`: integer sums stay together, `slope[h] * (j - i)`."""
    if poly.is_integer(kinds):
        return _sum([_int_term(m, c) for m, c in poly.sorted_terms()], Num(0))
    groups: dict[Monomial, Poly] = {}
    for mono, coefficient in poly.sorted_terms():
        whole = tuple((a, p) for a, p in mono if p > 0 and p.denominator == 1 and is_int(a, kinds))
        rest = tuple(item for item in mono if item not in whole)
        groups[rest] = groups.get(rest, Poly()) + Poly({whole: coefficient})
    return _sum([_float_term(rest, part, kinds) for rest, part in groups.items()], Num(0.0))


Signed = tuple[bool, Expr]  # (negative, magnitude)


def _sum(terms: list[Signed], zero: Expr) -> Expr:
    if not terms:
        return zero
    first = next((n for n, (negative, _) in enumerate(terms) if not negative), 0)
    terms = [terms[first], *terms[:first], *terms[first + 1 :]]
    negative, out = terms[0]
    if negative:
        out = _negated(out)
    for negative, term in terms[1:]:
        out = Binary("-" if negative else "+", out, term)
    return out


def _negated(expr: Expr) -> Expr:
    """The negation, pushed to the leftmost factor so that the print parses back to it."""
    match expr:
        case Num(value) if not isinstance(value, bool):
            return Num(-value)
        case Binary("*" | "/" as op, left, right):
            return Binary(op, _negated(left), right)
    return Unary("-", expr)


def _int_term(mono: Monomial, coefficient: Fraction) -> Signed:
    factors: list[Expr] = [atom for atom, power in mono for _ in range(int(power))]
    size = abs(int(coefficient))
    if size != 1 or not factors:
        factors.insert(0, Num(size if size < 2**63 else float(size)))
    return coefficient < 0, _product(factors)


def _float_term(rest: Monomial, part: Poly, kinds: Kinds) -> Signed:
    terms = part.sorted_terms()
    if len(terms) == 1:
        ((whole, coefficient),) = terms
        top: list[Expr] = [atom for atom, power in whole for _ in range(int(power))]
    else:
        coefficient = _content([c for _, c in terms])
        if terms[0][1] < 0:
            coefficient = -coefficient
        inner = to_expr(part.scaled(1 / coefficient), kinds)
        if not rest and abs(coefficient) == 1:
            return coefficient < 0, inner
        top = [inner]
    bottom: list[Expr] = []
    leading: list[Expr] = []
    for atom, power in rest:
        _place(atom, power, leading, bottom)
    # What is not an integer goes first: `slope[h] * (j - i)`, and x before all.
    top = sorted(leading, key=lambda e: (e != Name("x"), e != Name("s"))) + top
    size = abs(coefficient)
    if size == 1:
        pass
    elif size.numerator == 1 and top and not _is_short(size):
        bottom.append(Num(float(size.denominator)))
    elif top and top[0] == Name("x"):
        top.insert(1, Num(float(size)))
    else:
        top.insert(0, Num(float(size)))
    if not any(_is_float(e, kinds) for e in top):
        top.insert(0, Num(1.0))
    out = _product(top)
    for factor in bottom:
        out = Binary("/", out, factor)
    return coefficient < 0, out


def _is_float(expr: Expr, kinds: Kinds) -> bool:
    return not is_int(expr, kinds)


def _is_short(value: Fraction) -> bool:
    return (value.denominator & (value.denominator - 1)) == 0


def _content(values: list[Fraction]) -> Fraction:
    numerator = math.gcd(*(v.numerator for v in values))
    return Fraction(numerator, math.lcm(*(v.denominator for v in values)))


def _place(atom: Expr, power: Fraction, top: list[Expr], bottom: list[Expr]) -> None:
    whole, part = divmod(power, 1) if power > 0 else divmod(-power, 1)
    if power > 0:
        top += [atom] * int(whole)
        if part:
            top.append(_root(atom, part, "sqrt"))
    else:
        bottom += [atom] * int(whole)
        if part:
            top.append(_root(atom, part, "rsqrt"))


def _root(atom: Expr, part: Fraction, outer: str) -> Expr:
    depth = part.denominator.bit_length() - 1
    if part.numerator == 1 and 1 << depth == part.denominator:
        inner = atom
        for _ in range(depth - 1):
            inner = Call("sqrt", (inner,))
        return Call(outer, (inner,))
    exponent = Num(float(part if outer == "sqrt" else -part))
    return Call("exp2", (Binary("*", exponent, Call("log2", (atom,))),))


def _product(factors: list[Expr]) -> Expr:
    out = factors[0]
    for factor in factors[1:]:
        out = Binary("*", out, factor)
    return out
