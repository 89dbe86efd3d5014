"""Predicates in disjunctive normal form over linear comparisons, minimised.

A literal compares a polynomial with zero. Over integers every order comparison becomes `p >= 0`
with coprime coefficients, so that `j < i + 1` and `j <= i` are the same literal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from engine.cuir.nodes import Binary, Call, Compare, Expr, Index, Name, Num, Unary
from engine.cuir.printer import print_expr
from engine.scalar_algebra.kinds import Kinds, is_nonnegative
from engine.scalar_algebra.polynomial import Monomial, Poly, to_expr
from engine.scalar_algebra.rewrite import FALSE, TRUE, all_of, any_of

Relation = Literal["ge", "gt", "eq", "ne", "is", "isnot"]
_NEGATED: dict[Relation, Relation] = {"eq": "ne", "ne": "eq", "is": "isnot", "isnot": "is"}
MAX_CUBES = 24


@dataclass(frozen=True, slots=True)
class Literal_:
    """`poly REL 0`, or a truth value (`is` / `isnot`) that nothing here can look into."""

    relation: Relation
    poly: Poly
    truth: Expr | None = None
    integer: bool = False

    def negated(self) -> Literal_:
        if self.relation == "ge":
            if self.integer:
                return Literal_("ge", -self.poly - Poly.number(1), None, True)
            return Literal_("gt", -self.poly)
        if self.relation == "gt":
            return Literal_("ge", -self.poly)
        return Literal_(_NEGATED[self.relation], self.poly, self.truth, self.integer)


Cube = frozenset[Literal_]
Dnf = frozenset[Cube]
YES: Dnf = frozenset((frozenset(),))
NO: Dnf = frozenset()


class TooLarge(Exception):
    """The normal form would have more than `MAX_CUBES` cubes."""


def compare(relation: Relation, poly: Poly, kinds: Kinds) -> Dnf:
    """`poly REL 0` as a normal form, with integer comparisons made coprime and closed."""
    if poly.is_number:
        value = poly.const
        truth = {"ge": value >= 0, "gt": value > 0, "eq": value == 0, "ne": value != 0}[relation]
        return YES if truth else NO
    scale = math.lcm(*(c.denominator for c in poly.variables().terms.values()))
    poly = poly.scaled(scale)
    integer = poly.variables().is_integer(kinds)
    if integer:
        if relation == "gt":
            relation = "ge"
            poly = poly - Poly.number(1) if poly.const.denominator == 1 else poly
        common = math.gcd(*(int(c) for c in poly.variables().terms.values()))
        const = poly.const / common
        if relation in ("eq", "ne") and const.denominator != 1:
            return NO if relation == "eq" else YES
        poly = poly.variables().scaled(Fraction(1, common)) + Poly.number(math.floor(const))
    else:
        size = abs(poly.sorted_terms()[0][1])
        poly = poly.scaled(1 / size)
    if relation in ("eq", "ne") and poly.sorted_terms()[0][1] < 0:
        poly = -poly
    return _minimise(frozenset((frozenset((Literal_(relation, poly, None, integer),)),)))


def truth_value(expr: Expr) -> Dnf:
    return frozenset((frozenset((Literal_("is", Poly(), expr),)),))


def conjoin(left: Dnf, right: Dnf) -> Dnf:
    if len(left) * len(right) > 4 * MAX_CUBES:
        raise TooLarge
    return _minimise(frozenset(a | b for a in left for b in right))


def disjoin(left: Dnf, right: Dnf) -> Dnf:
    return _minimise(left | right)


def negate(dnf: Dnf) -> Dnf:
    out = YES
    for cube in sorted(dnf, key=_cube_key):
        out = conjoin(out, frozenset(frozenset((literal.negated(),)) for literal in cube))
    return out


# --- minimisation --------------------------------------------------------------------------------

_FACTS: tuple[Poly, ...] = tuple(
    fact
    for index, size in (("j", "Nk"), ("i", "Nq"), ("h", "Hq"), ("b", "B"))
    for fact in (
        Poly.atom(Name(index)),
        Poly.atom(Name(size)) - Poly.atom(Name(index)) - Poly.number(1),
    )
) + tuple(Poly.atom(Name(size)) for size in ("Nq", "Nk"))
# j < i + Nk and the like follow from two of them.
_FACTS += tuple(a + b for a in _FACTS[:2] for b in _FACTS[2:4])


def _ranges(poly: Poly) -> Iterator[Poly]:
    """What holds of quotients and remainders by themselves: e // c >= 0, 0 <= e % c < c."""
    for atom in poly.atoms():
        match atom:
            case Binary("//", _, _) if is_nonnegative(atom):
                yield Poly.atom(atom)
            case Binary("%", _, Num(int() as c)) if is_nonnegative(atom):
                yield Poly.atom(atom)
                yield Poly.number(c - 1) - Poly.atom(atom)
            case Call("floor_mod", (_, Num(int() as c))) if c > 0:
                yield Poly.atom(atom)
                yield Poly.number(c - 1) - Poly.atom(atom)


