"""The softmax's sum with a term that no key has, in the writings of models."""

# ruff: noqa: E501  (a spec in a table reads better on few lines)

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cuir.printer import print_expr
from engine.errors import SpecError
from engine.spec import read_recipe

HEAD = """\
import torch
import torch.nn.functional as F

def attention(q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hq Nk D"], v: Float[Tensor, "B Hq Nk D"]{extra}):
    s = q @ k.mT * 0.125
{body}
"""
SINKS = ', sinks: Float32[Tensor, "Hq"]'
CAUSAL = "s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).tril().logical_not(), -torch.inf)\n"
COLUMN = "c = sinks.view(1, -1, 1, 1).expand(q.size(0), -1, q.size(2), 1)\n"
# Writings of one sum: with a sink of sinks[h].
SAME = {
    "a column behind": COLUMN + "return torch.cat([s, c], -1).softmax(-1)[..., :-1] @ v",
    "a column before": COLUMN + "return torch.cat([c, s], -1).softmax(-1)[..., 1:] @ v",
    "the row maximum taken off": COLUMN + "x = torch.cat([s, c], -1)\nx = x - x.amax(-1, keepdim=True)\n"
    "return x.softmax(-1)[..., :-1] @ v",
    "in the sum": "m = s.amax(-1, keepdim=True)\np = (s - m).exp()\n"
    "return p / (p.sum(-1, keepdim=True) + (sinks.view(1, -1, 1, 1) - m).exp()) @ v",
    "in the sum, divided last": "c = sinks.view(1, -1, 1, 1)\nm = torch.maximum(s.amax(-1, keepdim=True), c)\n"
    "p = (s - m).exp()\nreturn (p @ v) / (p.sum(-1, keepdim=True) + (c - m).exp())",
    "by log-sum-exp": "z = torch.cat([s, " + "sinks.view(1, -1, 1, 1).expand(q.size(0), -1, q.size(2), 1)], -1)\n"
    "return (s - z.logsumexp(-1, keepdim=True)).exp() @ v",
    "a factor on the output": "lse = s.logsumexp(-1, keepdim=True)\n"
    "return (s.softmax(-1) @ v) * torch.sigmoid(lse - sinks.view(1, -1, 1, 1))",
}  # fmt: skip
# Other terms: (extra parameters, body, the sink).
OTHERS = {
    "one more": ("", "p = s.exp()\nreturn p / (1 + p.sum(-1, keepdim=True)) @ v", "0.0"),
    "one more, beside the row maximum": (
        "", "m = s.amax(-1, keepdim=True).clamp(min=0)\np = (s - m).exp()\n"
        "return p / (p.sum(-1, keepdim=True) + (-m).exp()) @ v", "0.0"),
    "a column of zeros": ("", "return F.pad(s, (1, 0)).softmax(-1)[..., 1:] @ v", "0.0"),
    "a key of zeros": (
        "", "z = torch.zeros_like(k[:, :, :1])\ns = q @ torch.cat([k, z], 2).mT * 0.125\n"
        "return s.softmax(-1) @ torch.cat([v, z], 2)", "0.0"),
    "half of one": ("", "p = s.exp()\nreturn p / (0.5 + p.sum(-1, keepdim=True)) @ v", "-0.6931471805599453"),
    "a row's own": (
        ', g: Float[Tensor, "B Hq Nq"]', "return torch.cat([s, g[..., None]], -1).softmax(-1)[..., :-1] @ v",
        "g[b, h, i]"),
    "a batch's and head's own, halved": (
        ', g: Float32[Tensor, "B Hq"]', "c = (g / 2)[..., None, None].expand(-1, -1, q.size(2), -1)\n"
        "return torch.cat([s, c], -1).softmax(-1)[..., :-1] @ v", "0.5 * g[b, h]"),
    "two columns": (
        ', g: Float32[Tensor, "2"]',
        "c = g.view(1, 1, 1, 2).expand(q.size(0), q.size(1), q.size(2), 2)\n"
        "return torch.cat([s, c], -1).softmax(-1)[..., :-2] @ v", "log(exp(g[0]) + exp(g[1]))"),
}  # fmt: skip
REFUSED = {
    "one more, after the row maximum": (
        "p = (s - s.amax(-1, keepdim=True)).exp()\nreturn p / (1 + p.sum(-1, keepdim=True)) @ v",
        "normalised by something else"),
    "a column that has a value": (
        "z = torch.ones_like(v[:, :, :1])\nx = torch.cat([s, torch.zeros_like(s[..., :1])], -1)\n"
        "return x.softmax(-1) @ torch.cat([v, z], 2)", "not a product of weights and v"),
}  # fmt: skip


def spec(folder: Path, body: str, extra: str = SINKS, mask: str = "") -> Path:
    path = folder / "spec.py"
    text = "".join(f"    {line}\n" for line in (mask + body).splitlines())
    path.write_text(HEAD.format(extra=extra, body=text))
    return path


@pytest.mark.parametrize("mask", ["", CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("name", SAME)
def test_writings_of_a_sink_are_one_recipe(name: str, mask: str, tmp_path: Path) -> None:
    recipe = read_recipe(spec(tmp_path, SAME[name], mask=mask))
    assert recipe.sink is not None
    assert print_expr(recipe.sink) == "sinks[h]"
    assert print_expr(recipe.keep) == ("j <= i" if mask else "True")
    assert print_expr(recipe.score) == "x * 0.125"
    assert not recipe.changes_output


def test_a_column_where_there_are_as_many_channels_as_positions(tmp_path: Path) -> None:
    """With one name for both lengths a head size is one more than the keys at a traced size."""
    path = spec(tmp_path, SAME["a column behind"])
    text = path.read_text().replace("Hq", "H").replace("Nq", "N").replace("Nk", "N")
    path.write_text(text)
    recipe = read_recipe(path)
    assert recipe.sink is not None
    assert print_expr(recipe.sink) == "sinks[h]"


@pytest.mark.parametrize("name", OTHERS)
def test_what_else_is_added_to_the_sum(name: str, tmp_path: Path) -> None:
    extra, body, sink = OTHERS[name]
    recipe = read_recipe(spec(tmp_path, body, extra))
    assert recipe.sink is not None
    assert print_expr(recipe.sink) == sink


@pytest.mark.parametrize("name", REFUSED)
def test_another_sum_is_refused(name: str, tmp_path: Path) -> None:
    body, words = REFUSED[name]
    with pytest.raises(SpecError, match=words):
        read_recipe(spec(tmp_path, body))
