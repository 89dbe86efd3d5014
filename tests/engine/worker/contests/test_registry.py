"""The registry of rivals against functions with such signatures: what is said of each is true."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.attention_report import load_records
from engine.cuir.parser import parse_expr
from engine.spec.recipes.recipe import Input
from engine.spec.reference.oracle import expected
from engine.worker.contests import bench, full_size
from engine.worker.contests.registry import (
    FA4,
    FLEX,
    FLEX_FLASH,
    NEEDS,
    RIVALS,
    Rival,
    installed,
    parameters_of,
    take_part,
    unjudged,
)
from engine.worker.contests.rivals import LACKS, MISSING, Absent, Problem, Taking, mask_of
from engine.worker.orchestration.job_options import GROUPS
from engine.worker.problems.problem_sizes import Case
from tests.engine.gpu import cute_stand_in
from tests.engine.gpu.fakes import Fake, causal_recipe, subject

PLAIN = "x / sqrt(float(D))"


def test_each_group_can_be_asked_for() -> None:
    assert {r.group for r in RIVALS} | {"eager"} == set(GROUPS)


def rival(name: str) -> Rival:
    return next(r for r in RIVALS if r.name == name)


def false_claims(row: Mapping[str, Any]) -> str:
    """What is false of a recorded row that says what a rival lacks; empty where nothing is.

    Judged by the parameters that the row's own run read from the installed function.
    """
    found = next((r for r in RIVALS if r.name == row.get("name")), None)
    if found is None or row.get("kind") != LACKS:
        return ""
    parameters = list(row.get("parameters", ()))
    if not parameters:
        return f"{found.name}: says what its function lacks, and holds no parameters"
    for name in row.get("lacks", ()):
        wanted = found.says.get(name)
        if wanted is not None and set(parameters) >= set(wanted):
            return f"{found.name}: lacks {NEEDS[name]}, and its function has {', '.join(wanted)}"
    if unknown := unjudged(found, parameters):
        return f"{found.name}: its function has {', '.join(unknown)}, which nobody has judged"
    return ""


def problem(
    tmp: Path, keep: str = "j <= i", score: str = PLAIN, extras: tuple[Input, ...] = (), **more: Any
) -> tuple[Problem, Any]:
    base = causal_recipe(keep=keep, score=score)
    recipe = replace(base, inputs=(*base.inputs, *extras), **more)
    found = subject(tmp, Fake(), recipe=recipe)
    sizes = {"B": 2, "Hq": 2, "Hkv": 2, "Nq": 9, "Nk": 9, "D": 64, "Dv": 64}
    inputs = found.run.make_inputs(Case(2, 2, 2, 9, 9, seed=3), sizes, torch.bfloat16)
    g = torch.Generator().manual_seed(3)
    drawn = {"slopes": torch.rand(2, generator=g), "cap": torch.tensor(2.5),
             "doc": torch.randint(0, 3, (2, 9), generator=g, dtype=torch.int32)}  # fmt: skip
    inputs |= {e.name: drawn[e.name] for e in extras}
    return Problem(found.run, inputs, sizes, mask_of(found.run, inputs, sizes)), found


SLOPES = Input("slopes", "extra", "f32", ("Hq",))
DOC = Input("doc", "extra", "i32", ("B", "Nk"))
CAP = Input("cap", "extra", "f32", ())


@pytest.mark.parametrize(
    ("keep", "score", "extras", "labels"),
    [
        ("True", PLAIN, (), ["no mask"]),
        ("j <= i", PLAIN, (), ["causal", "mask_mod and block lists"]),
        ("j <= i and j > i - 4", PLAIN, (), ["window_size", "mask_mod and block lists"]),
        ("j <= i", "30.0 * tanh(x * 0.125 / 30.0)", (),
         ["softcap, causal", "softcap, mask_mod and block lists", "score_mod, causal",
          "score_mod, mask_mod and block lists"]),
        ("j <= i", "x * 0.125 + slopes[h] * (j - i)", (SLOPES,),
         ["score_mod, causal", "score_mod, mask_mod and block lists"]),
        ("doc[b, i] == doc[b, j] and j <= i", PLAIN, (DOC,), ["mask_mod and block lists"]),
        ("not (j > i or floor_div(i, 4) != floor_div(j, 4)) or j < 2",
         "max(x * 0.125, -1.0) - abs(float(i - j)) / 4.0", (),
         ["score_mod, mask_mod and block lists"]),
        ("floor_mod(i + j, 3) != 0 if i > 2 else j <= i",
         "x * 0.125 * exp(-0.1 * float(j)) + sigmoid(x)", (),
         ["score_mod, mask_mod and block lists"]),
        ("j < i + 1", "cap * tanh(x / cap)", (CAP,), None),
    ],
)  # fmt: skip
def test_flash_attention_4_says_the_recipe_in_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str, score: str,
    extras: tuple[Input, ...], labels: list[str] | None,
) -> None:  # fmt: skip
    cute_stand_in.install(monkeypatch)
    asked, found = problem(tmp_path, keep, score, extras)
    taking = take_part(rival(FA4), asked)
    assert isinstance(taking, Taking) and taking.version == "4.0" and not taking.out
    assert labels is None or [way.label for way in taking.ways] == labels
    want = full_size.sampled(found, asked.inputs, asked.sizes)
    for way in taking.ways:
        assert full_size.differs(way.call(asked.inputs), want) == "", way.label


def test_flash_attention_4_takes_a_sink_per_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cute_stand_in.install(monkeypatch)
    asked, _ = problem(tmp_path, extras=(SLOPES,), sink=parse_expr("slopes[h]"))
    taking = take_part(rival(FA4), asked)
    assert isinstance(taking, Taking)
    recipe, inputs = asked.run.recipe, dict(asked.inputs)
    assert recipe is not None
    for way in taking.ways:
        error = (way.call(inputs).double() - expected(recipe, inputs).o).abs().max()
        assert "learnable_sink" in way.uses and error < 0.02
    with_rows, _ = problem(tmp_path, extras=(SLOPES,), sink=parse_expr("slopes[h] * float(i)"))
    none = take_part(rival(FA4), with_rows)
    assert isinstance(none, Absent) and "a number per head" in none.reason


def test_a_changed_signature_changes_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def older(q: Any, k: Any, v: Any, softmax_scale: Any = None, causal: bool = False) -> Any: ...

    def newer(q: Any, k: Any, v: Any, softmax_scale: Any = None, activation: Any = None) -> Any: ...

    asked, _ = problem(tmp_path, "j <= i or j < 3")
    cute_stand_in.install(monkeypatch, older)
    gone = take_part(rival(FA4), asked)
    assert isinstance(gone, Absent) and gone.kind == LACKS and gone.lacks == ("mask",)
    assert "no parameter for a mask function" in gone.reason
    cute_stand_in.install(monkeypatch)
    assert isinstance(take_part(rival(FA4), asked), Taking)
    weighted, _ = problem(tmp_path, "True", weight=parse_expr("sigmoid(s)"))
    here = take_part(rival(FA4), weighted)
    assert isinstance(here, Absent) and here.lacks == ("weights",)
    assert "not judged" not in here.reason and not false_claims({"name": FA4, **here.row()})
    cute_stand_in.install(monkeypatch, newer)
    new = take_part(rival(FA4), weighted)
    assert isinstance(new, Absent) and "not judged: activation" in new.reason
    assert "activation" in false_claims({"name": FA4, **new.row()})


def test_a_way_whose_parameter_is_gone_falls_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capless(q: Any, k: Any, v: Any, softmax_scale: Any = None, causal: Any = None,
                score_mod: Any = None, aux_tensors: Any = None) -> Any: ...  # fmt: skip

    cute_stand_in.install(monkeypatch, capless)
    asked, _ = problem(tmp_path, "j <= i", "30.0 * tanh(x * 0.125 / 30.0)")
    taking = take_part(rival(FA4), asked)
    assert isinstance(taking, Taking)
    assert [way.label for way in taking.ways] == ["score_mod, causal"]
    assert any("no parameter softcap" in words for words in taking.out)


def test_what_the_installed_torch_takes_is_judged() -> None:
    for each in RIVALS:
        if each.distribution == "torch" and not each.requires:
            found = installed(each)
            assert not isinstance(found, Absent)
            names = parameters_of(found[0])
            assert set().union(*each.says.values()) <= set(names), each.name
            assert not unjudged(each, names), each.name


def test_what_is_not_installed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "flash_attn", None)
    asked, _ = problem(tmp_path)
    for name in (FA4, FLEX_FLASH, "FlashAttention-3", "FlashInfer"):
        gone = take_part(rival(name), asked)
        assert isinstance(gone, Absent) and gone.kind == MISSING and "not installed" in gone.reason


def test_the_first_run_establishes_why_a_rival_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*args: Any, **named: Any) -> Any:
        raise RuntimeError("no such tile")

    def wrong(q: Any, k: Any, v: Any, **named: Any) -> Any:
        return v * 2, None

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    asked, found = problem(tmp_path)
    want = full_size.sampled(found, asked.inputs, asked.sizes)
    for function, words in ((raises, "no such tile"), (wrong, "computes something else")):
        signature = inspect.signature(cute_stand_in.attention)
        function.__signature__ = signature  # type: ignore[attr-defined]
        cute_stand_in.install(monkeypatch, function)
        gone = bench.first_runs(take_part(rival(FA4), asked), asked.inputs, want)
        assert isinstance(gone, Absent) and words in gone.reason
    cute_stand_in.install(monkeypatch)
    here = bench.first_runs(take_part(rival(FA4), asked), asked.inputs, want)
    assert isinstance(here, Taking) and len(here.ways) == 2


def test_torch_functions_are_right_where_they_run_here(tmp_path: Path) -> None:
    asked, found = problem(tmp_path, "j <= i or j < 3")
    want = full_size.sampled(found, asked.inputs, asked.sizes)
    taking = take_part(rival("SDPA memory-efficient"), asked)
    assert isinstance(taking, Taking) and [w.label for w in taking.ways] == ["a dense attn_mask"]
    capped, _ = problem(tmp_path, "j <= i", "20.0 * tanh(x / 20.0)")
    for name in ("SDPA FlashAttention-2", "SDPA cuDNN"):
        gone = take_part(rival(name), capped)
        assert isinstance(gone, Absent) and gone.lacks == ("softcap",)
        assert "scale" in gone.parameters and not false_claims({"name": name, **gone.row()})
    flex = take_part(rival(FLEX), asked)
    assert isinstance(flex, Taking) and len(flex.ways) == 4 and want


def test_a_false_claim_in_a_record_is_seen() -> None:
    row = {"name": FA4, "kind": LACKS, "lacks": ["mask"], "reason": "",
           "parameters": list(inspect.signature(cute_stand_in.attention).parameters)}  # fmt: skip
    assert "its function has mask_mod" in false_claims(row)
    assert false_claims({**row, "parameters": []})
    assert not false_claims({**row, "parameters": ["q", "k", "v", "softmax_scale", "causal"]})


def test_no_record_says_that_a_rival_cannot_what_its_signature_accepts() -> None:
    for record in load_records():
        for entry in record["entries"]:
            for row in entry["times"]:
                assert not false_claims(row), (entry["name"], row["case"], false_claims(row))
