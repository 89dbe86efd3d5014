"""The Hopper kernel lifts completely, and what is lifted computes full attention in any order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from engine.cuir.execute import Limits, Schedule, run_program
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.cuir.static.check import check
from engine.gates.g1_g2.judge import judge_json
from engine.lift import lift, lift_source, load_package
from engine.lower.spelling.legal import legal
from engine.resources import specs_dir
from engine.spec.read import read_recipe
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.transfer.rules import apply, plan
from tests.engine.cuir.execute.explore import explore
from tests.engine.transfer.recipes import recipe

torch.set_num_threads(1)
FEW = Limits(sm_count=3)
HEADS = {64: 64, 96: 96, 128: 128, 192: 128, 256: 256}  # D: Dv
# Matmuls take a part of the last panel: beside the next softmax (40, 160, 224) and before it.
FURTHER = {40: 40, 72: 72, 160: 160, 224: 224}
COLUMNS = HEADS | FURTHER


def module(head: int) -> Module:
    lifted = lift(load_package("flash_fwd_sm90"), f"bf16_{head}", "sm_90a")
    assert lifted.opaque == ()
    return lifted.module


def inputs(head: int, b: int, hq: int, hkv: int, nq: int, nk: int) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(nq * 1000 + nk)

    def randn(heads: int, rows: int, columns: int) -> torch.Tensor:
        return torch.randn(b, heads, rows, columns, generator=draw).bfloat16()

    return {
        "q": randn(hq, nq, head), "k": randn(hkv, nk, head), "v": randn(hkv, nk, COLUMNS[head]),
        "o": torch.full((b, hq, nq, COLUMNS[head]), torch.nan),
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


@pytest.mark.parametrize("head", sorted(COLUMNS))
def test_the_static_checks_pass(head: int) -> None:
    assert check(module(head)) == ()


SHAPES = [
    (1, 1, 1, 128, 128), (2, 4, 2, 213, 403), (1, 2, 1, 1, 1), (1, 2, 2, 70, 0), (1, 2, 2, 0, 9),
]  # fmt: skip


@pytest.mark.parametrize(
    ("head", "shape"),
    [*itertools.product(HEADS, SHAPES), *itertools.product(FURTHER, [(1, 2, 1, 140, 260)])],
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
def test_starved_delayed_and_random_warps_do_not_break_it(head: int) -> None:
    given = inputs(head, 1, 2, 1, 200, 300)  # more work than blocks: stages and turns carry over
    explored = explore(module(head), given, budget=30, limits=Limits(sm_count=1))
    assert explored.findings == ()


def causal_of(base: Module) -> Module:
    """Causal by the rules: the first rows of a block let its last tiles go by, turns included."""
    *_, (_, causal) = apply(base, plan(base, recipe("x * 0.125", "j <= i + (Nk - Nq)")).steps)
    return causal


@pytest.mark.parametrize("head", [64, 128])
def test_nor_do_they_break_warpgroups_that_pass_tiles_over(head: int) -> None:
    causal = causal_of(module(head))
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


# Of the loop over tiles that go by. In the late text one thread frees a stage of V that another
# warp of its group has not waited for yet, and the refilled stage's phase passes that warp by.
MENDED = """          wait(k_full[stage], parity);
          wait(v_full[stage], parity);
          named_sync(wg, 256);
          named_arrive(after, 256);
          if (elect()) {
            arrive(k_empty[stage]);
            arrive(v_empty[stage]);
          }
"""
LATE = """          wait(k_full[stage], parity);
          named_sync(wg, 256);
          named_arrive(after, 256);
          if (elect()) {
            arrive(k_empty[stage]);
          }
          wait(v_full[stage], parity);
          if (elect()) {
            arrive(v_empty[stage]);
          }
"""


def late_module() -> Module:
    package = load_package("flash_fwd_sm90")
    source = package.source.decode()
    assert source.count(MENDED) == 2  # before the first computed tile and after the last
    text = source.replace(MENDED, LATE).encode()
    return lift_source(text, {"T": "bf16", "D": "128"}, "sm_90a", entry=package.entry).module


def test_a_starved_warp_shows_a_stage_that_is_freed_too_early() -> None:
    causal = causal_of(late_module())
    given = inputs(128, 1, 1, 1, 400, 430)
    assert explore(causal, given, budget=9).schedule == Schedule(0, starve=2)
    # Turns and chance seldom find it.
    runs = [run_program(causal, given, "exact", Schedule(seed)) for seed in range(8)]
    assert sum(bool(run.findings) for run in runs) <= 2


@pytest.mark.parametrize("late", [False, True], ids=["as it is", "freed too early"])
def test_g2_starves_each_warp(late: bool) -> None:
    base = late_module() if late else module(128)
    spec = specs_dir() / "causal.py"
    read = read_recipe(spec, {})
    planned = plan(base, read)
    *_, (_, target) = apply(base, planned.steps)
    payload = {
        "module": print_module(legal(target)), "recipe": recipe_to_json(read),
        "binding": planned.binding.to_json(), "spec": str(spec),
    }  # fmt: skip
    verdict = judge_json(payload, lambda _: None)
    row = verdict["details"]["runs"][-1]
    assert row["mode"] == "a late warp"
    assert verdict["ok"] is not late, verdict["reason"]
    if late:
        assert verdict["reason"].startswith("wrong_phase when one warp is late")
        assert verdict["details"]["op"].startswith("flash_fwd/")
    else:
        assert row["warps"] == 8
