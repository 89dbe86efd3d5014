"""What a call's kernels hand to each other: made for each call, of q's type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from engine.cuir.parser import parse_expr
from engine.package.runtime._args import Filler, passing
from engine.package.runtime._recipe import Recipe as RuntimeRecipe
from engine.spec.decks.deck_inputs import extent
from engine.spec.recipes.recipe import Input, Recipe
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.spec.reference.oracle import environment, expected, operand
from engine.transfer.rules import plan
from tests.engine.transfer.recipes import lifted, recipe


def test_a_call_makes_its_own() -> None:
    base = lifted("flash_fwd_sm80")
    planned = plan(base, recipe(q="q[b, h, i, dd] * 2.0", k="k[b, h, j, dd] * 3.0"))
    binding: Any = planned.binding.to_json()
    sizes = {"B": 2, "Hq": 6, "Hkv": 3, "Nq": 5, "Nk": 7, "D": 64, "Dv": 64}
    query = torch.empty(2, 6, 5, 64, dtype=torch.float16)
    made = passing(binding["scratch"], sizes, query)
    assert {n: tuple(t.shape) for n, t in made.items()} == {
        "q_ready": (2, 6, 5, 64),
        "k_ready": (2, 3, 7, 64),
    }
    assert all(t.dtype == torch.float16 and t.is_contiguous() for t in made.values())
    fields = [["q_ready", "tensor"], ["k_ready", "tensor"]]
    filled = Filler(fields, binding).fill(made, {})
    assert filled.q_ready.data == made["q_ready"].data_ptr()
    assert list(filled.k_ready.stride) == [1344, 448, 64, 1]


def rows_of(
    wanted: Recipe, values: dict[str, torch.Tensor], sizes: dict[str, int],
    rounded: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None] | None:  # fmt: skip
    """What a package of the recipe says of the rows."""
    inputs = [{"name": i.name, "role": i.role, "dims": list(i.dims)} for i in wanted.inputs]
    info = {"inputs": inputs, "recipe": recipe_to_json(wanted), "softmax": True}
    return RuntimeRecipe(info).rows(values, sizes, rounded)


def _of_bfloat16(wanted: Recipe, values: dict[str, torch.Tensor]) -> torch.Tensor:
    """The log-sum-exp of q and k that are made before their product, in plain torch."""
    env = environment(wanted, values, **{r: values[r] for r in "qkv"})
    q, k = (operand(wanted, r, values, env).bfloat16().double() for r in "qk")
    score = q @ k.repeat_interleave(2, 1).mT * 0.125
    return score.logsumexp(-1)


def test_the_log_sum_exp_of_what_was_made() -> None:
    """In plain torch as the recipe says it, sums over columns and columns beside included."""
    norm = "q[b, h, i, dd] * rsqrt(sum_over(lambda c: q[b, h, i, c] * q[b, h, i, c], D) / D + 1e-6)"
    wanted = recipe(
        q=norm,
        k="-k[b, h, j, dd + D // 2] if dd < D // 2 else k[b, h, j, dd - D // 2] * w[dd]",
        extra=(Input("w", "extra", "T", ("D",)),),
    )
    sizes = {"B": 2, "Hq": 4, "Hkv": 2, "Nq": 5, "Nk": 7, "D": 8, "Dv": 8}
    values = {i.name: torch.randn([sizes[d] for d in i.dims]) for i in wanted.inputs}
    rows = rows_of(wanted, values, sizes)
    assert rows is not None and rows[1] is not None
    torch.testing.assert_close(rows[1], expected(wanted, values).lse)
    low = rows_of(wanted, values, sizes, torch.bfloat16)
    assert low is not None and low[1] is not None
    torch.testing.assert_close(low[1], _of_bfloat16(wanted, values))
    assert not torch.equal(low[1], rows[1])


def test_the_log_sum_exp_of_parts_and_of_a_table() -> None:
    wanted = recipe(
        "x * 0.125 + sum_over(lambda c: q[b, h, i, c] * far[min(max(i - j, 0), 2), c], 5)",
        extra=(Input("far", "extra", "T", ("3", "5")), Input("p", "extra", "T", ("B", "Nq", "3"))),
        q="q[b, h, i, dd] if dd < 5 else p[b, i, dd - 5]",
    )
    first = replace(wanted.inputs[0], dims=("B", "Hq", "Nq", "5"))
    number = parse_expr("D == 8")
    wanted = replace(wanted, inputs=(first, *wanted.inputs[1:]), constraints=(number,))
    sizes = {"B": 2, "Hq": 4, "Hkv": 2, "Nq": 5, "Nk": 7, "D": 8, "Dv": 8}
    values = {i.name: torch.randn([extent(d, sizes) for d in i.dims]) for i in wanted.inputs}
    rows = rows_of(wanted, values, sizes)
    assert rows is not None and rows[1] is not None
    torch.testing.assert_close(rows[1], expected(wanted, values).lse)


def test_the_log_sum_exp_of_inputs_in_half_precision() -> None:
    """Arithmetic among inputs alone is done in float64 too, as the oracle does it."""
    wanted = recipe(
        "x * 0.125 + slope[h] * slope[h] * 100.0",
        keep="slope[h] * slope[h] > 0.0",
        extra=(Input("slope", "extra", "T", ("Hq",)),),
    )
    sizes = {"B": 1, "Hq": 2, "Hkv": 2, "Nq": 3, "Nk": 5, "D": 8, "Dv": 8}
    values = {i.name: torch.rand([sizes[d] for d in i.dims]).bfloat16() for i in wanted.inputs}
    rows = rows_of(wanted, values, sizes)
    slope = values["slope"].double()
    x = values["q"].double() @ values["k"].double().mT
    exact = (x * 0.125 + (slope * slope * 100.0)[:, None, None]).logsumexp(-1)
    assert rows is not None and rows[1] is not None and bool(rows[0].all())
    torch.testing.assert_close(rows[1], exact)
