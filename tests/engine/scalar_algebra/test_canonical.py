"""The canonical form keeps every value, is its own canonical form, and prints and parses back."""

# ruff: noqa: E501  (a row of a table is one line)

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings

from engine.cuir.nodes import Expr
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.scalar_algebra.canonical import canonical
from engine.scalar_algebra.evaluate import evaluate
from engine.scalar_algebra.given import implied, simplified_where
from tests.engine.scalar_algebra.strategies import KINDS, environments, predicates, values


@settings(max_examples=150, deadline=None)
@given(predicates(), environments())
def test_predicates_keep_their_truth(predicate: Expr, env: dict[str, Any]) -> None:
    form = canonical(predicate, KINDS)
    assert bool(evaluate(form, env)) == bool(evaluate(predicate, env)), print_expr(form)


@settings(max_examples=150, deadline=None)
@given(values(), environments())
def test_values_stay(value: Expr, env: dict[str, Any]) -> None:
    form = canonical(value, KINDS)
    a, b = float(evaluate(value, env)), float(evaluate(form, env))
    assert a == pytest.approx(b, rel=1e-9, abs=1e-9) or (math.isnan(a) and math.isnan(b)), (
        print_expr(form)
    )


@settings(max_examples=120, deadline=None)
@given(predicates())
def test_predicates_are_their_own_form(predicate: Expr) -> None:
    form = canonical(predicate, KINDS)
    assert canonical(form, KINDS) == form
    assert parse_expr(print_expr(form)) == form


@settings(max_examples=120, deadline=None)
@given(values())
def test_values_are_their_own_form(value: Expr) -> None:
    form = canonical(value, KINDS)
    assert canonical(form, KINDS) == form
    assert parse_expr(print_expr(form)) == form


@settings(max_examples=120, deadline=None)
@given(predicates(), values(), environments())
def test_simplified_where_holds_where_given(where: Expr, value: Expr, env: dict[str, Any]) -> None:
    if evaluate(where, env):
        a = float(evaluate(value, env))
        b = float(evaluate(simplified_where(where, value, KINDS), env))
        assert a == pytest.approx(b, rel=1e-9, abs=1e-9) or (math.isnan(a) and math.isnan(b))


@settings(max_examples=120, deadline=None)
@given(predicates(), predicates(), environments())
def test_implied_is_never_wrong(a: Expr, b: Expr, env: dict[str, Any]) -> None:
    if implied(a, b, KINDS) and evaluate(a, env):
        assert evaluate(b, env)


SAME = [
    ["j <= i", "not (j > i)", "j < i + 1", "i - j >= 0", "(i - j) * 1.0 > -0.5", "max(i, j) == i",
     "j <= i and j >= 0", "min(j - i, 0) == j - i", "2 * j <= 2 * i + 1", "j <= i or j < 0"],
    ["j <= i and i - j < 8", "abs(2 * (i - j) - 7) <= 7", "not (j > i or j <= i - 8)", "j <= i if i - j <= 7 else False",
     "i - j >= 0 and i - j <= 7"],
    ["j < 9 or j <= i", "j <= max(i, 8)", "True if j < 9 else j <= i", "not (j > i and j >= 9)",
     "j <= i or (j > i and j < 9)"],
    ["doc[i] == doc[j]", "not (doc[j] != doc[i])", "doc[i] - doc[j] == 0", "doc[i] <= doc[j] and doc[j] <= doc[i]"],
    ["j == i", "j <= i and j >= i", "abs(i - j) < 1", "not (j != i)"],
    ["True", "j >= 0", "j < Nk", "i < Nq and j < Nk", "j <= i or j > i", "floor_mod(j, 4) < 4", "j < i + Nk"],
    ["False", "j < 0", "j >= Nk", "j < i and j > i", "floor_mod(j, 4) == 4"],
    ["50.0 * tanh(x * rsqrt(D) / 50.0)", "tanh(0.02 * x / sqrt(D)) / 0.02", "-50.0 * tanh(-(x / (50.0 * sqrt(D))))"],
    ["slope[h] * (j - i) + x", "x - slope[h] * (i - j)", "x + j * slope[h] - slope[h] * i"],
    ["exp2(-8.0 * (h + 1) / Hq)", "1.0 / exp2(8.0 * (h + 1) / Hq)", "exp2(-4.0 * (h + 1) / Hq) * exp2(-4.0 * (h + 1) / Hq)",
     "exp(-5.545177444479562 * (h + 1) / Hq)"],
    ["x / D / sqrt(D)", "x * rsqrt(D) * rsqrt(D) * rsqrt(D)"],
]  # fmt: skip


@pytest.mark.parametrize("texts", SAME, ids=lambda t: t[0])
def test_one_form(texts: list[str]) -> None:
    forms = {print_expr(canonical(parse_expr(t), KINDS)) for t in texts}
    assert len(forms) == 1


@pytest.mark.parametrize(
    ("a", "b"),
    [("j <= i", "j < i"), ("j <= i", "j <= i + 1"), ("j < 9 or j <= i", "j <= 9 or j <= i"),
     ("doc[i] == doc[j]", "doc[i] == doc[j] + 1"), ("j <= i + Nk - Nq", "j <= i"),
     ("slope[h] * (j - i)", "slope[h] * (i - j)"), ("tanh(x / 50.0)", "tanh(x / 51.0)")],
)  # fmt: skip
def test_two_forms(a: str, b: str) -> None:
    assert canonical(parse_expr(a), KINDS) != canonical(parse_expr(b), KINDS)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("i + 1 > j", "j <= i"), ("x / sqrt(D)", "x * rsqrt(D)"), ("x * 0.02", "x / 50.0"), ("x * 0.125", "x * 0.125"),
     ("(j - i) * slope[h]", "slope[h] * (j - i)"), ("not (j >= 64)", "j < 64"),
     ("floor_div(i, 64) == floor_div(j, 64)", "i // 64 == j // 64"),
     ("floor_div(i - 4, 64) == 0", "floor_div(i - 4, 64) == 0"),
     ("i <= j + 3 and j <= i", "j <= i and j >= i - 3")],
)  # fmt: skip
def test_reads_as_people_write(text: str, shown: str) -> None:
    assert print_expr(canonical(parse_expr(text), KINDS)) == shown


def test_large_predicates_keep_their_structure() -> None:
    parts = [f"(doc[i + {n}] == doc[j] or flag[i, j + {n}])" for n in range(8)]
    form = canonical(parse_expr(" and ".join(parts)), KINDS)
    assert canonical(form, KINDS) == form
    assert len(print_expr(form)) < 2 * len(" and ".join(parts))
