"""Products of sizes that 32 bits do not hold count in 64: right, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.nodes import MIRRORED
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.cuir.scalar import evaluate
from engine.gates.widths.overflow import overflow
from engine.transfer.rules.base.wide_products import with_wide_products
from tests.engine.gates.runs.test_nan_inputs import carried
from tests.engine.gates.test_deck import edited


@pytest.mark.parametrize(
    ("text", "wide"),
    [("Nk * Nk + 1", "i64(Nk) * Nk + 1"), ("x / (Nq * Nk)", "x / (i64(Nq) * Nk)"),
     ("(Nk - Nq) * Nq", "i64(Nk - Nq) * Nq"), ("Nq // 2 * Nk", "i64(Nq // 2) * Nk"),
     ("j < Nk * Nk + 1", "j < i32(min(max(i64(Nk) * Nk + 1, i64(-1)), i64(Nk)))"),
     ("Nq * Nk == i", "i32(min(max(i64(Nq) * Nk, i64(-1)), i64(Nq))) == i"), ("j < Nk", "j < Nk"),
     ("D * D", "D * D"), ("D * Nk", "D * Nk"), ("Nk * Hq", "Nk * Hq"), ("i * 4096", "i * 4096")],
)  # fmt: skip
def test_what_is_widened(text: str, wide: str) -> None:
    assert print_expr(with_wide_products(parse_expr(text))) == wide


@given(st.integers(1, 131_072), st.integers(1, 131_072), st.integers(1, 4096))
def test_it_means_the_same(nq: int, nk: int, hq: int) -> None:
    sizes = {"Nq": nq, "Nk": nk, "Hq": hq}
    expr = parse_expr("(Nq * Nk - 3) * Hq + Nk * Nk // Nq")
    wide = with_wide_products(expr)
    assert print_expr(wide) != print_expr(expr)
    assert evaluate(wide, sizes, "exact") == evaluate(expr, sizes, "exact")


@given(st.sampled_from([*MIRRORED]), st.integers(-4, 4).filter(bool), st.data())
def test_what_a_key_is_compared_with_stays_an_int(op: str, less: int, data: st.DataObject) -> None:
    """Near the first and the last key and far beyond them, it keeps the same keys."""
    nk = data.draw(st.integers(1, 131_072))
    key = data.draw(st.sampled_from([0, 1, nk // 2, max(0, nk - 2), nk - 1]))
    expr = parse_expr(f"j {op} (Nk * Nk - 3 * Nk) * ({less}) + {less}")
    wide = with_wide_products(expr)
    assert "i32(min(max(" in print_expr(wide)
    sizes = {"Nk": nk, "j": min(key, nk - 1)}
    assert evaluate(wide, sizes, "exact") == evaluate(expr, sizes, "exact")


SQUARED = """\
def attention_mods(Nk, D):
    def score(s, b, h, i, j):
        return s + 1 / (Nk * Nk + 1) * (i * 2 - j)

    def mask(b, h, i, j):
        return j < D * D + 1

    return score, mask
"""


@pytest.mark.parametrize(
    ("kernel", "key"), [("flash_fwd_sm80", "bf16_64"), ("flash_fwd_sm90", "bf16_128")]
)
def test_a_spec_that_squares_sizes_is_carried(kernel: str, key: str, tmp_path: Path) -> None:
    """And without the 64 bits it is that product which is told."""
    right = carried(tmp_path, SQUARED, kernel, key)
    assert overflow(right.module) is None
    found = overflow(edited(right, r"i64\(args.Nk\) \* args.Nk", "args.Nk * args.Nk").module)
    assert found is not None
    assert found.message.startswith("args.Nk * args.Nk may be more than 32 bits hold (at Nk 46341)")
