"""What happens to q and k before their product is read, as models write it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cuir.printer import print_expr
from engine.spec import read_recipe

HEAD = """import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def turned(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def swapped(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H N D"],
    v: Float[Tensor, "B H N D"],
    w: Float[Tensor, "D"],
    co: Float[Tensor, "N D"],
    si: Float[Tensor, "N D"],
):
"""
TAIL = "    return torch.softmax(q @ k.mT * 0.25, -1) @ v\n"
X = "q[b, h, i, dd]"
SQUARES = "sum_over(lambda c: q[b, h, i, c] * q[b, h, i, c], D)"
HALVES = "(-q[b, h, i, dd + D // 2] if dd < D // 2 else q[b, h, i, dd - D // 2])"
READ = {
    "rms_norm": ("q = F.rms_norm(q, (q.size(-1),), w, 1e-6)",
                 f"{X} * rsqrt({SQUARES} / D + 1e-06) * w[dd]"),
    "eps beside the root": ("q = q / (q.square().mean(-1, True).sqrt() + 1e-6) * w",
                            f"{X} * w[dd] / (sqrt({SQUARES} / D) + 1e-06)"),
    "normalize": ("q = F.normalize(q, dim=-1)", f"{X} / max(sqrt({SQUARES}), 1e-12)"),
    "halves": ("q = q * co + turned(q) * si", f"{X} * co[i, dd] + {HALVES} * si[i, dd]"),
    "neighbours": (
        "q = q * co + swapped(q) * si",
        f"{X} * co[i, dd] + (-q[b, h, i, 2 * floor_div(dd, 2) + 1] if floor_mod(dd, 2) == 0 "
        "else q[b, h, i, 2 * floor_div(dd, 2)]) * si[i, dd]",
    ),
    "a scale is the score's": ("q = q * 0.5 * w", f"{X} * w[dd]"),
    "a temperature is the score's": ("q = q * torch.arange(1, q.size(2) + 1)[:, None]", None),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_reads(name: str, write: Callable[[str], Path]) -> None:
    body, wanted = READ[name]
    recipe = read_recipe(write(f"{HEAD}    {body}\n{TAIL}"))
    assert (recipe.q and print_expr(recipe.q)) == wanted
    assert recipe.k is None


def test_a_table_of_angles(write: Callable[[str], Path]) -> None:
    """Sines and cosines of positions are computed once, by the spec's own code."""
    body = (
        "    f = 0.1 ** torch.arange(q.size(3) // 2)\n"
        "    at = torch.outer(torch.arange(q.size(2)).float(), f)\n"
        "    at = torch.cat((at, at), -1)\n"
        "    q, k = q * at.cos() + turned(q) * at.sin(), k * at.cos() + turned(k) * at.sin()\n"
    )
    recipe = read_recipe(write(HEAD + body + TAIL))
    made = [i for i in recipe.inputs if i.derive is not None]
    assert len(made) == 2
    assert {i.dims for i in made} in ({("Nq", "D")}, {("Nk", "D")})
    assert all(any(n.name in print_expr(e) for n in made) for e in (recipe.q, recipe.k) if e)
