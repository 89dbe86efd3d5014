"""Sizes at which a recipe divides by zero: there a spec gives NaN or raises; it is not for them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from engine.cuir.nodes import Binary, Call, Compare, Expr, Index, Lambda, Name, Num, walk_expr
from engine.scalar_algebra.canonical import canonical_predicate
from engine.scalar_algebra.evaluate import compile_expr
from engine.scalar_algebra.kinds import SIZE_NAMES, Kinds

SMALL = range(1, 9)  # lengths and counts at which a divisor may vanish
MOST_NAMES = 3


def nonzero_divisors(exprs: Iterable[Expr | None], kinds: Kinds) -> tuple[Expr, ...]:
    """`divisor != 0` for each divisor that consists of sizes and vanishes at small ones."""
    found: dict[Expr, None] = {}
    for expr in exprs:
        for node in walk_expr(expr) if expr is not None else ():
            match node:
                case Binary("/" | "//" | "%", _, divisor):
                    found[divisor] = None
                case Call("floor_div" | "floor_mod", (_, divisor)):
                    found[divisor] = None
    conditions = (
        canonical_predicate(Compare("!=", divisor, Num(0)), kinds)
        for divisor in found if _vanishes(divisor)
    )  # fmt: skip
    return tuple(dict.fromkeys(conditions))


def _vanishes(divisor: Expr) -> bool:
    nodes = list(walk_expr(divisor))
    names = sorted({e.id for e in nodes if isinstance(e, Name)})
    if not names or len(names) > MOST_NAMES or not set(names) <= set(SIZE_NAMES):
        return False
    if any(isinstance(e, Index | Lambda) for e in nodes):
        return False
    value = compile_expr(divisor)
    return any(
        value(dict(zip(names, sizes, strict=True))) == 0
        for sizes in product(SMALL, repeat=len(names))
    )
