"""What happens to the output after it is normalised, and the layouts that it is returned in."""

# ruff: noqa: E501  (a spec in a table reads better on few lines)

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cuir.printer import print_expr
from engine.errors import SpecError
from engine.spec import read_recipe, recipe_from_json, recipe_to_json

HEAD = """\
import torch
import torch.nn.functional as F

def attention(q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hq Nk D"], v: Float[Tensor, "B Hq Nk D"]{extra}){returns}:
    o = (q @ k.mT * 0.125).softmax(-1) @ v
    return {output}
"""
BNHD = ', g: Float[Tensor, "B Nq Hq D"]'
MERGED = ' -> Float[Tensor, "B Nq Hq*D"]'
# (extra parameters, what is returned, its annotation; the recipe's output and dimensions)
OUTPUTS = {
    "an element's gate": (BNHD, "o.transpose(1, 2) * torch.sigmoid(g)", "",
                          "o * sigmoid(g[b, i, h, d])", "B Nq Hq D"),
    "SiLU": (BNHD, "F.silu(g.transpose(1, 2)) * o", "",
             "g[b, i, h, d] * o * sigmoid(g[b, i, h, d])", "B Hq Nq D"),
    "a row's gate": (', g: Float[Tensor, "B Nq Hq"]', "o.transpose(1, 2) * g[..., None]", "",
                     "g[b, i, h] * o", "B Nq Hq D"),
    "a head's scale": (', g: Float32[Tensor, "Hq"]', "o * torch.tanh(g)[:, None, None]", "",
                       "o * tanh(g[h])", "B Hq Nq D"),
    "a column's scale": (', g: Float[Tensor, "D"]', "o * g", "", "g[d] * o", "B Hq Nq D"),
    "a row's length": ("", "o / o.norm(dim=-1, keepdim=True)", "",
                       "o / sqrt(sum_over(lambda c: o[c] * o[c], D))", "B Hq Nq D"),
    "merged": ("", "o.transpose(1, 2).flatten(2)", MERGED, "o", "B Nq Hq D"),
    "merged, gated after": (BNHD, "o.transpose(1, 2).flatten(2) * torch.sigmoid(g.flatten(2))", MERGED,
                            "o * sigmoid(g[b, i, h, d])", "B Nq Hq D"),
    "merged without saying so": ("", "o.transpose(1, 2).flatten(2)", "", "o", "B Nq Hq D"),
}  # fmt: skip


def spec(folder: Path, extra: str, output: str, returns: str) -> Path:
    path = folder / "spec.py"
    path.write_text(HEAD.format(extra=extra, returns=returns, output=output))
    return path


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name: str, tmp_path: Path) -> None:
    extra, returned, annotation, output, dims = OUTPUTS[name]
    recipe = read_recipe(spec(tmp_path, extra, returned, annotation))
    assert print_expr(recipe.output) == output
    assert recipe.output_dims == tuple(dims.split())
    assert recipe.merged == name.startswith("merged")
    assert " ".join(recipe.returned_dims) == ("B Nq Hq*D" if recipe.merged else dims)
    assert recipe_from_json(recipe_to_json(recipe)) == recipe


# (second output, base, dimensions); None: refused
SECONDS = {
    "s.logsumexp(-1)": ("e", "B Hq Nq"),
    "(s.logsumexp(-1) / math.log(2)).transpose(1, 2)": ("2", "B Nq Hq"),
    "s.amax(-1) + (s - s.amax(-1, keepdim=True)).exp().sum(-1).log()": ("e", "B Hq Nq"),
    "s.amax(-1)": None,
    "s.logsumexp(-1) / math.log(10)": None,
    "(s / 2).logsumexp(-1)": None,
}


@pytest.mark.parametrize("second", SECONDS)
def test_second_outputs(second: str, tmp_path: Path) -> None:
    path = spec(tmp_path, "", f"(s.softmax(-1) @ v, {second})", "")
    text = path.read_text().replace("import torch\n", "import math, torch\n", 1)
    path.write_text(
        text.replace("    o = (q @ k.mT * 0.125).softmax(-1) @ v\n", "    s = q @ k.mT * 0.125\n")
    )
    wanted = SECONDS[second]
    if wanted is None:
        with pytest.raises(SpecError, match="not the log-sum-exp"):
            read_recipe(path)
        return
    recipe = read_recipe(path)
    assert (recipe.lse, " ".join(recipe.lse_dims)) == wanted
    assert recipe_from_json(recipe_to_json(recipe)) == recipe


def test_a_recipe_of_before_is_read() -> None:
    data = recipe_to_json(read_recipe(Path(__file__).parents[4] / "kernels/specs/full.py"))
    since = ("sink", "output", "merged", "lse", "lse_dims")
    old = {n: v for n, v in data.items() if n not in since}
    for factor, output in ((None, "o"), ("1.0 / Nk", "o * (1.0 / Nk)")):
        read = recipe_from_json({**old, "schema": 1, "output_factor": factor})
        assert print_expr(read.output) == output
        assert read.sink is None


@pytest.mark.parametrize("output", ["o * o", "o + q", "o - o.mean(dim=-1, keepdim=True)"])
def test_what_is_no_product_of_the_output_is_refused(output: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        read_recipe(spec(tmp_path, "", output, ""))