def _by_domain(literal: Literal_) -> bool | None:
    """Whether 0 <= i < Nq and so on already decide the literal."""
    if not literal.integer or literal.relation not in ("ge", "eq", "ne"):
        return None
    poly = literal.poly
    for fact in (*_FACTS, *_ranges(poly)):
        if poly.key == fact.key:
            margin = poly.const - fact.const
            if margin >= 0 and literal.relation == "ge":
                return True
            if margin > 0:
                return literal.relation == "ne"
        elif poly.key == fact.negated_key and poly.const + fact.const < 0:
            return literal.relation == "ne"
    return None


def _at_edge(literal: Literal_) -> Literal_:
    """At the end of what 0 <= i < Nq and so on allow, one spelling: `e % 2 != 0` is `e % 2 == 1`.

    A lower end left out (`p != 0` where p >= 0) is p >= 1, and what only an end leaves
    (`p <= 0` where p >= 0) is p == 0.
    """
    if not literal.integer or literal.relation not in ("ge", "ne"):
        return literal
    poly = literal.poly
    for fact in (*_FACTS, *_ranges(poly)):
        negative = poly.negated_key == fact.key and poly.const == -fact.const
        if literal.relation == "ne":
            if negative or poly == fact:
                return _at_edge(Literal_("ge", fact - Poly.number(1), None, True))
        elif negative:
            lead = poly.sorted_terms()[0][1]
            return Literal_("eq", poly if lead > 0 else -poly, None, True)
    return literal


def _implies(a: Literal_, b: Literal_) -> bool:
    """Whether `a` implies `b`, for literals over the same polynomial up to a constant."""
    if a == b:
        return True
    if a.truth is not None or b.truth is not None:
        return False
    same, opposite = a.poly.key == b.poly.key, a.poly.negated_key == b.poly.key
    if not same and not opposite:
        return False
    if b.relation in ("ge", "gt"):
        if a.relation in ("ge", "gt"):
            if not same:
                return False
            gap = b.poly.const - a.poly.const
            return gap >= 0 if (a.relation == "gt" or b.relation == "ge") else gap > 0
        if a.relation == "eq":
            gap = b.poly.const + (-a.poly.const if same else a.poly.const)
            return gap > 0 or (gap == 0 and b.relation == "ge")
        return False
    if b.relation == "ne":
        # The excluded value of a's polynomial is `excluded`.
        excluded = a.poly.const - b.poly.const if same else a.poly.const + b.poly.const
        if a.relation in ("ge", "gt"):
            return excluded < 0 or (excluded == 0 and a.relation == "gt")
        return a.relation == "eq" and excluded != 0
    return False


def _reduce_cube(cube: Cube) -> Cube | None:
    """The cube without implied literals, or None when it can never hold."""
    literals: list[Literal_] = []
    for literal in cube:
        decided = _by_domain(literal)
        if decided is False:
            return None
        if decided is None:
            literals.append(_at_edge(literal))
    changed = True
    while changed:
        changed = False
        for a in literals:
            for b in literals:
                if a is b:
                    continue
                if _implies(a, b.negated()):
                    return None
                merged = _merge(a, b)
                if merged is not None:
                    literals = [c for c in literals if c is not a and c is not b] + [merged]
                    changed = True
                    break
            if changed:
                break
    kept = [
        a for n, a in enumerate(literals)
        if not any(
            _implies(b, a) and not (_implies(a, b) and n < m)
            for m, b in enumerate(literals) if m != n
        )
    ]  # fmt: skip
    return frozenset(kept)


def _merge(a: Literal_, b: Literal_) -> Literal_ | None:
    """p >= 0 and -p >= 0 is p == 0; p >= 0 and p != 0 is p >= 1."""
    if not (a.integer and b.integer) or a.relation != "ge":
        return None
    if b.relation == "ge" and a.poly.key == b.poly.negated_key and a.poly.const == -b.poly.const:
        poly = a.poly if a.poly.sorted_terms()[0][1] > 0 else b.poly
        return Literal_("eq", poly, None, True)
    if b.relation == "ne" and b.poly in (a.poly, -a.poly):
        return Literal_("ge", a.poly - Poly.number(1), None, True)
    return None


