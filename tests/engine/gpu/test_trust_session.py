"""What a session shows of a GPU result that nobody signed: forged, tampered, written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cubridge_tui.model.acceptance import acceptance_rows
from cubridge_tui.model.builder import Builder
from engine.gates.outcome import Found
from engine.gpu.job import Contents, hashes_of, worker_hash
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.gpu_verdict import contents_of, said_again, verdict_from
from engine.service.session.package_export import export_session
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.service.upkeep.recheck import _lowered_gates
from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import expected
from engine.types import Gate, Level, Stage, Verdict, VerdictKind
from engine.types.trust import rests_on
from engine.worker.launches.samples import digest, encoded, sample_inputs
from engine.worker.orchestration.checklist import CHECKS
from engine.worker.orchestration.results import KIND, METHOD
from sessions.store import Store

SIZES = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 9, "Nk": 12, "D": 64, "Dv": 64}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adaptation]:
    """A lowered kernel; G1 to G3 are other tests' business."""
    root = tmp_path_factory.mktemp("trust")
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package, specialisation={"D": "64"})
    with Bench(Store.open(root / "store.git")) as bench:
        session = start(bench, package, find_spec("causal"), options, "tester")
        with bench.store.writer(session, wait=5) as writer:
            made = Adaptation(bench, writer, "tester")
            made.lift()
            made.accept_all(made.propose_by_rules())
            made.lower()
            for gate in (Gate.G1, Gate.G2, Gate.G3):
                made.give(made.found(gate, 0.0, Found(True, "")))
            yield made


def result_of(contents: Contents, **change: Any) -> dict[str, Any]:
    """What a run on a GPU says for these bytes; nothing in it shows that there was a GPU."""
    keys = [contents.primary]
    rows = [
        {"check": c, "specialisation": k, "verdict": "pass", "cases": 3, "seconds": 0.1}
        for k in keys
        for c in CHECKS
    ]
    return {
        "kind": KIND, "schema": 1, "name": contents.name, "title": "t", "keys": keys,
        "primary": contents.primary, "declared": list(contents.declared),
        "hashes": hashes_of(contents), "device": {"name": "NVIDIA H100", "arch": "sm_80"},
        "method": METHOD, "state": "complete", "verdict": "pass", "reason": "", "checks": rows,
        "self_test": [], "times": [], "worker": worker_hash(contents),
    } | change  # fmt: skip


def sample_of(contents: Contents, wrong: float = 0.0) -> dict[str, Any]:
    """A launch's inputs and outputs, made by no GPU; `wrong` is added to one element of O."""
    recipe = contents.asked
    assert isinstance(recipe, Recipe)
    inputs = sample_inputs(recipe, SIZES, 5, 0, torch.bfloat16)
    want = expected(recipe, {name: t.double() for name, t in inputs.items()})
    o = want.o.to(torch.bfloat16)
    o[0, 1, 3, 7] += wrong
    assert want.lse is not None
    return {
        "specialisation": contents.primary, "sizes": SIZES, "seed": 5, "turn": 0,
        "dtype": "bfloat16", "inputs": {name: digest(t) for name, t in inputs.items()},
        "outputs": {"O": encoded(o), "LSE": encoded(want.lse.float())},
    }  # fmt: skip


def imported(work: Adaptation, folder: Path, **change: Any) -> Verdict:
    path = folder / "result.json"
    path.write_text(json.dumps(result_of(contents_of(work), **change)))
    return verdict_from(work, path)


def test_an_invented_result_says_what_it_rests_on_wherever_its_level_is_shown(
    work: Adaptation, tmp_path: Path
) -> None:
    verdict = imported(work, tmp_path)
    words = "the GPU run's word is taken: it carries no outputs to compute again"
    assert verdict.kind is VerdictKind.PASS and words in verdict.reason
    work.give(verdict)
    assert work.accept().level is Level.GPU_VERIFIED and rests_on(work.state.verdicts) == words
    folder = export_session(work, tmp_path / "invented")
    assert f"Nothing is signed; {words}." in " ".join((folder / "README.md").read_text().split())
    assert json.loads((folder / "verdicts.json").read_text())["rests_on"] == words
    shown = [row.text for row in acceptance_rows(Builder(work).snapshot())]
    assert any(row.startswith("level ") and words in row for row in shown)


def test_outputs_that_a_result_carries_are_computed_again(work: Adaptation, tmp_path: Path) -> None:
    contents = contents_of(work)
    verdict = imported(work, tmp_path, samples=[sample_of(contents)])
    assert verdict.kind is VerdictKind.PASS
    assert f"1 of {3 * len(CHECKS)} cases computed again here" in verdict.reason
    assert verdict.details["made_by"] == "this version's worker"
    tampered = imported(work, tmp_path, samples=[sample_of(contents, 0.25)])
    assert tampered.kind is VerdictKind.FAIL
    assert "not what the spec computes: sample 1" in tampered.reason
    other = imported(work, tmp_path, worker="0" * 64, samples=[sample_of(contents)])
    assert "another worker than this version's (000000000000)" in other.details["made_by"]


def test_a_verdict_that_was_written_into_the_store_by_hand_is_told_by_the_check(
    work: Adaptation, tmp_path: Path
) -> None:
    """It shows as a pass, with what that rests on; `replay --check` says that nothing bears it."""
    subject = work.subject(Stage.LOWERED)
    bare = Verdict(Gate.G4, VerdictKind.PASS, "18 checks on 579 cases", 9.0, subject)
    work.give(bare)
    assert work.state.level is Level.GPU_VERIFIED
    assert "it names no check that it ran" in rests_on(work.state.verdicts)
    again = said_again(work, bare)
    assert again.kind is VerdictKind.NOT_RUN and "it carries no result" in again.reason
    contents = contents_of(work)
    good = imported(work, tmp_path, samples=[sample_of(contents)])
    assert said_again(work, good).kind is VerdictKind.PASS
    claimed = {**good.details, "samples": [sample_of(contents, 0.25)]}
    forged = Verdict(Gate.G4, VerdictKind.PASS, "", 9.0, subject, claimed)
    assert said_again(work, forged).kind is VerdictKind.FAIL
    fewer = [r for r in result_of(contents)["checks"] if r["check"] != "repeats"]
    short = {**good.details, "checks": fewer}
    assert said_again(work, Verdict(Gate.G4, VerdictKind.PASS, "", 9.0, subject, short)).kind is (
        VerdictKind.NOT_RUN
    )


def test_the_check_speaks_of_g3_and_g4(
    work: Adaptation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def g3(kind: VerdictKind, reason: str = "") -> None:
        monkeypatch.setattr(work, "weigh_lowered", lambda: Verdict(Gate.G3, kind, reason))

    work.give(imported(work, tmp_path, samples=[sample_of(contents_of(work))]))
    g3(VerdictKind.PASS)
    rows = list(_lowered_gates(work, lambda _: None))
    assert [row.name for row in rows] == ["G3", "G4 by its own rows"]
    assert all(row.same for row in rows) and "computed again here" in rows[1].untold
    g3(VerdictKind.NOT_RUN, "nvcc is not here")
    rows = list(_lowered_gates(work, lambda _: None))
    assert rows[0].same and rows[0].untold == "not checked: nvcc is not here"
    g3(VerdictKind.FAIL)
    assert not next(_lowered_gates(work, lambda _: None)).same
