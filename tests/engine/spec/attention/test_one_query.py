"""One query: a decoding step, or a class token that reads an image."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cuir.printer import print_expr
from engine.spec import read_recipe

SPEC = """
import torch

def attention(
    q: Float[Tensor, "{dims}"], k: Float[Tensor, "B Hkv Nk D"], v: Float[Tensor, "B Hkv Nk D"],
    length: Int32[Tensor, "B"],
):
    q = q.{view}
    k, v = (t.repeat_interleave(q.size(1) // k.size(1), 1) for t in (k, v))
    past = torch.arange(k.size(2)) >= length[:, None, None, None]
    return (q @ k.mT / 8).masked_fill(past, float("-inf")).softmax(-1) @ v
"""


@pytest.mark.parametrize(
    ("dims", "view", "called"),
    [("B Hq 1 D", "float()", "B Hq Nq D"), ("B 1 Hq D", "transpose(1, 2)", "B Nq Hq D")],
)
def test_a_row_of_one_is_a_row(dims: str, view: str, called: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.py"
    path.write_text(SPEC.format(dims=dims, view=view))
    recipe = read_recipe(path)
    assert next(i.dims for i in recipe.inputs if i.role == "q") == tuple(called.split())
    assert "Nq == 1" in map(print_expr, recipe.constraints)
    assert print_expr(recipe.keep) == "j < length[b]"
