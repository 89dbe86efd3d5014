"""Whether two predicates over a pair are the same, for all sizes and all that inputs hold."""

from __future__ import annotations

from collections.abc import Collection

import z3

from engine.cuir.nodes import Expr, Index, Name, walk_expr
from engine.prove.domain import domain_of
from engine.prove.solver import Answer, Goal, Unknown, prove
from engine.prove.terms import NotWhole, Terms

SAME = "the simplified mask is the mask"
STEPS = 100_000  # of each solver: a recipe is read in a second


def same_predicate(one: Expr, other: Expr, truths: Collection[str] = ()) -> Answer:
    """Whether two predicates over i, j, b, h, the sizes and integer inputs agree on each pair that
    there is.

    An input is any function of its indices: what is proven holds whatever it holds. `truths` are
    the inputs that hold conditions.
    """
    domain = domain_of((), {})
    b, h, i, j = z3.Ints("b h i j")
    size = domain.sizes
    env = {**size, "b": b, "h": h, "i": i, "j": j}
    for node in (n for e in (one, other) for n in walk_expr(e)):
        match node:
            case Index(Name(name), index):
                kind = z3.BoolSort() if name in truths else z3.IntSort()
                env[name] = z3.Function(name, *(z3.IntSort() for _ in index), kind)
    terms = Terms({}, {})
    places = ((b, size["B"]), (h, size["Hq"]), (i, size["Nq"]), (j, size["Nk"]))
    given = (*domain.given, *(c for at, end in places for c in (at >= 0, at < end)))
    try:
        first, second = terms.truth(one, env), terms.truth(other, env)
    except NotWhole as error:
        return Unknown(error.message)
    claim = z3.And(first == second, *(need.claim for need in terms.needs))
    goal = Goal(SAME, given, claim, first != second, {**size, "b": b, "h": h, "i": i, "j": j},
                (*domain.smallest, i, j))  # fmt: skip
    return prove(goal, STEPS)
