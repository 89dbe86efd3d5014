"""Products of rows with embeddings of positions, which a score adds to q.k."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cuir.printer import print_expr
from engine.errors import SpecError
from engine.spec import Recipe, read_recipe, recipe_from_json, recipe_to_json

HEAD = """\
import torch


def attention(
    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B H N D"], v: Float[Tensor, "B H N D"],
    far: Float[Tensor, "H 33 D"],
):
    n = q.shape[2]
    t = torch.arange(n)
    gap = (t[:, None] - t).clamp(-16, 16) + 16
"""
GAP = "min(max(i - j, -1 * 16), 16) + 16"
QUERIES = f"sum_over(lambda c: q[b, h, i, c] * far[h, {GAP}, c], D)"
KEYS = f"sum_over(lambda c: k[b, h, j, c] * far[h, {GAP}, c], D)"
READ = {
    "torch.gather(q @ far.mT, -1, gap.expand(*q.shape[:2], n, n))": f"x + {QUERIES}",
    "torch.einsum('bhid,hijd->bhij', q, far[:, gap])": f"x + {QUERIES}",
    "torch.gather(k @ far.mT, -1, gap.T.expand(*q.shape[:2], n, n)).mT": f"x + {KEYS}",
}


def recipe_of(write: Callable[[str], Path], added: str) -> Recipe:
    return read_recipe(write(f"{HEAD}    s = q @ k.mT + {added}\n    return s.softmax(-1) @ v\n"))


@pytest.mark.parametrize("added", READ)
def test_reads(added: str, write: Callable[[str], Path]) -> None:
    recipe = recipe_of(write, added)
    assert print_expr(recipe.score) == READ[added]
    assert [i.name for i in recipe.extra()] == ["far"]
    assert recipe_from_json(recipe_to_json(recipe)) == recipe


def test_what_a_row_has_beside_it_goes_with_it(write: Callable[[str], Path]) -> None:
    recipe = recipe_of(write, "torch.einsum('bhid,hijd->bhij', q + far[:, :1], far[:, gap]) * 0.5")
    assert "(q[b, h, i, c] + far[h, 0, c]) * far[h, " in print_expr(recipe.score)


@pytest.mark.parametrize(
    "added",
    [
        "torch.einsum('bhid,hijd->bhij', q, far[:, gap]) * torch.einsum('bhid,hijd->bhij', k, "
        "far[:, gap]).mT.softmax(-1)",
        "torch.einsum('bhid,hijd->bhij', q * q.square().mean(-1, True).rsqrt(), far[:, gap])",
        "torch.einsum('bhid,hijd->bhij', q + k, far[:, gap])",
    ],
    ids=["of a softmax", "of a norm", "of q and k at once"],
)
def test_what_is_no_table_of_rows_is_refused(added: str, write: Callable[[str], Path]) -> None:
    with pytest.raises(SpecError):
        recipe_of(write, added)
