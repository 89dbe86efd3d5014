"""Sums move into `min` and `max`, and the value stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.nodes import Binary, Call, Compare, Expr, Name, Num, Select
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.scalar_algebra.evaluate import evaluate
from engine.transfer.rules.masks.masked_values import spread


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("min(Nk - 1, min(q0 + BM, Nq) - 1 + Nk - Nq) + 1", "min(Nk, q0 + BM + Nk - Nq)"),
        ("min(Nk - 1, min(q0 + BM, Nq) + Nk - Nq + 63) + 1", "min(Nk, q0 + BM + Nk - Nq + 64)"),
        ("max(min(Nk - 1, 76) + 1, min(Nk, q0))", "min(Nk, max(77, q0))"),
        ("max(min(a, b), a)", "a"),
        ("max(a, min(a, b))", "a"),
        ("(a if c < 0 else min(a, b)) + 1", "a + 1 if c < 0 else min(a + 1, b + 1)"),
        ("2 * min(a, b)", "min(a, b) * 2"),
    ],
)
def test_bounds_are_short(before: str, after: str) -> None:
    assert print_expr(spread(parse_expr(before))) == after


NAMES = ("a", "b", "c")


def expressions() -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([*map(Name, NAMES)]) | st.integers(-3, 3).map(Num)

    def more(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pairs = st.tuples(inner, inner)
        return (
            st.tuples(st.sampled_from("+-"), pairs).map(lambda x: Binary(x[0], *x[1]))
            | st.tuples(st.sampled_from(["min", "max"]), pairs).map(lambda x: Call(x[0], x[1]))
            | st.tuples(pairs, pairs).map(lambda x: Select(Compare("<", *x[0]), *x[1]))
        )

    return st.recursive(leaves, more, max_leaves=9)


@given(expressions(), st.lists(st.integers(-5, 5), min_size=3, max_size=3))
def test_the_value_stays(expr: Expr, numbers: list[int]) -> None:
    names = dict(zip(NAMES, numbers, strict=True))
    assert evaluate(spread(expr), names) == evaluate(expr, names)
