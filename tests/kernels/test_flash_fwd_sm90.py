"""The Hopper kernel lifts completely, and what is lifted computes full attention in any order."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.cuir.check import check
from engine.cuir.execute import Limits, Schedule, explore, run_program
from engine.cuir.nodes import Module
from engine.lift import lift, load_package
from engine.transfer.rules import apply, plan
from tests.engine.transfer.recipes import recipe

torch.set_num_threads(1)
FEW = Limits(sm_count=3)
HEADS = {64: 64, 96: 96, 128: 128, 192: 128, 256: 256}  # D: Dv; 96 is padded


def module(head: int) -> Module:
    lifted = lift(load_package("flash_fwd_sm90"), f"bf16_{head}", "sm_90a")
    assert lifted.opaque == ()
    return lifted.module


def inputs(head: int, b: int, hq: int, hkv: int, nq: int, nk: int) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(nq * 1000 + nk)

    def randn(heads: int, rows: int, columns: int) -> torch.Tensor:
        return torch.randn(b, heads, rows, columns, generator=draw).bfloat16()

    return {
        "q": randn(hq, nq, head), "k": randn(hkv, nk, head), "v": randn(hkv, nk, HEADS[head]),
        "o": torch.full((b, hq, nq, HEADS[head]), torch.nan),
        "lse": torch.full((b, hq, nq), torch.nan),
        "B": b, "Hq": hq, "Hkv": hkv, "Nq": nq, "Nk": nk, "scale": 0.7 * head**-0.5,
    }  # fmt: skip


def oracle(given: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    group = given["Hq"] // given["Hkv"]
    q, k, v = (given[name].double() for name in "qkv")
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-2, -1) * given["scale"]
    if given["Nk"] == 0:
        return torch.zeros_like(given["o"]).double(), torch.full(scores.shape[:3], -torch.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_the_static_checks_pass(head: int) -> None:
    assert check(module(head)) == ()


@pytest.mark.parametrize("head", sorted(HEADS))
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1, 128, 128), (2, 4, 2, 213, 403), (1, 2, 1, 1, 1), (1, 2, 2, 70, 0), (1, 2, 2, 0, 9)],
    ids=str,
)
def test_it_computes_full_attention(head: int, shape: tuple[int, int, int, int, int]) -> None:
    given = inputs(head, *shape)
    outcome = run_program(module(head), given, "exact", Schedule(1), FEW)
    assert outcome.status == "ran" and outcome.findings == ()
    o, lse = oracle(given)
    if o.numel():
        scale = o.abs().amax(-1, keepdim=True).clamp_min(1e-30)
        assert ((outcome.outputs["o"] - o).abs() / scale).max() < 1e-10
        assert torch.equal(outcome.outputs["lse"] == -torch.inf, lse == -torch.inf)
        assert (outcome.outputs["lse"] - lse).nan_to_num(0.0).abs().max() < 1e-10


@pytest.mark.parametrize("head", [64, 128])  # with overlap and without
def test_no_order_of_the_warpgroups_breaks_it(head: int) -> None:
    given = inputs(head, 1, 2, 1, 200, 300)  # more work than blocks: stages and turns carry over
    explored = explore(module(head), given, budget=30, limits=Limits(sm_count=1))
    assert explored.findings == ()


@pytest.mark.parametrize("head", [64, 128])
def test_no_order_breaks_warpgroups_that_pass_tiles_over(head: int) -> None:
    """Causal by the rules: the first rows of a block let its last tiles go by, turns included."""
    base = module(head)
    *_, (_, causal) = apply(base, plan(base, recipe("x * 0.125", "j <= i + (Nk - Nq)")).steps)
    given = inputs(head, 1, 2, 1, 400, 430)
    explored = explore(causal, given, budget=20, limits=Limits(sm_count=1))
    assert explored.findings == ()
    outcome = run_program(causal, given, "exact", Schedule(1), FEW)
    q, k, v = (given[name].double() for name in "qkv")
    scores = q @ k.transpose(-2, -1) * given["scale"]
    i, j = torch.arange(400)[:, None], torch.arange(430)[None, :]
    scores = scores.masked_fill(j > i + 30, -torch.inf)
    o = torch.softmax(scores, -1) @ v
    assert ((outcome.outputs["o"] - o).abs()).max() < 1e-10 * o.abs().max()
