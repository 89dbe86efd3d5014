"""Instructions of expressions, counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cost.card import card
from engine.cost.scalar import (
    COLUMN,
    ELEMENT,
    ROW,
    Lanes,
    expression_cost,
    functions,
    read_late,
)
from engine.cuir.functions import FUNCTIONS
from engine.cuir.nodes import Call, Expr
from engine.cuir.parser import parse_expr

LANES = Lanes(1000.0, 10.0, 100.0)
VARIES = {
    "x": frozenset((ELEMENT,)), "top": frozenset((ROW,)), "i": frozenset((ROW,)),
    "j": frozenset((COLUMN,)),
}  # fmt: skip


def count(text: str) -> tuple[float, float, float]:
    """(special functions, FP32, ALU)."""
    made = expression_cost(parse_expr(text), VARIES, frozenset(("i", "j")), LANES)
    return made.mufu, made.fp32, made.alu


@pytest.mark.parametrize(
    ("text", "want"),
    [
        # The softmax: one FFMA and one MUFU per element, the row's product once per row.
        ("exp2_approx(x * scale - top * scale)", (1000, 1010, 0)),
        ("exp2_approx((x - top) * scale)", (1000, 2000, 0)),
        # What is the same for all elements stands before the loop.
        ("x * (scale * LOG2E) + log(float(n))", (0, 1000, 0)),
        ("x if j <= i + 5 else top", (0, 0, 2010)),
        ("j < n", (0, 0, 100)),
        ("j < n and i < m", (0, 0, 110)),
        # A part that stands twice is computed once.
        ("(x + top) * (x + top)", (0, 2000, 0)),
        ("sigmoid(x)", (2000, 2000, 0)),
        ("-x", (0, 0, 0)),
        ("x / 50.0", (0, 5000, 2000)),
        ("x / top", (1000, 6000, 2000)),
    ],
)
def test_counts(text: str, want: tuple[float, float, float]) -> None:
    assert count(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        # Counted in the machine code of masks: branches in the last two alone.
        ("j < args.Nk and j <= i + args.Nk - args.Nq", ""),
        ("j < args.Nk and j <= i + offset and j >= i + offset - 127", ""),
        ("(j < args.Nk) & (j <= i + args.Nk - args.Nq) & (j > i)", ""),
        ("j < args.Nk and j <= i + args.Nk - args.Nq and j > i", "Nq"),
        ("j < n and (j <= i + args.Nk or j > args.Nq)", "Nk Nq"),
    ],
)
def test_what_a_condition_reads_where_its_first_part_leaves_it_open(text: str, want: str) -> None:
    assert {field.field for field in read_late(parse_expr(text))} == set(want.split())


def test_a_load_per_element_touches_eight_lines() -> None:
    each = expression_cost(parse_expr("bias[i, j]"), VARIES, frozenset(("i", "j")), LANES)
    row = expression_cost(parse_expr("bias[i]"), VARIES, frozenset(("i", "j")), LANES)
    assert each.memory == 8 * LANES.element and each.far == 1
    assert row.memory == LANES.row and row.loads == 1 and row.far == 0


def test_every_scalar_function_has_a_cost() -> None:
    assert set(FUNCTIONS) <= set(functions())


def expressions() -> st.SearchStrategy[Expr]:
    leaf = st.sampled_from([parse_expr(t) for t in ("x", "top", "2.0", "float(j)")])

    def more(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        one = st.sampled_from(["exp2", "exp2_approx", "tanh", "abs", "rcp"])
        pair = st.sampled_from(["+", "-", "*", "/"])
        made = st.builds(lambda op, a, b: parse_expr(f"(p) {op} (q)"), pair, inner, inner)
        return st.builds(lambda f, a: Call(f, (a,)), one, inner) | made

    return st.recursive(leaf, more, max_leaves=8)


@given(expressions())
def test_one_more_exponential_is_never_faster(expr: Expr) -> None:
    facts = card("h100")
    plain = expression_cost(expr, VARIES, frozenset(("i", "j")), LANES)
    more = expression_cost(Call("exp2_approx", (expr,)), VARIES, frozenset(("i", "j")), LANES)
    assert more.latency(facts) >= plain.latency(facts)
    for unit, cycles in plain.cycles(facts).items():
        assert more.cycles(facts)[unit] >= cycles
