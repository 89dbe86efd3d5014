"""Logic over scalar expressions: negation pushed to the atoms, and disjunctive normal form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from engine.cuir.nodes import (
    CONTRARY,
    MIRRORED,
    Bool,
    Call,
    Compare,
    Expr,
    Num,
    Select,
    Unary,
    walk_expr,
)
from engine.scalar_algebra.rewrite import FALSE, TRUE, all_of, any_of
from engine.transfer.linear import linear_difference

_MAX_TERMS = 32


def negate(expr: Expr) -> Expr:
    match expr:
        case Num(bool() as value):
            return Num(not value)
        case Unary("not", inner):
            return normal(inner)
        case Compare(op, left, right):
            return normal(Compare(CONTRARY[op], left, right))
        case Bool("and", left, right):
            return Bool("or", negate(left), negate(right))
        case Bool("or", left, right):
            return Bool("and", negate(left), negate(right))
        case Select():
            return negate(normal(expr))
        case _:
            return Unary("not", expr)


def normal(expr: Expr) -> Expr:
    """Negations pushed to the atoms, selects and `abs` bounds spelled out with and/or."""
    match expr:
        case Unary("not", inner):
            return negate(inner)
        case Bool(op, left, right):
            a, b = normal(left), normal(right)
            absorbing, neutral = (FALSE, TRUE) if op == "and" else (TRUE, FALSE)
            if absorbing in (a, b):
                return absorbing
            if a == neutral:
                return b
            return a if b == neutral else Bool(op, a, b)
        case Select(cond, then, other):
            yes, no = normal(cond), negate(cond)
            return normal(Bool("or", Bool("and", yes, then), Bool("and", no, other)))
        case Compare(op, Call("abs", (inner,)), bound) if op in ("<", "<="):
            return normal(
                Bool("and", Compare(op, inner, bound), Compare(op, Unary("-", inner), bound))
            )
        case Compare(op, Call("abs", (inner,)), bound) if op in (">", ">="):
            return normal(
                Bool("or", Compare(op, inner, bound), Compare(op, Unary("-", inner), bound))
            )
        case Compare(op, bound, Call("abs", (inner,)) as call) if op in ("<", "<=", ">", ">="):
            return normal(Compare(MIRRORED[op], call, bound))
        case Compare("==" | "!=" as op, left, right) if _is_truth(left) and _is_truth(right):
            other = normal(right) if op == "==" else negate(right)
            return normal(Select(left, other, negate(other)))
        case Compare(op, left, right):
            difference = linear_difference(left, right)
            if not difference.terms and op in CONTRARY:
                return Num(_holds(op, difference.constant))
            return expr
        case _:
            return expr


def _is_truth(expr: Expr) -> bool:
    return isinstance(expr, Bool | Compare | Unary) and getattr(expr, "op", "not") != "-"


def conjunction(left: Expr, right: Expr) -> Expr:
    """`left and right`, written without parentheses around what is a conjunction itself."""
    if isinstance(right, Bool) and right.op == "and":
        return Bool("and", conjunction(left, right.left), right.right)
    return Bool("and", left, right)


def _holds(op: str, value: int) -> bool:
    return {
        "<": value < 0, "<=": value <= 0, ">": value > 0,
        ">=": value >= 0, "==": value == 0, "!=": value != 0,
    }[op]  # fmt: skip


def disjuncts(expr: Expr) -> tuple[tuple[Expr, ...], ...]:
    """Disjunctive normal form: a tuple of conjunctions. Where a product would have too many, the
    side with fewer alternatives stays one atom of each conjunction."""
    match expr:
        case Bool("or", left, right):
            return disjuncts(left) + disjuncts(right)
        case Bool("and", left, right):
            a, b = disjuncts(left), disjuncts(right)
            if len(a) * len(b) <= max(_MAX_TERMS, len(a), len(b)):
                return tuple(one + two for one in a for two in b)
            if len(a) >= len(b):
                return tuple((*one, right) for one in a)
            return tuple((left, *two) for two in b)
    return ((expr,),)


def factored(expr: Expr) -> Expr:
    """`a and b or a and c` as `a and (b or c)`: what alternatives share is asked once. A mask of
    alternatives in full is one of the longest predicates, and ptxas spills what it makes of it."""
    short = _shared(tuple(tuple(dict.fromkeys(term)) for term in disjuncts(expr)))
    return short if sum(1 for _ in walk_expr(short)) < sum(1 for _ in walk_expr(expr)) else expr


def _shared(terms: tuple[tuple[Expr, ...], ...]) -> Expr:
    """These alternatives, with what all of them share taken out, else the atom that most of them
    have together with each that has the same company."""
    if () in terms:
        return TRUE  # this alternative asks for nothing else
    common = [atom for atom in terms[0] if all(atom in term for term in terms[1:])]
    if common:
        rest = _shared(tuple(_less(term, common) for term in terms))
        return all_of(common) if rest == TRUE else Bool("and", all_of(common), rest)
    counts = Counter(atom for term in terms for atom in term)
    most, count = counts.most_common(1)[0]
    if count == 1:
        return any_of([all_of(term) for term in terms])
    company = tuple(_less(term, [most]) for term in terms if most in term)
    sets = [frozenset(term) for term in terms]
    alike = [atom for atom in counts if all(frozenset((atom, *c)) in sets for c in company)]
    product = {frozenset((atom, *c)) for atom in alike for c in company}
    others = tuple(term for term, found in zip(terms, sets, strict=True) if found not in product)
    both = Bool("and", any_of(alike), _shared(company)) if () not in company else any_of(alike)
    return any_of([both, _shared(others)]) if others else both


def _less(term: tuple[Expr, ...], gone: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(atom for atom in term if atom not in gone)
