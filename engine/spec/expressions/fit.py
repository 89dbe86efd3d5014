"""Lay the readings of several sizes over each other: numbers that vary become size expressions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from engine.cuir.nodes import (
    Binary,
    Call,
    Expr,
    Index,
    Lambda,
    Name,
    Num,
    children,
    names_in,
    walk_expr,
)  # fmt: skip
from engine.cuir.printer import print_expr
from engine.scalar_algebra.evaluate import evaluate
from engine.scalar_algebra.polynomial import nice
from engine.scalar_algebra.rewrite import free_names, map_children, rename
from engine.spec.expressions import build

Sizes = Mapping[str, int]
ROLL = "%n"
PART = Name("%part")


class Mismatch(Exception):
    """Two sizes gave different expressions: the spec takes another path there."""

    def __init__(self, forms: Sequence[Expr]) -> None:
        texts = list(dict.fromkeys(print_expr(f) for f in forms))
        super().__init__(" / ".join(texts[:2]))
        self.texts = texts


class NoForm(Exception):
    """A value varies with the sizes in no way that is known."""

    def __init__(self, values: Sequence[float]) -> None:
        shown = ", ".join(f"{v:g}" for v in values)
        super().__init__(f"a value varies with the sizes as {shown}")


def unify(forms: Sequence[Expr], sizes: Sequence[Sizes]) -> Expr:
    """One expression over size names that equals `forms[n]` at `sizes[n]`."""
    first = forms[0]
    if all(f == first for f in forms[1:]):
        return first
    if all(isinstance(f, Num) for f in forms):
        return _fitted(forms, [f.value for f in forms if isinstance(f, Num)], sizes)
    if all(isinstance(f, Lambda) for f in forms):
        return _under_one_variable([f for f in forms if isinstance(f, Lambda)], sizes)
    if len({map_children(f, lambda _: PART) for f in forms}) != 1:
        values = [_of_sizes(f, s) for f, s in zip(forms, sizes, strict=True)]
        known = [v for v in values if v is not None]
        if len(known) == len(forms):  # such as `min(Nk, 64)` in Python, known where it is Nk
            return _fitted(forms, known, sizes)
        return _by_value(forms, sizes)
    parts = (unify(column, sizes) for column in zip(*map(_parts, forms), strict=True))
    return map_children(first, lambda _: next(parts))


def _parts(expr: Expr) -> tuple[Expr, ...]:
    return expr.index if isinstance(expr, Index) else children(expr)


def _fitted(forms: Sequence[Expr], values: Sequence[float], sizes: Sequence[Sizes]) -> Expr:
    if any(isinstance(v, bool) or not math.isfinite(v) for v in values):
        raise Mismatch(forms)
    return fit(values, sizes)


def _of_sizes(expr: Expr, at: Sizes) -> float | None:
    """The number that an expression over sizes alone is; None for any other."""
    names = names_in(expr)
    if not names <= set(at) or any(isinstance(e, Index | Lambda) for e in walk_expr(expr)):
        return None
    value = evaluate(expr, dict(at))
    return value if type(value) in (int, float) else None


def _under_one_variable(forms: Sequence[Lambda], sizes: Sequence[Sizes]) -> Expr:
    """Bound variables have no meaning beyond their body: all take the first one's name."""
    first = forms[0]
    bodies = [
        rename(f.body, {p: Name(q) for p, q in zip(f.params, first.params, strict=True)})
        for f in forms
    ]
    return Lambda(first.params, unify(bodies, sizes))


def rolled(parts: Sequence[Expr], position: Expr) -> Expr | None:
    """One expression over `position` that gives `parts[n]` at n: a Python loop, rolled up again."""
    try:
        form = unify(parts, [{ROLL: n} for n in range(len(parts))])
    except (Mismatch, NoForm):
        return None
    return rename(form, {ROLL: position})


