"""The package of a kernel whose spec no rule reads: it checks itself by the spec's function."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from engine.cuir.parser import parse_expr
from engine.errors import InputError
from engine.package.export import Content, export, package_data
from engine.spec.python.signature import Signature, signature_from_json, signature_to_json
from engine.spec.recipes.recipe import Input
from engine.transfer.binding import ScalarField, TensorField
from engine.types import Level
from tests.engine.package.conftest import FIELDS, HEADS, QKV, Import, binding, content

SPEC = b"""
import torch
from jaxtyping import Float, Float32, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],
    sink: Float32[Tensor, "Hq"],
    pick: Int32[Tensor, "Nq"],
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    k = k - k[:, :, pick.long()].mean(2, keepdim=True)
    scores = (q @ k.transpose(-2, -1)).float() / 8
    column = sink[None, :, None, None].expand(q.size(0), -1, q.size(2), 1).to(scores.dtype)
    weights = torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1]
    return weights.to(q.dtype) @ v
"""
EXTRAS = (Input("sink", "extra", "f32", ("Hq",)), Input("pick", "extra", "i32", ("Nq",)))
SIGNATURE = Signature((*QKV, *EXTRAS), HEADS)


@pytest.fixture
def made(root: Path) -> Content:
    return content(
        root,
        asked=SIGNATURE,
        binding=binding([TensorField(i.name, i.name, i.dims, i.dims, i.dtype) for i in EXTRAS]),
        fields=(*FIELDS, *((i.name, "tensor") for i in EXTRAS)),
        spec_name="sink.py",
        spec=SPEC,
        level=Level.GPU_VERIFIED,
    )


def test_what_it_says_of_itself(made: Content, tmp_path: Path) -> None:
    folder = export(made, tmp_path / "sink_attention")
    judged = json.loads((folder / "verdicts.json").read_text())["judged"]
    assert "recipe" not in judged and "signature" in judged
    info = package_data(made, "sink_attention")
    assert info["grouped"] and info["softmax"] and info["constraints"] == []
    assert info["recipe"] is None and "no rule reads its spec" in info["host"]["refused"]
    readme = " ".join((folder / "README.md").read_text().split())
    assert "Level: gpu-verified" in readme
    assert "its own function judged the kernel alone" in readme
    assert "compared with nothing" in readme
    assert "- what the function in `spec.py` computes" in readme
    text = (folder / "__init__.py").read_text()
    assert "it was compared with nothing" in text and "LSE = -inf" not in text
    # Without an LSE nothing is said of one.
    tensors = tuple(t for t in made.binding.tensors if t.source != "LSE")
    bare = replace(made, binding=replace(made.binding, tensors=tensors))
    assert "log-sum-exp" not in (export(bare, tmp_path / "bare") / "README.md").read_text()
    assert package_data(bare, "x")["op"] != package_data(made, "x")["op"]


def test_a_number_that_the_package_cannot_compute_is_refused_at_export(made: Content) -> None:
    for right in ("rsqrt(f32(D))", "1 / (D - 64)", "sqrt(D - 128)"):  # other sizes have values
        scale = ScalarField("scale", parse_expr(right))
        package_data(replace(made, binding=replace(made.binding, scalars=(scale,))), "x")
    for wrong in ("unknown_function(D)", "nowhere * 2"):
        field = ScalarField("scale", parse_expr(wrong))
        binding = replace(made.binding, scalars=(field,))
        with pytest.raises(InputError, match="a package cannot compute"):
            package_data(replace(made, binding=binding), "x")


def test_a_signature_is_read_back_and_nothing_else_is() -> None:
    data = signature_to_json(SIGNATURE)
    assert signature_from_json(data) == SIGNATURE
    wrong: tuple[dict[str, Any], ...] = (
        {"schema": 9}, {"inputs": [{}]}, {"constraints": ["1 +"]}, {"inputs": 3},
    )  # fmt: skip
    for change in wrong:
        with pytest.raises(ValueError, match=r"schema|signature"):
            signature_from_json(data | change)


@pytest.fixture
def package(made: Content, import_package: Import) -> ModuleType:
    return import_package(made, "sink_attention")


def test_its_check_compares_with_the_function(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = importlib.import_module("sink_attention._spec")
    operator = package._OPERATOR
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    sizes = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 5, "Nk": 7, "D": 64, "Dv": 64}

    def kernel(factor: float = 1.0) -> Any:
        def run(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            q, k, v = (values[n].double() for n in "qkv")
            k = k - k[:, :, values["pick"].long()].mean(2, keepdim=True)
            s = q @ k.transpose(-2, -1) / 8
            sink = values["sink"].double()[None, :, None, None]
            top = torch.maximum(s.amax(-1, keepdim=True), sink)
            p = torch.exp(s - top)
            total = p.sum(-1, keepdim=True) + factor * torch.exp(sink - top)
            return {"O": (p / total @ v).half(), "LSE": torch.full((1, 2, 5), 77.0)}

        return run

    def row(run: Any, seed: int = 1, **change: int) -> dict[str, Any]:
        monkeypatch.setattr(operator, "call_named", run)
        found = checker.run_case(operator, sizes | change, torch.float16, False, seed, device="cpu")
        assert "LSE not compared" in checker.line_of(found)
        return dict(found)

    for seed in range(4):  # other kinds of integers
        assert row(kernel(), seed)["passed"]
    assert not row(kernel(factor=0.0))["passed"]
    with pytest.raises(checker.NotForTheseSizes, match="does not run there: IndexError"):
        row(kernel(), Nk=0)


def test_a_package_that_refuses_what_the_spec_takes_fails_its_check(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checker = importlib.import_module("sink_attention._spec")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")

    def case(operator: object, sizes: dict[str, int], *_: object) -> dict[str, Any]:
        if sizes["Nk"] == 513:
            raise ValueError("no specialisation")
        raise checker.NotForTheseSizes("too small")

    monkeypatch.setattr(checker, "run_case", case)
    assert not package.check()
    told = capsys.readouterr().out
    assert "FAIL  B 1 Hq 4 Hkv 2 Nq 1 Nk 513" in told and "skipped  B 2" in told
