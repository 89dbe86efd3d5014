"""Two attentions that are combined element by element, as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cuir.printer import print_expr
from engine.errors import SpecError
from engine.spec import read_recipe, recipe_from_json, recipe_to_json

HEAD = """
import torch
import torch.nn.functional as F

def attention(
    q1: Float[Tensor, "B H N D"], k1: Float[Tensor, "B H N D"], v: Float[Tensor, "B H N D"],
    q2: Float[Tensor, "B H N D"], k2: Float[Tensor, "B H N D"], {inputs}
):
    n = q1.shape[2]
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    def weights(q, k, scale=q1.shape[-1] ** -0.5, mask=future):
        return (q @ k.mT * scale).masked_fill(mask, float("-inf")).softmax(-1)
{body}
"""
WRITINGS = {
    "weights subtracted": (
        'lam: Float[Tensor, "H"]',
        "return (weights(q1, k1) - lam[:, None, None] * weights(q2, k2)) @ v",
        "o - lam[h] * o2", "o",
    ),
    "outputs subtracted": (
        'lam: Float[Tensor, "H"]',
        "return weights(q1, k1) @ v - lam[:, None, None] * (weights(q2, k2) @ v)",
        "o - lam[h] * o2", "o",
    ),
    "by the library's attention": (
        'lam: Float[Tensor, "B H N"]',
        "a = F.scaled_dot_product_attention(q1, k1, v, is_causal=True)\n"
        "b = F.scaled_dot_product_attention(q2, k2, v, is_causal=True)\n"
        "return a - lam.sigmoid().unsqueeze(-1) * b",
        "o - o2 * sigmoid(lam[b, h, i])", "o",
    ),
    "a number, and a norm": (
        'w: Float[Tensor, "D"]',
        "o = (weights(q1, k1) - 0.5 * weights(q2, k2)) @ v\n"
        "return o * torch.rsqrt(o.pow(2).mean(-1, keepdim=True) + 1e-5) * w * 0.2",
        "o - 0.5 * o2",
        "w[d] * o * rsqrt(sum_over(lambda c: o[c] * o[c], D) / D + 1e-05) / 5.0",
    ),
    "the mean of both": (
        "", "return (weights(q1, k1) @ v + weights(q2, k2) @ v) / 2", "o + o2", "0.5 * o",
    ),
}  # fmt: skip
REFUSED = {
    "other scales": (
        "return (weights(q1, k1) - 0.5 * weights(q2, k2, 0.1)) @ v",
        "two attentions are combined whose scores differ",
    ),
    "other masks": (
        "return (weights(q1, k1) - 0.5 * weights(q2, k2, mask=future.triu(4))) @ v",
        "two attentions are combined whose masks differ",
    ),
    "other values": (
        "return weights(q1, k1) @ v - 0.5 * (weights(q2, k2) @ k1)",
        "two attentions are combined",
    ),
    "one q": (
        "return (weights(q1, k1) - 0.5 * weights(q1, k2)) @ v",
        "two attentions are combined that read q or k from one input",
    ),
    "a norm before": (
        "return (weights(q1, k1) - 0.5 * weights(F.normalize(q2, dim=-1), k2)) @ v",
        "q or k of two attentions that are combined is changed before the product",
    ),
}


def spec(folder: Path, inputs: str, body: str) -> Path:
    path = folder / "spec.py"
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    path.write_text(HEAD.format(inputs=inputs, body=lines))
    return path


@pytest.mark.parametrize("name", WRITINGS)
def test_what_both_become_is_read(name: str, tmp_path: Path) -> None:
    inputs, body, value, output = WRITINGS[name]
    recipe = read_recipe(spec(tmp_path, inputs, body))
    assert recipe.other is not None
    assert (recipe.other.q, recipe.other.k) == ("q2", "k2")
    assert print_expr(recipe.other.value) == value
    assert print_expr(recipe.output) == output
    assert {i.name: i.dims for i in recipe.inputs}["q2"] == ("B", "Hq", "Nq", "D")
    assert recipe_from_json(recipe_to_json(recipe)) == recipe


def test_both_may_have_one_k(tmp_path: Path) -> None:
    recipe = read_recipe(spec(tmp_path, "", "return (weights(q1, k1) - weights(q2, k1)) @ v"))
    assert recipe.other is not None and (recipe.other.q, recipe.other.k) == ("q2", "k1")
    assert {i.name: i.role for i in recipe.inputs} == {
        "q1": "q", "k1": "k", "v": "v", "q2": "extra", "k2": "extra",
    }  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_attentions_of_two_shapes_are_refused_in_words(name: str, tmp_path: Path) -> None:
    body, words = REFUSED[name]
    with pytest.raises(SpecError, match=words):
        read_recipe(spec(tmp_path, "", body))