def _by_value(forms: Sequence[Expr], sizes: Sequence[Sizes]) -> Expr:
    """A term that vanished at one size (`i + 0`): compare as sums."""
    bases = [_offset(f) for f in forms]
    if all(b is not None for b in bases):
        heads = {b[0] for b in bases if b is not None}
        if len(heads) == 1:
            values = [b[1] for b in bases if b is not None]
            return build.add(next(iter(heads)), fit(values, sizes))
    raise Mismatch(forms)


def _offset(expr: Expr) -> tuple[Expr, float] | None:
    match expr:
        case Binary("+", left, Num(value)):
            return left, value
        case Binary("-", left, Num(value)):
            return left, -value
        case Name() | Index():
            return expr, 0
    return None


# --- numbers -------------------------------------------------------------------------------------


def fit(values: Sequence[float], sizes: Sequence[Sizes]) -> Expr:
    """The simplest a * f + c over `features` that gives `values`. Raises `NoForm`."""
    if all(v == values[0] for v in values):
        return Num(values[0])
    whole = all(isinstance(v, int) for v in values)
    features = _features(sizes, whole)
    # A whole number is a fraction of a size only where it is no multiple of anything known.
    for exact in (True, False) if whole else (False,):
        for expr, column in features:
            slope = _slope(values, column, offset=False)
            if slope is not None and (slope.denominator == 1 or not exact):
                return _scaled(expr, slope, whole)
        for expr, column in features:
            slope = _slope(values, column, offset=True)
            if slope is not None and (slope.denominator == 1 or not exact):
                constant = values[0] - float(slope) * column[0]
                number = round(constant) if whole else float(nice(constant))
                scaled = _scaled(expr, slope, whole)
                return Binary("-" if number < 0 else "+", scaled, Num(abs(number)))
    if not whole:
        for expr, column in _products(sizes):
            slope = _slope(values, column, offset=False)
            if slope is not None:
                return _scaled(expr, slope, whole)
    if not whole and all(v > 0 for v in values) and any(v < 1 for v in values):
        return Call("exp2", (fit_linear([math.log2(v) for v in values], sizes, values),))
    raise NoForm(values)


def _products(sizes: Sequence[Sizes]) -> Iterator[tuple[Expr, list[float]]]:
    """Two features of different sizes multiplied, such as log(Nk) * rsqrt(D)."""
    singles = [(e, c) for e, c in _features(sizes, False) if len(free_names(e)) == 1]
    for n, (a, x) in enumerate(singles):
        for b, y in singles[n + 1 :]:
            if free_names(a) != free_names(b):
                yield Binary("*", a, b), [p * q for p, q in zip(x, y, strict=True)]


def fit_linear(logs: Sequence[float], sizes: Sequence[Sizes], values: Sequence[float]) -> Expr:
    """A geometric value by its logarithm: a * f alone. Raises `NoForm` with the value itself."""
    for expr, column in _features(sizes, False):
        slope = _slope(logs, column, offset=False)
        if slope is not None:
            return _scaled(expr, slope, False)
    raise NoForm(values)


def _slope(values: Sequence[float], column: Sequence[float], *, offset: bool) -> Fraction | None:
    if offset:
        pairs = [
            (v - values[0], c - column[0]) for v, c in zip(values[1:], column[1:], strict=True)
        ]
    else:
        pairs = list(zip(values, column, strict=True))
    pivot = next(((v, c) for v, c in pairs if c), None)
    if pivot is None:
        return None
    slope = pivot[0] / pivot[1]
    if slope == 0:
        return None
    scale = max(abs(v) for v in values)
    if any(abs(slope * c - v) > 1e-12 * scale for v, c in pairs):
        return None
    return nice(slope)


def _scaled(expr: Expr, slope: Fraction, whole: bool) -> Expr:
    if slope == 1:
        return expr
    if whole and slope.denominator == 1:
        return Binary("*", Num(int(slope)), expr)
    if whole:
        return Binary("//", Binary("*", Num(slope.numerator), expr), Num(slope.denominator))
    return Binary("*", Num(float(slope)), expr)


