"""What a result carries to be computed again, and what a forged or a tampered one is shown as."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.child.client import Child
from engine.gates.g1_g2.recomputed_samples import recompute
from engine.gpu.result import first_difference
from engine.gpu.schema import fault_of_rows
from engine.spec.python.signature import signature_of, signature_to_json
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.types import Gate, Level, Verdict, VerdictKind
from engine.types.trust import rests_on
from engine.worker.launches.samples import SAMPLES, decoded, encoded, samples
from tests.engine.gpu.fakes import Fake, causal_recipe, subject


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[dict[str, Any]]]:
    """The samples of a right kernel."""
    found = list(samples(subject(tmp_path, Fake())))
    assert len(found) == len(SAMPLES)
    yield json.loads(json.dumps(found))


def again(folder: Path, given: list[dict[str, Any]], read: bool = True) -> list[dict[str, Any]]:
    recipe = causal_recipe()
    payload = {
        "spec": str(folder / "spec.py"), "options": {}, "samples": given,
        "recipe": recipe_to_json(recipe) if read else None,
        "signature": signature_to_json(signature_of(recipe)),
    }  # fmt: skip
    rows: list[dict[str, Any]] = recompute(payload, lambda _: None)["rows"]
    return rows


def found(rows: list[dict[str, Any]]) -> list[str]:
    return [row["found"] for row in rows]


def test_a_right_kernel_s_outputs_are_computed_again(
    made: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows = again(tmp_path, made)
    assert found(rows) == ["same", "same"] and first_difference(rows) is None
    assert found(again(tmp_path, made, read=False)) == ["same", "same"]
    sizes = [s["sizes"] for s in made]
    assert any(s["B"] > 1 and s["Hq"] > s["Hkv"] for s in sizes) and len(json.dumps(made)) < 400_000


def test_a_wrong_kernel_s_outputs_are_not(tmp_path: Path) -> None:
    wrong = list(samples(subject(tmp_path, Fake(keep=lambda i, j, nq, nk: j < i + nk - nq))))
    rows = again(tmp_path, wrong)
    assert "differs" in found(rows)
    assert "not what the spec computes" in (first_difference(rows) or "")


def altered(sample: dict[str, Any], how: str) -> dict[str, Any]:
    o = decoded(sample["outputs"]["O"])
    match how:
        case "one element":
            o.view(-1)[777] += 0.5
        case "nothing but zeros":
            o.zero_()
        case "NaN":
            o.view(-1)[3] = torch.nan
        case "another shape":
            o = o[:, :, :-1].contiguous()
        case "another sample's seed":
            return {**sample, "seed": sample["seed"] + 1}
        case "a lse of its own":
            lse = decoded(sample["outputs"]["LSE"]) + 0.1
            return {**sample, "outputs": {**sample["outputs"], "LSE": encoded(lse)}}
    return {**sample, "outputs": {**sample["outputs"], "O": encoded(o)}}


@pytest.mark.parametrize(
    "how",
    ["one element", "nothing but zeros", "NaN", "another shape", "a lse of its own"],
)
def test_a_tampered_output_is_not_what_the_spec_computes(
    how: str, made: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert found(again(tmp_path, [altered(made[0], how)])) == ["differs"]


def test_a_sample_of_other_inputs_counts_for_nothing(
    made: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows = again(tmp_path, [altered(made[0], "another sample's seed")])
    assert found(rows) == ["not_run"] and "other inputs" in rows[0]["reason"]


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "object"}, {"outputs": {}}, {"sizes": {}},
        {"outputs": {"O": {"dtype": "float16", "shape": [3], "data": "!"}}},
        {"outputs": {"O": {"dtype": "float16", "shape": [5], "data": "YQ=="}}},
    ],
)  # fmt: skip
def test_what_is_no_sample_counts_for_nothing(
    change: dict[str, Any], made: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert found(again(tmp_path, [{**made[0], **change}])) == ["not_run"]


def test_the_child_computes_them_again(made: list[dict[str, Any]], tmp_path: Path) -> None:
    recipe = recipe_to_json(causal_recipe())
    payload = {"spec": str(tmp_path / "spec.py"), "recipe": recipe, "samples": made[:1]}
    with Child() as child:
        assert found(child.call("recompute", payload)["rows"]) == ["same"]


# --- the words beside a level --------------------------------------------------------------------


def verdicts(details: dict[str, Any]) -> list[Verdict]:
    passed = [Verdict(gate, VerdictKind.PASS) for gate in (Gate.G1, Gate.G2, Gate.G3)]
    return [*passed, Verdict(Gate.G4, VerdictKind.PASS, details=details)]


CHECKS = [{"check": "accuracy", "specialisation": "bf16_64", "verdict": "pass", "cases": 57}]
SAID = [
    ({}, "a GPU run's word is taken, and it names no check that it ran"),
    ({"checks": "all"}, "names no check that it ran"),
    ({"checks": CHECKS}, "it carries no outputs to compute again"),
    ({"checks": CHECKS, "recomputed": [{"found": "same"}] * 57}, "it carries no outputs"),
    (
        {"checks": CHECKS, "samples": [{}, {}], "recomputed": [{"found": "same"}] * 57},
        "the GPU run's word is taken: 2 of 57 cases computed again here",
    ),
    (
        {"checks": CHECKS, "samples": [{}, {}], "recomputed": [{"found": "not_run"}, 3]},
        "0 of 57 cases computed again here",
    ),
]


@pytest.mark.parametrize(("details", "words"), SAID)
def test_a_level_says_what_it_takes_on_trust(details: dict[str, Any], words: str) -> None:
    given = verdicts(details)
    assert words in rests_on(given)
    assert rests_on(given[:3]) == ""
    failed = [*given[:3], Verdict(Gate.G4, VerdictKind.FAIL)]
    assert rests_on(failed) == "" and Level.GPU_VERIFIED.value == "gpu-verified"


@pytest.mark.parametrize(
    "details",
    [{}, {"checks": []}, {"checks": "x"}, {"checks": [{"check": "accuracy"}]},
     {"checks": CHECKS, "samples": [{"seed": -1}]}],
)  # fmt: skip
def test_details_without_rows_are_no_result(details: dict[str, Any]) -> None:
    assert fault_of_rows(details)
    assert not fault_of_rows({"checks": CHECKS})
