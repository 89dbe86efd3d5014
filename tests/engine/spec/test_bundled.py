"""The example specs: what each asks for, that the spec computes it, how fast it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.cuir.printer import print_expr
from engine.resources import specs_dir
from engine.spec import (
    Recipe,
    derive_inputs,
    expected,
    make_inputs,
    read_recipe,
    recipe_from_json,
    recipe_to_json,
)  # fmt: skip
from engine.spec.decks.deck_inputs import KINDS, violated
from engine.spec.python.signature import fixed_sizes
from engine.spec.recipes.recipe import OUTPUT
from engine.spec.reference.oracle import oracle, output_as_bhnd

SCALED = "x * rsqrt(D)"
BOTTOM_RIGHT = "j <= i + Nk - Nq"
# name: (score, keep, weight, empty rows)
ASKS = {
    "full": (SCALED, "True", None, "never"),
    "causal": (SCALED, BOTTOM_RIGHT, None, "nan"),
    "softcap_causal": ("50.0 * tanh(x * rsqrt(D) / 50.0)", BOTTOM_RIGHT, None, "nan"),
    "sliding_window_causal": (SCALED, f"{BOTTOM_RIGHT} and j >= i + Nk - Nq - 1023", None, "nan"),
    "gated_causal": (SCALED, BOTTOM_RIGHT, None, "nan"),
    "sinks_window": (SCALED, f"{BOTTOM_RIGHT} and j >= i + Nk - Nq - 127", None, "zero"),
    "sliding_window": (SCALED, f"{BOTTOM_RIGHT} + 256 and j >= i + Nk - Nq - 256", None, "nan"),
    "alibi_causal": (f"{SCALED} + slopes[h] * (j - i - Nk + Nq)", BOTTOM_RIGHT, None, "nan"),
    "prefix_lm": (SCALED, "j <= i or j < 256", None, "never"),
    "document": (SCALED, "doc_k[b, j] == doc_q[b, i]", None, "nan"),
    "causal_document": (SCALED, f"{BOTTOM_RIGHT} and doc_k[b, j] == doc_q[b, i]", None, "nan"),
    "bias_gqa": (f"{SCALED} + bias[0, h, i, j]", "True", None, "never"),
    "sigmoid": (f"{SCALED} - log(Nk)", "True", "sigmoid(s)", "never"),
    "sigmoid_causal": (f"{SCALED} - 8.0", BOTTOM_RIGHT, "sigmoid(s)", "zero"),
    "flex_causal_document": (
        SCALED, f"{BOTTOM_RIGHT} and doc[i + Nk - Nq] == doc[j]", None, "never"
    ),
    "share_question": (
        SCALED, "j <= i and segment[b, j] == 0 or j <= i and segment[b, i] == segment[b, j]", None,
        "never",
    ),
    "prefix_lm_document": (
        SCALED, "j <= i and floor_div(part[b, i], 2) == floor_div(part[b, j], 2) or "
        "floor_mod(part[b, j], 2) == 0 and floor_div(part[b, i], 2) == floor_div(part[b, j], 2)",
        None, "never",
    ),
    "global_sliding_window": (
        SCALED, "j < 16 or i <= Nq - Nk + 15 or j <= i + Nk - Nq + 256 and "
        "j >= i + Nk - Nq - 256", None, "never",
    ),
    "causal_blockwise": (
        SCALED, f"{BOTTOM_RIGHT} and floor_div(i + Nk - Nq, 512) == j // 512 or {BOTTOM_RIGHT} "
        "and floor_div(Nk - 1, 512) == floor_div(i + Nk - Nq, 512)", None, "nan",
    ),
    "flex_softcap_window": (
        "50.0 * tanh(x * rsqrt(D) / 50.0)", "j <= i and j >= i - 1023", None, "zero"
    ),
    "qk_norm_causal": (SCALED, BOTTOM_RIGHT, None, "nan"),
    "rope_causal": (SCALED, "j <= i", None, "never"),
    "qk_norm_rope_causal": (SCALED, "j <= i", None, "never"),
    "output_norm_causal": (SCALED, BOTTOM_RIGHT, None, "nan"),
    "differential_causal": (SCALED, BOTTOM_RIGHT, None, "nan"),
    "mla_causal": ("x * 0.07216878364870322", "j <= i", None, "never"),
}  # fmt: skip
MEAN_SQUARE = "sum_over(lambda c: q[b, h, i, c] * q[b, h, i, c], D) / D"
# What an element of q becomes before the product.
BEFORE = {
    "qk_norm_causal": f"q_weight[dd] * q[b, h, i, dd] * rsqrt({MEAN_SQUARE} + 1e-06)",
    "rope_causal": "q[b, h, i, dd] * cos_input[b, i, dd] + (-q[b, h, i, dd + D // 2] "
    "if dd < D // 2 else q[b, h, i, dd - D // 2]) * sin_input[b, i, dd]",
}


def path_of(name: str) -> Path:
    return specs_dir() / f"{name}.py"


@pytest.fixture(scope="module")
def recipes() -> dict[str, Recipe]:
    return {name: read_recipe(path_of(name)) for name in ASKS}


def test_every_bundled_spec_is_tested() -> None:
    assert {p.stem for p in specs_dir().glob("*.py")} == set(ASKS)


def test_what_changes_the_sum_and_the_output(recipes: dict[str, Recipe]) -> None:
    sums = {n: print_expr(r.sink) for n, r in recipes.items() if r.sink is not None}
    outputs = {n: print_expr(r.output) for n, r in recipes.items() if r.output != OUTPUT}
    others = {n: print_expr(r.other.value) for n, r in recipes.items() if r.other is not None}
    assert sums == {"sinks_window": "sinks[h]"}
    assert others == {"differential_causal": "o - lam[h] * o2"}
    assert outputs == {
        "differential_causal": (
            "weight[d] * o * rsqrt(sum_over(lambda c: o[c] * o[c], D) / D + 1e-05) / 5.0"
        ),
        "gated_causal": "o * sigmoid(gate[b, i, h, d])",
        "output_norm_causal": (
            "weight[d] * o * rsqrt(sum_over(lambda c: o[c] * o[c], D) / D + 1e-05)"
        ),
    }


@pytest.mark.parametrize("name", ASKS)
def test_asks_for(name: str, recipes: dict[str, Recipe]) -> None:
    recipe = recipes[name]
    score, keep, weight, empty = ASKS[name]
    assert print_expr(recipe.score) == score
    assert print_expr(recipe.keep) == keep
    assert (recipe.weight and print_expr(recipe.weight)) == weight
    assert print_expr(recipe.kv_head) == ("h" if name == "mla_causal" else "h // (Hq // Hkv)")
    assert empty is None or recipe.empty_rows == empty


@pytest.mark.parametrize("name", ASKS)
def test_what_happens_before_the_product(name: str, recipes: dict[str, Recipe]) -> None:
    recipe = recipes[name]
    changed = "qk_norm" in name or "rope" in name or "mla" in name
    assert (recipe.q is not None, recipe.k is not None) == (changed, changed)
    if name in BEFORE:
        assert recipe.q is not None and print_expr(recipe.q) == BEFORE[name]


@pytest.mark.parametrize("name", ASKS)
def test_json_is_exact(name: str, recipes: dict[str, Recipe]) -> None:
    assert recipe_from_json(recipe_to_json(recipes[name])) == recipes[name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ASKS)
def test_is_what_the_spec_computes(name: str, kind: str, recipes: dict[str, Recipe]) -> None:
    recipe = recipes[name]
    for seed, (n_q, n_k) in enumerate([(5, 7), (70, 33), (33, 300)]):
        sizes = {"B": 2, "Hq": 6, "Hkv": 2, "Nq": n_q, "Nk": n_k, "D": 12, "Dv": 12}
        sizes |= fixed_sizes(recipe.constraints)
        if name == "mla_causal":
            sizes |= {"Hkv": 6, "Nk": n_q}
        if violated(recipe, sizes):
            continue
        inputs = make_inputs(recipe, sizes, seed, kind)  # type: ignore[arg-type]
        ours = expected(recipe, {**inputs, **derive_inputs(path_of(name), recipe, inputs)})
        theirs = output_as_bhnd(recipe, oracle(path_of(name), inputs))
        rows = ~ours.empty
        # A bias of -inf everywhere in a row is data, not a mask: the spec gives NaN there.
        rows &= ~torch.isnan(theirs).all(-1)
        gap = (theirs - ours.o).abs().amax(-1)[rows]
        scale = ours.o.abs().amax(-1)[rows]
        assert bool((gap <= 1e-10 * scale.clamp(min=1e-300)).all())