def _features(sizes: Sequence[Sizes], whole: bool) -> list[tuple[Expr, list[float]]]:
    """Size expressions, simplest first, each with its value at every size."""
    known = ("Nk", "Nq", "D", "Dv", "Hq", "Hkv", "B")
    names = [n for n in known if all(n in s for s in sizes)]
    names += sorted(n for n in sizes[0] if n not in known and all(n in s for s in sizes))
    # Sizes that are always equal (one name for both) are one size.
    unique: list[str] = []
    for name in names:
        if not any(all(s[name] == s[u] for s in sizes) for u in unique):
            unique.append(name)
    out: list[tuple[Expr, list[float]]] = []

    def put(expr: Expr, column: list[float]) -> None:
        if len(set(column)) > 1:
            out.append((expr, column))

    def column(name: str) -> list[float]:
        return [float(s[name]) for s in sizes]

    for n in unique:
        put(Name(n), column(n))
    if not whole:
        for n in unique:
            if min(column(n)) <= 0:
                continue
            put(Call("rsqrt", (Name(n),)), [1 / math.sqrt(c) for c in column(n)])
            put(Binary("/", Num(1.0), Name(n)), [1 / c for c in column(n)])
            put(Call("log", (Name(n),)), [math.log(c) for c in column(n)])
            put(Call("sqrt", (Name(n),)), [math.sqrt(c) for c in column(n)])
            root = Call("sqrt", (Call("sqrt", (Name(n),)),))
            put(root, [c**0.25 for c in column(n)])
            put(Binary("/", Num(1.0), root), [c**-0.25 for c in column(n)])
            put(Binary("/", Num(1.0), Binary("*", Name(n), Name(n))), [c**-2 for c in column(n)])
    for a in unique:
        for b in unique:
            if a == b:
                continue
            x, y = column(a), column(b)
            pair = list(zip(x, y, strict=True))
            usual = (("Nk", "Nq"), ("Nq", "Nk"), ("Hq", "Hkv"), ("D", "Dv"))
            if (a, b) in usual or (a in ("Nk", "Nq") and b not in known):
                put(Binary("-", Name(a), Name(b)), [p - q for p, q in pair])
                gap = [max(p - q, 0.0) for p, q in pair]
                put(Call("max", (Binary("-", Name(a), Name(b)), Num(0))), gap)
            if a == "Hq" and b == "Hkv":
                put(Binary("//", Name(a), Name(b)), [float(p // q) for p, q in pair])
            if a < b:
                put(Binary("+", Name(a), Name(b)), [p + q for p, q in pair])
                put(Binary("*", Name(a), Name(b)), [p * q for p, q in pair])
            lengths = {a, b} <= {"Nk", "Nq"} or not {a, b} <= {*known}
            if a < b and lengths:  # of others no spec takes the smaller one
                put(Call("min", (Name(a), Name(b))), [min(p, q) for p, q in pair])
                put(Call("max", (Name(a), Name(b))), [max(p, q) for p, q in pair])
            if not whole and min(*x, *y) > 0:
                quotient = Binary("/", Binary("*", Num(1.0), Name(a)), Name(b))
                put(quotient, [p / q for p, q in pair])
                ratio = Call("log", (quotient,))
                put(ratio, [math.log(p / q) for p, q in pair])
    for n in (n for n in unique if n in ("Nk", "Nq") and whole):
        # Blocks of a length that the spec names: the block of the last row, and of the one after.
        for block in (b for b in unique if b not in known and min(column(b)) > 0):
            pair = list(zip(column(n), column(block), strict=True))
            last = Call("floor_div", (Binary("-", Name(n), Num(1)), Name(block)))
            put(last, [float((p - 1) // q) for p, q in pair])
            put(Call("floor_div", (Name(n), Name(block))), [float(p // q) for p, q in pair])
    for n in unique:
        for parts in range(2, len(sizes)) if n == ROLL else (2, 3, 4, 8, 16):
            divided = [float(int(c) // parts) for c in column(n)]
            whole_part = Call("floor_div", (Name(n), Num(parts)))
            put(whole_part if n == ROLL else Binary("//", Name(n), Num(parts)), divided)
    return out
