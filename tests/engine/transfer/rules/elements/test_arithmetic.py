"""Cheaper arithmetic means the same, in exact arithmetic; and what the texts become."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.nodes import Binary, Call, Expr, Name, Num
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_expr, print_module
from engine.scalar_algebra.evaluate import evaluate
from engine.transfer.rules import apply, plan
from engine.transfer.rules.elements.arithmetic import cheap, positive_multiple
from tests.engine.transfer.recipes import VARIANTS, lifted, recipe

NUMBERS = st.sampled_from([0.5, 2.0, -3.0, 7.0, 0.125, 30.0])
LEAVES = st.one_of(
    st.builds(Num, NUMBERS),
    st.sampled_from([Name("x"), Name("scale"), Name("cap"), parse_expr("f32(j - i)")]),
)


def _grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(Binary, st.sampled_from(["+", "-", "*"]), inner, inner),
        st.builds(lambda e, n: Binary("/", e, Num(n)), inner, NUMBERS),
        st.builds(lambda e: Binary("/", e, Name("cap")), inner),
        st.builds(lambda e: Call("tanh", (e,)), inner),
        st.builds(lambda e: Call("sigmoid", (e,)), inner),
    )


EXPRESSIONS = st.recursive(LEAVES, _grow, max_leaves=12)
PLACES = st.fixed_dictionaries(
    {
        "x": st.floats(-8, 8),
        "i": st.integers(0, 50),
        "j": st.integers(0, 50),
        "scale": st.floats(0.05, 1.0),
        "cap": st.floats(1.0, 60.0),
    }
)


@given(EXPRESSIONS, PLACES)
def test_the_value_stays(expr: Expr, place: dict[str, float]) -> None:
    want, got = evaluate(expr, place), evaluate(cheap(expr), place)
    assert math.isclose(want, got, rel_tol=1e-7, abs_tol=1e-7 * _size(expr, place))


@given(EXPRESSIONS, PLACES)
def test_a_positive_multiple_is_the_value(expr: Expr, place: dict[str, float]) -> None:
    for score in (expr, Binary("*", Num(20.0), Call("tanh", (expr,)))):
        found = positive_multiple(score)
        if found is not None:
            assert found.factor > 0
            got = found.factor * evaluate(found.value, place) + found.shift
            assert math.isclose(evaluate(score, place), got, rel_tol=1e-6, abs_tol=1e-6)


def _size(expr: Expr, place: dict[str, float]) -> float:
    """The largest value on the way, which is what rounding is relative to."""
    match expr:
        case Binary(_, left, right):
            inner = max(_size(left, place), _size(right, place))
        case Call(_, args):
            inner = max((_size(a, place) for a in args), default=1.0)
        case _:
            inner = 1.0
    return max(1.0, inner, abs(evaluate(expr, place)))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("50.0 * tanh(x * args.scale / 50.0)",
         "50.0 - 100.0 * rcp_approx(1.0 + exp2_approx(x * (args.scale * 0.05770780163555854)))"),
        ("sigmoid(x * args.scale - 8.0)",
         "rcp_approx(1.0 + exp2_approx(x * (args.scale * -1.4426950408889634)"
         " + 11.541560327111707))"),
        ("x * args.scale / args.temperature", "x * (args.scale * (1.0 / args.temperature))"),
        # What the element itself holds keeps its place, and integers their order.
        ("x * args.scale + slope[h] * (j - i)", "x * args.scale + slope[h] * (j - i)"),
        ("x * f32(i * 2)", "x * f32(i * 2)"),
        # An unknown or a huge cap keeps exact tanh: its small values need the relative error.
        ("args.cap * tanh(x / args.cap)", "tanh(x * (1.0 / args.cap)) * args.cap"),
        ("100000.0 * tanh(x)", "tanh(x) * 100000.0"),
    ],
)  # fmt: skip
def test_what_becomes_of(text: str, want: str) -> None:
    assert print_expr(cheap(parse_expr(text))) == want


def test_no_multiple_of_an_unknown_or_negative_cap() -> None:
    for text in ("args.cap * tanh(x)", "-2.0 * tanh(x)", "2.0 * tanh(x) + x", "2.0 * sigmoid(x)"):
        assert positive_multiple(parse_expr(text)) is None


@pytest.mark.parametrize("kernel", ["flash_fwd_sm80", "flash_fwd_sm90"])
def test_a_cap_stands_where_the_scale_was(kernel: str) -> None:
    base = lifted(kernel)
    *_, (_, target) = apply(base, plan(base, VARIANTS["softcap_causal"]).steps)
    text = print_module(target)
    assert "s = map(s, lambda x: rcp_approx(1.0 + exp2_approx(x * score_factor)))" in text
    assert text.count("score_factor = args.scale * -0.0961796693925975") == 1
    assert "scale_log2 = 60.0 * LOG2E" in text
    assert "top * 60.0 - 30.0 + log(sum)" in text
    assert "tanh" not in text


@pytest.mark.parametrize("kernel", ["flash_fwd_sm80", "flash_fwd_sm90"])
def test_what_all_elements_share_is_computed_once(kernel: str) -> None:
    base = lifted(kernel)
    wanted = recipe("x * 0.125 - log(f32(Nk))", weight="sigmoid(s)")
    *_, (_, target) = apply(base, plan(base, wanted).steps)
    text = print_module(target)
    assert "exp2_approx(x * score_factor + score_shift)" in text
    assert text.count("score_shift = log(f32(args.Nk)) * 1.4426950408889634") == 1


@pytest.mark.parametrize("kernel", ["flash_fwd_sm80", "flash_fwd_sm90"])
def test_a_scale_that_the_host_computes_with_leaves_it_too(kernel: str) -> None:
    text = print_module(lifted(kernel))
    made = "    blocks = "
    assert text.count(made) == 1
    base = parse_module(text.replace(made, "    scaled = args.scale * LOG2E\n" + made))
    *_, (_, target) = apply(base, plan(base, VARIANTS["alibi_causal"]).steps)
    assert "    scaled = LOG2E\n" in print_module(target)


def test_tanh_stays_exact_where_no_softmax_follows() -> None:
    base = lifted("flash_fwd_sm80")
    for wanted in (recipe("x * 0.125", weight="tanh(s)"), recipe("tanh(x)", weight="s * s")):
        *_, (_, target) = apply(base, plan(base, wanted).steps)
        text = print_module(target)
        assert "tanh(" in text and "rcp_approx(1.0 + exp2_approx" not in text