def cube_implies(a: Cube, b: Cube) -> bool:
    return all(any(_implies(mine, theirs) for mine in a) for theirs in b)


def _minimise(dnf: Dnf) -> Dnf:
    cubes = {reduced for cube in dnf if (reduced := _reduce_cube(cube)) is not None}
    if len(cubes) > 4 * MAX_CUBES:
        raise TooLarge
    while True:
        step = _shrink_once(cubes)
        if step is None:
            break
        cubes = step
    order = sorted(cubes, key=_cube_key)
    kept = [
        a for n, a in enumerate(order)
        if not any(
            cube_implies(a, b) and not (cube_implies(b, a) and n < m)
            for m, b in enumerate(order) if m != n
        )
    ]  # fmt: skip
    if len(kept) > MAX_CUBES:
        raise TooLarge
    return frozenset(kept)


def _shrink_once(cubes: set[Cube]) -> set[Cube] | None:
    """Drop one literal whose absence changes nothing: rest and not literal lies in another cube."""
    for cube in sorted(cubes, key=_cube_key):
        for literal in sorted(cube, key=_literal_key):
            rest = cube - {literal}
            flipped = _reduce_cube(rest | {literal.negated()})
            covered = flipped is None or any(
                cube_implies(flipped, other) for other in cubes if other != cube
            )
            if covered:
                smaller = _reduce_cube(rest)
                return (cubes - {cube}) | ({smaller} if smaller is not None else set())
    return None


# --- back to expressions -------------------------------------------------------------------------


def _literal_key(literal: Literal_) -> tuple[str, str]:
    text = (
        print_expr(literal.truth)
        if literal.truth is not None
        else print_expr(to_expr(literal.poly, {}))
    )
    return (literal.relation, text)


def _cube_key(cube: Cube) -> tuple[int, tuple[tuple[str, str], ...]]:
    return (len(cube), tuple(sorted(_literal_key(c) for c in cube)))


def dnf_expr(dnf: Dnf, kinds: Kinds) -> Expr:
    """The predicate as people write it: `j <= i + Nk - Nq and doc[i] == doc[j]`."""
    if not dnf:
        return FALSE
    if frozenset() in dnf:
        return TRUE
    cubes = []
    for cube in dnf:
        parts = sorted((_literal_expr(literal, kinds) for literal in cube), key=_expr_key)
        cubes.append(all_of(parts))
    return any_of(sorted(cubes, key=_expr_key))


def _expr_key(expr: Expr) -> tuple[int, str]:
    text = print_expr(expr)
    return (len(text), text)


def _literal_expr(literal: Literal_, kinds: Kinds) -> Expr:
    if literal.truth is not None:
        return literal.truth if literal.relation == "is" else Unary("not", literal.truth)
    poly = literal.poly
    subject, rest = _solve(poly)
    # poly = sign * subject + rest, so subject REL -rest / sign.
    sign = poly.terms[subject]
    right = rest.scaled(-1 / sign)
    if literal.relation in ("eq", "ne"):
        op = "==" if literal.relation == "eq" else "!="
    else:
        op = (
            (">" if literal.relation == "gt" else ">=")
            if sign > 0
            else ("<" if literal.relation == "gt" else "<=")
        )
    if literal.integer and op in ("<=", ">=") and _reads_better_strict(right, op):
        right = right + Poly.number(1 if op == "<=" else -1)
        op = op[0]
    return Compare(op, to_expr(Poly({subject: Fraction(1)}), kinds), to_expr(right, kinds))


def _reads_better_strict(right: Poly, op: str) -> bool:
    # j <= P - 1 reads better as j < P, and i >= 128 stays.
    if op == "<=":
        return right.const == -1 or (right.is_number and right.const > 0)
    return right.const == 1 and not right.is_number


def _solve(poly: Poly) -> tuple[Monomial, Poly]:
    """The term to stand alone on the left: j, else i, else the first load, else the first term."""
    order = poly.sorted_terms()
    names: dict[Monomial, Expr] = {
        mono: mono[0][0] for mono, _ in order if len(mono) == 1 and mono[0][1] == 1
    }

    def rank(item: tuple[Monomial, Fraction]) -> tuple[int, int]:
        mono, coefficient = item
        atom = names.get(mono)
        unit = abs(coefficient) == 1
        if mono == ():
            return (9, 0)
        if isinstance(atom, Name) and atom.id in ("j", "i") and unit:
            return (0 if atom.id == "j" else 1, 0)
        if isinstance(atom, Index) and unit:
            return (2, 0)
        return (3 if unit else 4, 0)

    subject = min(order, key=rank)[0]
    return subject, Poly({m: c for m, c in poly.terms.items() if m != subject})
