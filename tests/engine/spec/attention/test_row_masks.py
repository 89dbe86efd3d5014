"""Masks of rows or heads alone: padded queries, heads that are switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cuir.printer import print_expr
from engine.spec.read import read_recipe

HEAD = """\
import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hq Nk D"],
              v: Float[Tensor, "B Hq Nk D"], live: Bool[Tensor, "B Nq"], on: Bool[Tensor, "Hq"]):
    row, head = live[:, None, :, None], on[:, None, None]
    later = torch.arange(k.size(2)) > torch.arange(q.size(2))[:, None]
    s = (q @ k.mT) * q.size(-1) ** -0.5
"""
INF = 'float("-inf")'
SPECS = [
    (f"return s.masked_fill(~row, {INF}).softmax(-1) @ v", "live[b, i]", "nan", "o"),
    ("return s.masked_fill(~row, -1e9).softmax(-1) @ v", "live[b, i]", "mean", "o"),
    (f"return s.masked_fill(~head, {INF}).softmax(-1).nan_to_num(0.0) @ v", "on[h]", "zero", "o"),
    (f"return s.masked_fill(later | ~row, {INF}).softmax(-1) @ v", "j <= i and live[b, i]", "nan",
     "o"),
    ("e = torch.exp(s) * head\n    return e / e.sum(-1, keepdim=True) @ v", "on[h]", "nan", "o"),
    # Zeroed after the softmax nothing is removed from it: LSE stays.
    ("return torch.where(row, s.softmax(-1), 0.0) @ v", "True", "never",
     "o * (1 if live[b, i] else 0)"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "keep", "empty", "output"), SPECS)
def test_a_mask_of_rows_or_heads_stays_in_the_softmax(
    body: str, keep: str, empty: str, output: str, tmp_path: Path
) -> None:
    path = tmp_path / "spec.py"
    path.write_text(f"{HEAD}    {body}\n")
    recipe = read_recipe(path, {})
    assert print_expr(recipe.keep) == keep
    assert (recipe.empty_rows, print_expr(recipe.output)) == (empty, output)
