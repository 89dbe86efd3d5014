"""Dimensions that an extra input alone has: read, drawn and judged like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cuir.printer import print_module
from engine.gates.g1_g2.judge import judge_json
from engine.lift import lift, load_package
from engine.lower.spelling.legal import legal
from engine.spec import read_recipe, recipe_to_json
from engine.spec.decks.deck_inputs import with_own_sizes
from engine.transfer.rules import apply, plan

HEAD = """
import torch

def attention(
    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B H N D"], v: Float[Tensor, "B H N D"],
    {parameter}
):
    i = torch.arange(q.size(2))
    s = (q @ k.transpose(-1, -2)) * q.size(-1) ** -0.5
    {body}
    return torch.softmax(s, -1) @ v
"""
SPECS = {
    "ends of documents": (
        'ends: Int32[Tensor, "E"]',
        "doc = torch.searchsorted(ends.long(), i, right=True); "
        "s = s.masked_fill(doc[:, None] != doc[None], float('-inf'))",
    ),
    "the last entry beyond a table": (
        't: Float[Tensor, "W"]', "s = s + t[i.clamp(max=t.size(0) - 1)]",
    ),
    "the first entry below a table": (
        't: Float[Tensor, "W"]', "s = s + t[(i - 7).clamp(min=0, max=t.size(0) - 1)]",
    ),
    "a table again and again": ('t: Float[Tensor, "W"]', "s = s + t[i % t.size(0)]"),
    "a table from its end": ('t: Float[Tensor, "W"]', "s = s + t[t.size(0) - 1 - i % t.size(0)]"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_with_a_size_of_its_own_is_carried(name: str, tmp_path: Path) -> None:
    parameter, body = SPECS[name]
    spec = tmp_path / "spec.py"
    spec.write_text(HEAD.format(parameter=parameter, body=body))
    recipe = read_recipe(spec)
    package = load_package("flash_fwd_sm80")
    base = lift(package, "bf16_64", package.archs[0]).module
    planned = plan(base, recipe)
    target = [base, *(after for _, after in apply(base, planned.steps))][-1]
    payload = {
        "module": print_module(legal(target)), "recipe": recipe_to_json(recipe), "spec": str(spec),
        "options": {}, "binding": planned.binding.to_json(), "base": None,
    }  # fmt: skip
    found = judge_json(payload, lambda _: None)
    assert found["ok"], found["reason"]


def test_sizes_of_their_own_differ_and_reach_every_key(tmp_path: Path) -> None:
    spec = tmp_path / "spec.py"
    spec.write_text(HEAD.format(parameter='t: Float[Tensor, "W V"]', body="s = s + t[i, 0]"))
    sizes = with_own_sizes(read_recipe(spec).inputs, {"Nk": 5, "D": 64})
    assert sizes["W"] > 5 and sizes["V"] > 5 and sizes["W"] != sizes["V"] and sizes["D"] == 64
