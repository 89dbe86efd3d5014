"""FlexAttention's mods say what the recipe says; what cannot be said is told with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.cuir.nodes import Num
from engine.cuir.parser import parse_expr
from engine.cuir.scalar import evaluate
from engine.spec.recipes.recipe import Input, Recipe
from engine.worker.contests.flex_source import NotExpressible, flex_source, split_scale
from engine.worker.contests.rivals import linear_score
from tests.engine.gpu.fakes import causal_recipe

SIZES = {"B": 2, "Hq": 4, "Hkv": 2, "Nq": 7, "Nk": 11, "D": 16, "Dv": 16}


def recipe(score: str, keep: str = "True", extras: tuple[Input, ...] = ()) -> Recipe:
    base = causal_recipe(keep=keep, score=score)
    return replace(base, inputs=(*base.inputs, *extras))


def tensors() -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(3)
    return {
        "slopes": torch.rand(4, generator=g),
        "doc": torch.randint(0, 3, (2, 11), generator=g, dtype=torch.int32),
        "bias": torch.randn(1, 4, 7, 11, generator=g),
        "cap": torch.tensor(3.5),
    }


EXTRAS = {
    "slopes": Input("slopes", "extra", "f32", ("Hq",)),
    "doc": Input("doc", "extra", "i32", ("B", "Nk")),
    "bias": Input("bias", "extra", "T", ("1", "Hq", "Nq", "Nk")),
    "cap": Input("cap", "extra", "f32", ()),
}

RECIPES = [
    ("x", "True", ()),
    ("x / sqrt(float(D))", "j <= i + Nk - Nq", ()),
    ("x * 0.25", "j <= i and not (j == 3) or i < 2", ()),
    ("20.0 * tanh(x * 0.125 / 20.0)", "floor_div(i, 3) >= floor_div(j, 3)", ()),
    ("x * 0.25 + slopes[h] * float(j - i)", "j <= i", ("slopes",)),
    ("x * 0.25 + bias[0, h, i, j]", "True", ("bias",)),
    ("cap * tanh(x / cap)", "doc[b, j] == 1", ("cap", "doc")),
    ("max(x, 0.0) + min(float(i), 2.0) - abs(x)", "j < 5 if i > 2 else j > 5", ()),
    ("x * rsqrt(float(D)) * exp(-0.1 * float(i))", "floor_mod(j, 2) == 0", ()),
]


@pytest.mark.parametrize(("score", "keep", "names"), RECIPES)
def test_the_mods_equal_the_recipe(score: str, keep: str, names: tuple[str, ...]) -> None:
    said = recipe(score, keep, tuple(EXTRAS[n] for n in names))
    source = flex_source(said).source
    space: dict[str, Any] = {}
    exec(compile(source, "flex.py", "exec"), space)
    held = {n: tensors()[n] for n in names}
    scale, score_mod, mask_mod = space["mods"](SIZES, held)
    b, h, i, j = (
        torch.arange(n).reshape([n if d == place else 1 for d in range(4)])
        for place, n in enumerate((2, 4, 7, 11))
    )
    x = torch.randn(2, 4, 7, 11, generator=torch.Generator().manual_seed(1))
    env = {**SIZES, "b": b, "h": h, "i": i, "j": j, "x": x.double()}
    env |= {n: t if t.dim() else t.item() for n, t in held.items()}
    want = torch.as_tensor(evaluate(said.score, env)).broadcast_to(x.shape)
    scaled = x * scale
    got = scaled if score_mod is None else score_mod(scaled, b, h, i, j)
    torch.testing.assert_close(got.double(), want.double(), rtol=1e-5, atol=1e-5)
    kept = torch.as_tensor(evaluate(said.keep, env)).broadcast_to(x.shape)
    shown = torch.tensor(True) if mask_mod is None else mask_mod(b, h, i, j)
    assert torch.equal(shown.broadcast_to(x.shape), kept)


def test_what_flex_attention_cannot_say() -> None:
    base = causal_recipe()
    for other, words in (
        (replace(base, weight=parse_expr("sigmoid(s)")), "softmax alone"),
        (replace(base, output=parse_expr("o / float(Nk)")), "nothing of the output"),
        (replace(base, sink=parse_expr("0.0")), "no sink"),
        (replace(base, kv_head=parse_expr("h % Hkv")), "pairs query head"),
    ):
        with pytest.raises(NotExpressible, match=words):
            flex_source(other)


def test_the_scale_goes_into_its_own_argument_only_where_it_may() -> None:
    assert split_scale(parse_expr("x * 0.5")) == (Num(0.5), parse_expr("x"))
    scale, rest = split_scale(parse_expr("30.0 * tanh(x * 0.5 / 30.0)"))
    assert (scale, rest) == (Num(0.5), parse_expr("30.0 * tanh(x / 30.0)"))
    for kept in ("x + 1.0", "x * float(i)", "x * 0.5 + x * 0.25", "tanh(x)", "x * t[h]"):
        assert split_scale(parse_expr(kept)) == (Num(1.0), parse_expr(kept))


def test_linear_scores() -> None:
    assert linear_score(parse_expr("x * 0.5")) == (Num(0.5), None)
    found = linear_score(parse_expr("x * 0.5 + bias[h, i]"))
    assert found is not None and found[1] == parse_expr("bias[h, i]")
    for other in ("tanh(x)", "x * x", "x * float(j)", "2.0 + tanh(x)"):
        assert linear_score(parse_expr(other)) is None
