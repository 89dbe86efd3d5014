"""What a row's elements share is computed once a row, and means the same."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.nodes import Binary, Expr, Name, Num, free_names
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr, print_module
from engine.cuir.static.check import check
from engine.lower.spelling.legal import legal
from engine.scalar_algebra.evaluate import evaluate
from engine.spec.recipes.recipe import Input
from engine.transfer.rules import apply, plan
from engine.transfer.rules.elements.row_values import gathered
from tests.engine.transfer.recipes import VARIANTS, lifted, recipe

KERNELS = ("flash_fwd_sm80", "flash_fwd_sm90")
HEAT = "log(floor(f32(i + 1) / 512.0) + 1.0)"
FACTORS = st.sampled_from(
    [Num(0.5), Num(-2.0), Name("scale"), parse_expr(HEAT), parse_expr("f32(j)"), Name("x")]
)
TERMS = st.recursive(FACTORS, lambda e: st.builds(Binary, st.just("*"), e, e), max_leaves=4)
SUMS = st.recursive(TERMS, lambda e: st.builds(Binary, st.sampled_from("+-"), e, e), max_leaves=5)


def of_row(expr: Expr) -> bool:
    return "i" in free_names(expr) and not free_names(expr) & {"x", "j"}


@given(SUMS, st.floats(-8, 8), st.integers(0, 5000), st.integers(0, 50), st.floats(0.05, 1.0))
def test_the_value_stays(expr: Expr, x: float, i: int, j: int, scale: float) -> None:
    place = {"x": x, "i": i, "j": j, "scale": scale}
    want, got = evaluate(expr, place), evaluate(gathered(expr, of_row), place)
    assert math.isclose(want, got, rel_tol=1e-6, abs_tol=1e-6 * (1 + abs(x) * 50) ** 4)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (f"x * scale + x * {HEAT} * 0.5", f"x * (scale + {HEAT} * 0.5)"),
        (f"x * scale - x * {HEAT}", f"x * (scale + -1.0 * {HEAT})"),
        (f"x * {HEAT} + f32(j) * scale", f"x * {HEAT} + f32(j) * scale"),
        # Of nothing costly there is nothing to gather, nor of what a key has to say in it.
        ("x * scale + x * f32(i)", "x * scale + x * f32(i)"),
        ("x * scale + x * log(f32(i + j))", "x * scale + x * log(f32(i + j))"),
    ],
)
def test_what_multiplies_x_is_one_factor(text: str, want: str) -> None:
    assert print_expr(gathered(parse_expr(text), of_row)) == print_expr(parse_expr(want))


def target(kernel: str, score: str, *extra: Input) -> str:
    base = lifted(kernel)
    *_, (_, made) = apply(base, plan(base, recipe(score, extra=extra)).steps)
    return print_module(made)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_temperature_by_position_is_a_row_vector(kernel: str) -> None:
    text = target(kernel, f"x * 0.125 * (1.0 + 0.1 * {HEAT})")
    before, after = text.split("row_max(")[0], text.split("score_rows = ")[1]
    assert after.startswith("map(m, lambda top, i: ") and "at=[" in after.split("\n")[0]
    assert text.count("log(floor(") == 1 and "for step in " in before.split("score_rows = ")[1]
    assert "s = map(s, score_rows, lambda x, score_rows: x * " in text


@pytest.mark.parametrize("kernel", KERNELS)
def test_it_reads_what_is_loaded_once_a_row(kernel: str) -> None:
    heat = Input("heat", "extra", "f32", ("B", "Nq"))
    text = target(kernel, "x * 0.125 + exp(heat[b, i]) * f32(j)", heat)
    assert "score_rows = map(heat_rows, lambda heat_rows: exp(heat_rows))" in text
    assert "s = map(s, score_rows, lambda x, score_rows, i, j: x * " in text


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_is_cheap_or_a_keys_own_stays_with_the_element(kernel: str) -> None:
    bias = Input("slope", "extra", "f32", ("Hq",))
    for score in ("x * 0.125 + slope[h] * (j - i)", "x * 0.125 - log(f32(max(1, i - j)))"):
        assert "score_rows" not in target(kernel, score, bias)
    base = lifted(kernel)
    for variant in VARIANTS.values():
        assert not any("once a row" in step.title for step in plan(base, variant).steps)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_norm_of_the_output_has_its_factor_once_a_row(kernel: str) -> None:
    base = lifted(kernel)
    total = "sum_over(lambda c: o[c] * o[c], D)"
    wanted = recipe(output=f"w[d] * o * rsqrt({total} / D + 1e-05)",
                    extra=(Input("w", "extra", "T", ("D",)),))  # fmt: skip
    *_, (_, made) = apply(base, plan(base, wanted).steps)
    text = print_module(made)
    assert "factor = map(total, lambda total_at: rsqrt(total_at / D + 1e-05))" in text
    assert text.count("rsqrt(") == 1 and "* factor_at" in text


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_a_softmax_no_row_maximum_gives_the_rows(kernel: str) -> None:
    """Sigmoid attention keeps none: a row vector made of it read a name that nothing defines."""
    base = lifted(kernel)
    wanted = recipe("x * 0.125 + f32(i // 14 == j // 14)", weight="sigmoid(s)")
    *_, (_, made) = apply(base, plan(base, wanted).steps)
    assert not check(legal(made)) and "score_rows" not in print_module(made)
