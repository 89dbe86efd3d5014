"""PyTorch's ops around an attention that lacks them: they compute what the recipe says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cuir.parser import parse_expr
from engine.resources import spec_path
from engine.spec.read import read_recipe
from engine.spec.recipes.recipe import Input
from engine.spec.reference.oracle import expected
from engine.worker.contests.around import around_source
from engine.worker.contests.flex_source import NotExpressible
from engine.worker.contests.registry import FA4, take_part
from engine.worker.contests.rivals import LACKS, Absent, Problem, Taking, mask_of
from engine.worker.problems.problem_sizes import Case
from tests.engine.gpu import cute_stand_in
from tests.engine.gpu.fakes import Fake, causal_recipe, subject
from tests.engine.worker.contests.test_registry import rival

HALVES = (
    "{0}[b, h, {1}, dd] * cosine[{1}, dd] + (-{0}[b, h, {1}, dd + D // 2] if dd < D // 2 "
    "else {0}[b, h, {1}, dd - D // 2]) * sine[{1}, dd]"
)
NORM = (
    "weight[dd] * {0}[b, h, {1}, dd] * "
    "rsqrt(sum_over(lambda c: {0}[b, h, {1}, c] * {0}[b, h, {1}, c], D) / D + 1e-06)"
)
EXTRAS = (
    Input("weight", "extra", "T", ("D",)),
    Input("cosine", "extra", "f32", ("Nq", "D")),
    Input("sine", "extra", "f32", ("Nq", "D")),
    Input("gate", "extra", "T", ("B", "Nq", "Hq", "Dv")),
    Input("lam", "extra", "f32", ("Hq",)),
)


def problem(tmp: Path, **more: str) -> Problem:
    """Causal attention of four heads, and what `more` says around it."""
    base = causal_recipe()
    said: dict[str, Any] = {name: parse_expr(text) for name, text in more.items()}
    recipe = replace(base, inputs=(*base.inputs, *EXTRAS), **said)
    found = subject(tmp, Fake(), recipe=recipe)
    sizes = {"B": 2, "Hq": 4, "Hkv": 4, "Nq": 9, "Nk": 9, "D": 64, "Dv": 64}
    inputs = found.run.make_inputs(Case(2, 4, 4, 9, 9, seed=3), sizes, torch.bfloat16)
    g = torch.Generator().manual_seed(5)
    for item in EXTRAS:
        kind = torch.float32 if item.dtype == "f32" else torch.bfloat16
        inputs[item.name] = torch.randn([sizes[d] for d in item.dims], generator=g).to(kind)
    return Problem(found.run, inputs, sizes, mask_of(found.run, inputs, sizes))


@pytest.mark.parametrize(
    "said",
    [
        {"q": NORM.format("q", "i"), "k": NORM.format("k", "j")},
        {"q": HALVES.format("q", "i"), "k": HALVES.format("k", "j")},
        {"k": HALVES.format("k", "j")},
        {
            "q": "q[b, h, i, dd] * rsqrt(sum_over(lambda c: sum_over(lambda c2: q[b, c, i, c2] * "
            "q[b, c, i, c2], D), Hq) / (Hq * D) + 1e-06)"
        },
        {"output": "o * sigmoid(gate[b, i, h, d])"},
        {"output": "o * rsqrt(sum_over(lambda c: o[c] * o[c], Dv) / Dv + 1e-05) * sqrt(float(D))"},
        {"kv_head": "Hkv - 1 - h"},
        {"kv_head": "Hkv - 1 - h", "q": NORM.format("q", "i"), "output": "o * lam[h]"},
    ],
)
def test_every_way_computes_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, str]
) -> None:
    cute_stand_in.install(monkeypatch)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    asked = problem(tmp_path, **said)
    taking = take_part(rival(FA4), asked)
    assert isinstance(taking, Taking) and len(taking.ways) == 2
    recipe = asked.run.recipe
    assert recipe is not None
    want = expected(recipe, asked.inputs).o
    other = {**asked.inputs, "q": asked.inputs["q"].flip(2)}  # another set, by the same ways
    for way in taking.ways:
        assert "PyTorch's ops around it" in way.label
        assert (way.call(asked.inputs).double() - want).abs().max() < 0.03 * want.abs().max()
        assert (way.call(other).double() - want).abs().max() > 0.3 * want.abs().max()


def test_a_wrong_version_is_told_from_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison above can fail: the gate of another head is seen."""
    cute_stand_in.install(monkeypatch)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    right = problem(tmp_path, output="o * sigmoid(gate[b, i, h, d])")
    wrong = problem(tmp_path, output="o * sigmoid(gate[b, i, floor_mod(h + 1, Hq), d])")
    taking = take_part(rival(FA4), wrong)
    assert isinstance(taking, Taking) and right.run.recipe is not None
    want = expected(right.run.recipe, right.inputs).o
    error = (taking.ways[0].call(right.inputs).double() - want).abs().max()
    assert error > 0.1 * want.abs().max()


def test_what_cannot_stand_around_is_still_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cute_stand_in.install(monkeypatch)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    asked = problem(tmp_path, weight="sigmoid(s)", output="o * lam[h]")
    gone = take_part(rival(FA4), asked)
    assert isinstance(gone, Absent) and gone.kind == LACKS and gone.lacks == ("weights",)


def test_sizes_stand_as_numbers_and_a_sum_of_its_own_column_is_refused(tmp_path: Path) -> None:
    asked = problem(tmp_path, q=NORM.format("q", "i"))
    assert asked.run.recipe is not None
    source = around_source(asked.run.recipe, asked.sizes)
    assert "    D = 64\n" in source and "def ready_q(inputs):" in source
    assert "ready_k" not in source and "changed" not in source
    odd = problem(tmp_path, q="sum_over(lambda c: q[b, h, i, c] * weight[dd], D)")
    assert odd.run.recipe is not None
    with pytest.raises(NotExpressible, match="no form for sum_over"):
        around_source(odd.run.recipe, odd.sizes)


def test_rows_joined_from_parts_are_joined() -> None:
    """Latent attention: 128 columns and 64 rotated ones, which all heads of k share."""
    recipe = read_recipe(spec_path("mla_causal"))
    source = around_source(
        recipe, {"B": 2, "Hq": 3, "Hkv": 3, "Nq": 5, "Nk": 5, "D": 192, "Dv": 128}
    )
    made: dict[str, Any] = {}
    exec(compile(source, "around", "exec"), made)
    g = torch.Generator().manual_seed(1)
    whole, part = torch.randn(2, 3, 5, 128, generator=g), torch.randn(2, 1, 5, 64, generator=g)
    cosine, sine = torch.randn(5, 64, generator=g), torch.randn(5, 64, generator=g)
    names = {i.name for i in recipe.inputs}
    angles = {n: cosine if n.startswith("cos") else sine for n in names if n[:3] in ("cos", "sin")}
    low, high = part.chunk(2, -1)
    turned = part * cosine + torch.cat((-high, low), -1) * sine
    wanted = torch.cat((whole, turned.expand(2, 3, 5, 64)), -1)
    torch.testing.assert_close(made["ready_k"]({"k_nope": whole, "k_pe": part, **angles}), wanted)
    each = part.expand(2, 3, 5, 64)
    torch.testing.assert_close(made["ready_q"]({"q_nope": whole, "q_pe": each, **angles}), wanted)
