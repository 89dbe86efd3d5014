"""Additive masks of flags: what they are, whatever the type's least number is."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cuir.printer import print_expr
from engine.errors import SpecError
from engine.spec import read_recipe

SPEC = """
import torch

def attention(
    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B H M D"], v: Float[Tensor, "B H M D"],
    mask: {declared}
):
    least = torch.finfo(q.dtype).min
    bias = {bias}
    return (q @ k.mT / 8 + bias).softmax(-1) @ v
"""
ONES = 'Int64[Tensor, "B M"],  # 0..1'
# (the input's declaration, what is added; what is kept)
MASKS = {
    "one minus the mask": (ONES, "(1.0 - mask[:, None, None].to(q.dtype)) * least",
                           "mask[b, j] == 1"),
    "the least number first": (ONES, "least * (1 - mask[:, None, None])", "mask[b, j] == 1"),
    "the mask drops": (ONES, "mask[:, None, None] * least", "mask[b, j] == 0"),
    "a Bool": ('Bool[Tensor, "B M"],', "(~mask[:, None, None]).to(q.dtype) * least", "mask[b, j]"),
    "segments up to three": ('Int32[Tensor, "B M"],  # 0..3', "mask[:, None, None] * least",
                             "mask[b, j] == 0"),
    "of pairs": ('Int32[Tensor, "B N M"],  # 0..1', "(mask[:, None] - 1) * -least",
                 "mask[b, i, j] == 1"),
}  # fmt: skip


def spec(folder: Path, declared: str, bias: str) -> Path:
    path = folder / "spec.py"
    path.write_text(SPEC.format(declared=declared, bias=bias))
    return path


@pytest.mark.parametrize("name", MASKS)
def test_flags_times_the_least_number_are_a_mask(name: str, tmp_path: Path) -> None:
    declared, bias, keep = MASKS[name]
    recipe = read_recipe(spec(tmp_path, declared, bias))
    assert print_expr(recipe.keep) == keep
    assert print_expr(recipe.score) == "x * 0.125"


@pytest.mark.parametrize("declared", ['Float[Tensor, "B M"],', 'Int32[Tensor, "B M"],'])
def test_what_may_be_anything_is_refused_with_what_to_declare(
    declared: str, tmp_path: Path
) -> None:
    bias = "(1.0 - mask[:, None, None].to(q.dtype)) * least"
    with pytest.raises(SpecError, match="multiplied by the least number of its type") as refused:
        read_recipe(spec(tmp_path, declared, bias))
    assert "# 0..1" in (refused.value.fix or "")
