"""Canonical forms: equal meaning, equal text (for what the algebra knows).

Values are polynomials over atoms whose arguments are canonical; predicates are minimised
disjunctive normal forms. `abs`, `min`, `max` and selects inside a comparison are opened up.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from engine.cuir.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Name,
    Num,
    Select,
    Unary,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.scalar_algebra import predicate as dnf
from engine.scalar_algebra.evaluate import FUNCTIONS
from engine.scalar_algebra.kinds import FixedKinds, Kinds, fixed, is_nonnegative, kind_of
from engine.scalar_algebra.polynomial import Monomial, Poly, nice, to_expr, to_poly
from engine.scalar_algebra.rewrite import (
    FALSE,
    TRUE,
    all_of,
    any_of,
    conjuncts,
    disjuncts,
    map_children,
)  # fmt: skip

MAX_PASSES = 4
CACHE = 1 << 14  # forms kept: a recipe asks for the same parts again and again
# Beyond this many alternatives the written structure is shorter and reads better.
MAX_ALTERNATIVES = 6
_ODD = frozenset(("tanh", "erf", "sin"))
_EVEN = frozenset(("abs", "cos"))


def canonical(expr: Expr, kinds: Kinds) -> Expr:
    """The canonical form of a value or a predicate. `kinds` names the inputs that are not float."""
    known = fixed(kinds)
    for _ in range(MAX_PASSES):
        form = _once(expr, known)
        if form == expr:
            break
        expr = form
    return expr


def canonical_predicate(expr: Expr, kinds: Kinds) -> Expr:
    """The minimised normal form of a predicate; when that is large, a sorted negation form."""
    if kind_of(expr, kinds) != "bool":
        raise ValueError(f"not a predicate: {print_expr(expr)}")
    return canonical(expr, kinds)


@lru_cache(CACHE)
def _once(expr: Expr, kinds: FixedKinds) -> Expr:
    """One pass; what it simplifies may let another simplify more."""
    if isinstance(expr, Num) and not isinstance(expr.value, bool) and not math.isfinite(expr.value):
        return expr
    kind = kind_of(expr, kinds)
    if kind == "bool":
        return _predicate_once(expr, kinds)
    form = to_expr(polynomial(expr, kinds), kinds)
    return Num(float(form.value)) if isinstance(form, Num) and kind == "float" else form


def _predicate_once(expr: Expr, kinds: FixedKinds) -> Expr:
    try:
        found = normal_form(expr, kinds)
    except dnf.TooLarge:
        return _pushed(expr, True, kinds)
    if len(found) <= MAX_ALTERNATIVES:
        return dnf.dnf_expr(found, kinds)
    return _pushed(expr, True, kinds)


def polynomial(expr: Expr, kinds: Kinds) -> Poly:
    """`expr` as a polynomial over canonical atoms."""
    return _polynomial(expr, fixed(kinds))


@lru_cache(CACHE)
def _polynomial(expr: Expr, kinds: FixedKinds) -> Poly:
    return _with_one_exponential(to_poly(expr, lambda atom: _atom(atom, kinds)), kinds)


def _with_one_exponential(poly: Poly, kinds: FixedKinds) -> Poly:
    """exp2(a) * exp2(b) is exp2(a + b), and 1 / exp2(a) is exp2(-a); exp likewise."""
    if not any(isinstance(a, Call) and a.fn in ("exp2", "exp") for a in poly.atoms()):
        return poly
    out = Poly()
    for mono, coefficient in poly.terms.items():
        rest = Poly({tuple(t for t in mono if not _is_exponential(t[0])): coefficient})
        for fn in ("exp2", "exp"):
            inner = Poly()
            for atom, power in mono:
                if isinstance(atom, Call) and atom.fn == fn:
                    inner = inner + polynomial(atom.args[0], kinds).scaled(power)
            if inner.terms:
                rest = rest * Poly.atom(Call(fn, (to_expr(inner, kinds),)))
        out = out + rest
    return out


def _is_exponential(atom: Expr) -> bool:
    return isinstance(atom, Call) and atom.fn in ("exp2", "exp")


def _leading_negative(poly: Poly) -> bool:
    return bool(poly.terms) and poly.sorted_terms()[0][1] < 0


def _atom(expr: Expr, kinds: FixedKinds) -> Poly:
    match expr:
        case Binary("/", left, right):
            return polynomial(left, kinds) * Poly.atom(_once(right, kinds), Fraction(-1))
        case Binary("//", left, right) | Call("floor_div", (left, right)):
            return _division(left, right, "//", "floor_div", isinstance(expr, Call), kinds)
        case Binary("%", left, right) | Call("floor_mod", (left, right)):
            return _division(left, right, "%", "floor_mod", isinstance(expr, Call), kinds)
        case Select(cond, then, other):
            return _select(cond, then, other, kinds)
        case Call("abs", (arg,)) if is_nonnegative(_once(arg, kinds)):
            return polynomial(arg, kinds)
        case Call(fn, (arg,)) if fn in _ODD or fn in _EVEN:
            inner = polynomial(arg, kinds)
            flip = _leading_negative(inner)
            call = _called(Call(fn, (to_expr(-inner if flip else inner, kinds),)))
            return -call if flip and fn in _ODD else call
        case Call("min" | "max" as fn, args):
            return _extremum(fn, args, kinds)
        case Call("exp", (arg,)):
            inner = polynomial(arg, kinds).scaled(nice(math.log2(math.e)))
            simple = {m: c.limit_denominator(4096) for m, c in inner.terms.items()}
            if all(
                abs(simple[m] - c) <= abs(c) * Fraction(1, 10**14) for m, c in inner.terms.items()
            ):
                return _called(Call("exp2", (to_expr(Poly(simple), kinds),)))
            return _called(Call("exp", (_once(arg, kinds),)))
        case Call("int", (arg,)) if kind_of(arg, kinds) != "float":
            return polynomial(arg, kinds)
        case Compare() | Bool() | Unary("not", _):
            return _select(expr, Num(1), Num(0), kinds)
        case Index(Name() as base, index):
            return Poly.atom(Index(base, tuple(_once(i, kinds) for i in index)))
        case Call(fn):
            return _called(map_children(expr, lambda e: _once(e, kinds)))
        case Binary():
            return Poly.atom(map_children(expr, lambda e: _once(e, kinds)))
        case Num(bool() as value):
            return Poly.number(int(value))
    return Poly.atom(expr)


def _called(call: Expr) -> Poly:
    """A function of numbers is a number; anything else is an atom."""
    if isinstance(call, Call) and call.fn in FUNCTIONS:
        values = [a.value for a in call.args if isinstance(a, Num)]
        if len(values) == len(call.args):
            value = float(FUNCTIONS[call.fn](*values))
            return Poly.number(nice(value)) if math.isfinite(value) else Poly.atom(Num(value))
    return Poly.atom(call)


def _division(left: Expr, right: Expr, op: str, fn: str, floors: bool, kinds: FixedKinds) -> Poly:
    a, b = _once(left, kinds), _once(right, kinds)
    if isinstance(a, Num) and isinstance(b, Num) and b.value:
        return Poly.number(Fraction(a.value // b.value if op == "//" else a.value % b.value))
    if b == Num(1):
        return polynomial(a, kinds) if op == "//" else Poly()
    # On operands that cannot be negative, flooring and truncating agree.
    if not floors or (is_nonnegative(a) and is_nonnegative(b)):
        return Poly.atom(Binary(op, a, b))
    return Poly.atom(Call(fn, (a, b)))


def _select(cond: Expr, then: Expr, other: Expr, kinds: FixedKinds) -> Poly:
    yes, no = _predicate_once(cond, kinds), _predicate_once(Unary("not", cond), kinds)
    if yes == TRUE:
        return polynomial(then, kinds)
    if yes == FALSE:
        return polynomial(other, kinds)
    a, b = polynomial_or_atom(then, kinds), polynomial_or_atom(other, kinds)
    if a == b:
        return a
    if (len(print_expr(no)), print_expr(no)) < (len(print_expr(yes)), print_expr(yes)):
        yes, a, b = no, b, a
    return Poly.atom(Select(yes, to_expr(a, kinds), to_expr(b, kinds)))


def polynomial_or_atom(expr: Expr, kinds: Kinds) -> Poly:
    if isinstance(expr, Num) and not math.isfinite(expr.value):
        return Poly.atom(expr)
    return polynomial(expr, kinds)


def _extremum(fn: str, args: tuple[Expr, ...], kinds: FixedKinds) -> Poly:
    flat: list[Expr] = []
    for arg in args:
        inner = _once(arg, kinds)
        flat += inner.args if isinstance(inner, Call) and inner.fn == fn else [inner]
    unique = sorted(set(flat), key=print_expr)
    numbers = [u.value for u in unique if isinstance(u, Num)]
    rest: list[Expr] = [u for u in unique if not isinstance(u, Num)]
    if numbers:
        number = (min if fn == "min" else max)(numbers)
        whole = all(kind_of(r, kinds) == "int" for r in rest)
        rest.append(Num(number if whole or not rest else float(number)))
    out = rest[0]
    for item in rest[1:]:
        out = Call(fn, (out, item))
    return polynomial(out, kinds) if isinstance(out, Num) else Poly.atom(out)


# --- predicates ----------------------------------------------------------------------------------

_RELATION: dict[str, tuple[dnf.Relation, int]] = {
    "<": ("gt", -1), "<=": ("ge", -1), ">": ("gt", 1), ">=": ("ge", 1),
    "==": ("eq", 1), "!=": ("ne", 1),
}  # fmt: skip


def normal_form(expr: Expr, kinds: Kinds) -> dnf.Dnf:
    """The minimised disjunctive normal form. Raises `predicate.TooLarge`."""
    return _normal_form(expr, fixed(kinds))


@lru_cache(CACHE)
def _normal_form(expr: Expr, kinds: FixedKinds) -> dnf.Dnf:
    match expr:
        case Num(value):
            return dnf.YES if value else dnf.NO
        case Bool("and", left, right):
            return dnf.conjoin(normal_form(left, kinds), normal_form(right, kinds))
        case Bool("or", left, right):
            return dnf.disjoin(normal_form(left, kinds), normal_form(right, kinds))
        case Unary("not", operand):
            return dnf.negate(normal_form(operand, kinds))
        case Select(cond, then, other):
            c = normal_form(cond, kinds)
            yes = dnf.conjoin(c, normal_form(then, kinds))
            return dnf.disjoin(yes, dnf.conjoin(dnf.negate(c), normal_form(other, kinds)))
        case Compare("==" | "!=" as op, left, right) if (
            kind_of(left, kinds) == "bool" == kind_of(right, kinds)
        ):
            a, b = normal_form(left, kinds), normal_form(right, kinds)
            same = dnf.disjoin(dnf.conjoin(a, b), dnf.conjoin(dnf.negate(a), dnf.negate(b)))
            return same if op == "==" else dnf.negate(same)
        case Compare(op, left, right):
            relation, sign = _RELATION[op]
            poly = polynomial_or_atom(left, kinds) - polynomial_or_atom(right, kinds)
            return _open(relation, poly.scaled(sign), kinds)
        case Index() | Name() | Call():
            return dnf.truth_value(canonical_load(expr, kinds))
    raise ValueError(f"not a predicate: {print_expr(expr)}")


def canonical_load(expr: Expr, kinds: FixedKinds) -> Expr:
    return map_children(expr, lambda e: _once(e, kinds))


def _open(relation: dnf.Relation, poly: Poly, kinds: FixedKinds) -> dnf.Dnf:
    """`poly REL 0` with one abs, min, max or select of a linear term opened, recursively.

    A truth value that is counted with is a select of 1 and 0, and a select may have factors.
    """
    for mono, coefficient in poly.sorted_terms():
        found = _to_open(mono, kinds)
        if found is None:
            continue
        atom, factors = found
        if relation == "eq":
            return dnf.conjoin(_open("ge", poly, kinds), _open("ge", -poly, kinds))
        if relation == "ne":
            return dnf.disjoin(_open("gt", poly, kinds), _open("gt", -poly, kinds))
        rest = Poly({m: c for m, c in poly.terms.items() if m != mono})

        scaled = factors.scaled(coefficient)

        def put(value: Expr, rest: Poly = rest, scaled: Poly = scaled) -> dnf.Dnf:
            inner = rest + polynomial_or_atom(value, kinds) * scaled
            return _open(relation, inner, kinds)

        if isinstance(atom, Select):
            cond = normal_form(atom.cond, kinds)
            yes = dnf.conjoin(cond, put(atom.then))
            return dnf.disjoin(yes, dnf.conjoin(dnf.negate(cond), put(atom.other)))
        options = (atom.args[0], Unary("-", atom.args[0])) if atom.fn == "abs" else atom.args
        # abs and max grow with their larger option: p >= 0 needs one of them when they help.
        grows = atom.fn != "min"
        combine = dnf.disjoin if grows == (coefficient > 0) else dnf.conjoin
        out = put(options[0])
        for option in options[1:]:
            out = combine(out, put(option))
        return out
    return dnf.compare(relation, poly, kinds)


def _to_open(mono: Monomial, kinds: FixedKinds) -> tuple[Select | Call, Poly] | None:
    """What of a term is opened, and the factors beside it."""
    for atom, power in mono:
        if power != 1:
            continue
        others = Poly({tuple(part for part in mono if part[0] != atom): Fraction(1)})
        if isinstance(atom, Select) and (len(mono) == 1 or not _has_infinity(atom)):
            return atom, others
        if isinstance(atom, Index) and kind_of(atom, kinds) == "bool":
            return Select(atom, Num(1), Num(0)), others
        if len(mono) == 1 and isinstance(atom, Call) and atom.fn in ("abs", "min", "max"):
            return atom, others
    return None


def _has_infinity(expr: Expr) -> bool:
    return any(isinstance(n, Num) and not math.isfinite(n.value) for n in walk_expr(expr))


def _short(expr: Expr, positive: bool, kinds: FixedKinds) -> Expr:
    """A part of a large predicate: its own normal form when that is small."""
    whole = expr if positive else Unary("not", expr)
    try:
        found = normal_form(whole, kinds)
    except dnf.TooLarge:
        return _pushed(expr, positive, kinds)
    if len(found) <= MAX_ALTERNATIVES:
        return dnf.dnf_expr(found, kinds)
    return _pushed(expr, positive, kinds)


def _pushed(expr: Expr, positive: bool, kinds: FixedKinds) -> Expr:
    """Negation normal form with sorted, deduplicated parts."""
    match expr:
        case Unary("not", operand):
            return _pushed(operand, not positive, kinds)
        case Bool(op):
            conjunction = (op == "and") == positive
            split = conjuncts if conjunction else disjuncts
            whole = conjuncts(expr) if op == "and" else disjuncts(expr)
            parts = {piece for e in whole for piece in split(_short(e, positive, kinds))}
            return (all_of if conjunction else any_of)(sorted(parts, key=print_expr))
    atom = expr if positive else Unary("not", expr)
    try:
        return dnf.dnf_expr(normal_form(atom, kinds), kinds)
    except dnf.TooLarge:
        return map_children(atom, lambda e: _once(e, kinds))
