"""Simplify a value where a predicate holds: `abs(i - j)` is `i - j` wherever `j <= i`."""

from __future__ import annotations

from engine.cuir.nodes import Call, Compare, Expr, Num, Select, Unary
from engine.scalar_algebra import predicate as dnf
from engine.scalar_algebra.canonical import normal_form
from engine.scalar_algebra.kinds import Kinds
from engine.scalar_algebra.rewrite import map_children


def implied(given: Expr, wanted: Expr, kinds: Kinds) -> bool:
    """Whether `given` provably implies `wanted` (False when no proof was found)."""
    try:
        cubes, goals = normal_form(given, kinds), normal_form(wanted, kinds)
        return all(any(dnf.cube_implies(c, goal) for goal in goals) for c in cubes)
    except dnf.TooLarge:
        return False


def simplified_where(given: Expr, value: Expr, kinds: Kinds) -> Expr:
    """`value` with every abs, min, max and select that `given` decides replaced by its outcome."""
    value = map_children(value, lambda e: simplified_where(given, e, kinds))
    match value:
        case Call("abs", (arg,)):
            if implied(given, Compare(">=", arg, Num(0)), kinds):
                return arg
            if implied(given, Compare("<=", arg, Num(0)), kinds):
                return Unary("-", arg)
        case Call("min" | "max" as fn, (a, b)):
            larger, smaller = (a, b) if fn == "max" else (b, a)
            if implied(given, Compare(">=", larger, smaller), kinds):
                return a
            if implied(given, Compare("<=", larger, smaller), kinds):
                return b
        case Select(cond, then, other):
            if implied(given, cond, kinds):
                return then
            if implied(given, Unary("not", cond), kinds):
                return other
    return value
