"""Products of sizes that 32 bits do not hold count in 64: right, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.nodes import MIRRORED, Name, Num
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.cuir.scalar import evaluate
from engine.gates.widths.overflow import overflow
from engine.lift import lift, load_package
from engine.spec import read_recipe
from engine.transfer.rules.base.wide_products import with_wide_products
from engine.transfer.schedule import Rows, key_ranges
from tests.engine.gates.runs.test_nan_inputs import carried
from tests.engine.gates.test_deck import edited
from tests.engine.lower.random_masks import lowered


@pytest.mark.parametrize(
    ("text", "wide"),
    [("Nk * Nk + 1", "i64(Nk) * Nk + 1"), ("x / (Nq * Nk)", "x / (i64(Nq) * Nk)"),
     ("(Nk - Nq) * Nq", "i64(Nk - Nq) * Nq"), ("Nq // 2 * Nk", "i64(Nq // 2) * Nk"),
     ("j < Nk * Nk + 1", "j < i64(Nk) * Nk + 1"),
     ("D * D", "D * D"), ("D * Nk", "D * Nk"), ("Nk * Hq", "Nk * Hq"), ("i * 4096", "i * 4096")],
)  # fmt: skip
def test_what_is_widened(text: str, wide: str) -> None:
    assert print_expr(with_wide_products(parse_expr(text))) == wide


@given(st.integers(1, 131_072), st.integers(1, 131_072), st.integers(1, 4096))
def test_it_means_the_same(nq: int, nk: int, hq: int) -> None:
    sizes = {"Nq": nq, "Nk": nk, "Hq": hq}
    expr = parse_expr(
        "(Nq * Nk - 3) * Hq + Nk * Nk // Nq"
        " + floor_mod(Nq - Nk * Nk, 21) + floor_div(Hq - Nq * Nk, 5) + floor_mod(Nk * Nk, -3)"
    )
    wide = with_wide_products(expr)
    assert print_expr(wide) != print_expr(expr)
    assert evaluate(wide, sizes, "exact") == evaluate(expr, sizes, "exact")


@given(
    st.sampled_from([*MIRRORED]), st.integers(-4, 4).filter(bool),
    st.sampled_from(["j", "j - i", "i - j"]), st.data(),
)  # fmt: skip
def test_keys_that_are_visited_are_an_int(op: str, less: int, of: str, data: st.DataObject) -> None:
    """Near the first and the last key and far beyond them, tiles reach each kept key."""
    nk = data.draw(st.integers(1, 131_072))
    i = data.draw(st.integers(0, 131_071))
    j = min(data.draw(st.sampled_from([0, 1, nk // 2, max(0, nk - 2), nk - 1])), nk - 1)
    keep = with_wide_products(parse_expr(f"{of} {op} (Nk * Nk - 3 * Nk) * ({less}) + {less}"))
    ranges = key_ranges(keep, Rows(Num(i), Num(i)), Name("Nk"))
    values = {"Nk": nk, "i": i, "j": j}
    ends = [
        tuple(int(evaluate(end, values, "exact")) for end in (span.low, span.high))
        for span in (ranges.prefix, ranges.rest)
        if span is not None
    ]
    assert all(low >= 0 and high < nk for low, high in ends)
    assert any(low <= j <= high for low, high in ends) or not evaluate(keep, values, "exact")


SQUARED = """\
def attention_mods(Nk, D):
    def score(s, b, h, i, j):
        return s + 1 / (Nk * Nk + 1) * (i * 2 - j)

    def mask(b, h, i, j):
        return j < D * D + 1

    return score, mask
"""
FAR = """import torch
from jaxtyping import Float, Int32
from torch import Tensor


def attention(q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hq Nk D"],
              v: Float[Tensor, "B Hq Nk D"], seen: Int32[Tensor, "B"]):
    nq, nk = q.shape[2], k.shape[2]
    i, j = torch.arange(nq)[:, None], torch.arange(nk)[None, :]
    far = (j < seen[:, None, None, None] + nq * nq) & (i - j < nk * nk + 1) & (j <= i + nk * nq)
    far = far & ((j - i).clamp(max=nq * nq + 1) % 21 == 0)
    return torch.where(far, q @ k.mT, float("-inf")).softmax(-1) @ v
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


@pytest.mark.parametrize("kernel", ["flash_fwd_sm80", "flash_fwd_sm90"])
def test_masks_by_wide_products_are_lowered(kernel: str, tmp_path: Path) -> None:
    """Their tiles are counted by an int, as the kernel's own are."""
    (path := tmp_path / "spec.py").write_text(FAR)
    package = load_package(kernel)
    text, _ = lowered(lift(package, "bf16_128", package.archs[0]), read_recipe(path))
    assert b"long long tile" not in text
