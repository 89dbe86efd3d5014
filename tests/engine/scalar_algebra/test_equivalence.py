"""Equality by evaluation finds every difference of one, at any size of constant."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from engine.cuir.nodes import Binary, Compare, Expr, Num
from engine.cuir.parser import parse_expr
from tests.engine.scalar_algebra.equivalence import difference, same
from tests.engine.scalar_algebra.strategies import KINDS, predicates, values


@settings(max_examples=60, deadline=None)
@given(predicates())
def test_everything_equals_itself(predicate: Expr) -> None:
    assert difference(predicate, predicate, KINDS, points=300) is None


@settings(max_examples=60, deadline=None)
@given(values())
def test_adding_one_is_seen(value: Expr) -> None:
    assert difference(value, Binary("+", value, Num(1.0)), KINDS, points=300) is not None


@pytest.mark.parametrize("constant", [1, 7, 128, 1024, 4096, 100_000])
@pytest.mark.parametrize(
    "shape", ["i - j {op} {c}", "j {op} i + Nk - Nq - {c}", "j {op} {c}", "2 * j {op} i + {c}"]
)
def test_boundaries_are_found(shape: str, constant: int) -> None:
    strict = parse_expr(shape.format(op="<", c=constant))
    closed = parse_expr(shape.format(op="<=", c=constant))
    found = difference(strict, closed, {})
    assert found is not None and found.left != found.right
    assert difference(strict, strict, {}) is None


@pytest.mark.parametrize(
    ("a", "b", "where", "equal"),
    [
        ("abs(i - j)", "i - j", "j <= i", True),
        ("abs(i - j)", "i - j", "j <= i + 1", False),
        ("floor_mod(i, 8) + 8 * floor_div(i, 8)", "i", "True", True),
        ("j >= floor_div(i, 64) * 64 and j <= i", "i // 64 == j // 64 and j <= i", "True", True),
        ("j > floor_div(i, 64) * 64 and j <= i", "i // 64 == j // 64 and j <= i", "True", False),
        ("doc[i] == doc[j]", "doc[i] >= doc[j]", "True", False),
        ("flag[i, j]", "flag[j, i]", "True", False),
        ("tanh(x / 50.0)", "tanh(x * 0.02)", "True", True),
        ("2.0 * sigmoid(2.0 * x) - 1.0", "tanh(x)", "True", True),
    ],
)  # fmt: skip
def test_examples(a: str, b: str, where: str, equal: bool) -> None:
    assert same(parse_expr(a), parse_expr(b), KINDS, parse_expr(where)) is equal


def test_a_difference_is_a_real_point() -> None:
    found = difference(parse_expr("j <= i"), parse_expr("j < i"), {})
    assert isinstance(parse_expr("j <= i"), Compare)
    assert found is not None and found.point["i"] == found.point["j"]
    assert (found.left, found.right) == (True, False)
