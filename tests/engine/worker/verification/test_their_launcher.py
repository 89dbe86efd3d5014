"""Someone's own launcher on the terms that it is called on: its sizes, its layouts, its LSE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.cuir.parser import parse_expr
from engine.spec.python.signature import recipe_of
from engine.worker.contests import source_beside
from engine.worker.contests.full_size import UNCOMPARED
from engine.worker.contests.rivals import RAISED, WRONG, Absent
from engine.worker.contests.source_beside import SOURCE, Source
from engine.worker.launches.graphs import check_graph
from engine.worker.launches.specialisation import Subject
from engine.worker.orchestration.checklist import CHECKS
from engine.worker.problems import problem_sizes as cases
from engine.worker.problems.problem_sizes import Case
from engine.worker.problems.specrun import SpecRun
from engine.worker.problems.terms import MOST_PAIRS, OURS, Terms
from engine.worker.verification.checks import (
    CONTIGUOUS_ALONE,
    check_far,
    check_layouts,
    check_numbers,
)
from engine.worker.verification.probes import (
    MAY_READ,
    check_independence,
    check_keep_sets,
    check_under_mask,
)
from tests.engine.gpu.fakes import CAUSAL_SPEC, Fake, causal_recipe, subject

TERMS = Terms(16, (parse_expr("Nq == Nk"), parse_expr("Hkv == Hq")), True)
FULL_SPEC = CAUSAL_SPEC.replace('scores.masked_fill(future, float("-inf"))', "scores")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "_SHORT", ((1, 1), (7, 3), (65, 70), (0, 5), (5, 0)))
    monkeypatch.setattr(cases, "REPEAT_CASE", Case(1, 2, 1, 65, 70, seed=1))
    monkeypatch.setattr(cases, "INDEPENDENCE_CASES", (Case(1, 2, 1, 40, 40, seed=3),))


def launched(fields: Mapping[str, Any]) -> int:
    """What the author's launcher would do with these sizes; the page refuses other layouts."""
    assert fields["Nq"] == fields["Nk"] and fields["Nq"] % 16 == 0 < fields["Nq"]
    assert fields["Hq"] == fields["Hkv"]
    return int(any(isinstance(t, Tensor) and not t.is_contiguous() for t in fields.values()))


def theirs(folder: Path, **hooks: Any) -> Subject:
    found = subject(folder, Fake(**{"status": launched, **hooks}))
    return replace(found, terms=TERMS)


def rows(found: Subject) -> dict[str, dict[str, Any]]:
    return {row["check"]: row for row in found.tallies.rows(CHECKS)}


def test_every_check_is_made_on_its_terms(tmp_path: Path) -> None:
    found = theirs(tmp_path, lse=lambda x: torch.where(torch.isneginf(x), torch.inf, x))
    for check in (check_numbers, check_layouts, check_keep_sets, check_independence,
                  check_under_mask):  # fmt: skip
        check(found)
    told = rows(found)
    assert {name for name, row in told.items() if row["verdict"] != "pass"} == {"layouts"}
    assert told["layouts"]["verdict"] == "not_run" and told["layouts"]["cases"] == 0
    assert told["layouts"]["reason"] == CONTIGUOUS_ALONE
    assert told["independence"]["notes"]["NaN under the mask"] == MAY_READ
    assert told["accuracy"]["cases"] >= 6 and told["keep sets"]["cases"] >= 3
    found.short = False
    check_far(found)
    far = rows(found)["far offsets"]
    assert far["verdict"] == "not_run" and far["reason"] == CONTIGUOUS_ALONE


def test_a_mask_one_off_fails(tmp_path: Path) -> None:
    found = theirs(tmp_path, keep=lambda i, j, nq, nk: j < i + nk - nq)
    check_keep_sets(found)
    assert rows(found)["keep sets"]["verdict"] == "fail"


@pytest.mark.parametrize(("terms", "verdict"), [(TERMS, "not_run"), (OURS, "fail")])
def test_a_launcher_that_no_graph_takes_is_said(tmp_path: Path, terms: Terms, verdict: str) -> None:
    def refused(launch: Callable[[], int]) -> Callable[[], None]:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    row = check_graph(replace(subject(tmp_path, Fake()), terms=terms), refused)
    assert row["verdict"] == verdict
    words = row.get("reason") or row["failures"][0]
    assert words.endswith("it cannot be captured: operation not permitted when stream is capturing")


def test_cases_are_bent_to_what_it_takes(tmp_path: Path) -> None:
    found = theirs(tmp_path)
    assert all(found.fits(c) for c in found.accuracy_cases)
    assert found.adapted(Case(2, 4, 2, 0, 5)) == Case(2, 4, 4, 16, 16)
    large = Case(1, 1, 1, 1, 1 << 15)
    assert found.of_deck((large, large, Case(1, 1, 1, 3, 4))) == (Case(1, 1, 1, 16, 16),)
    assert MOST_PAIRS < (1 << 15) ** 2
    assert subject(tmp_path, Fake()).of_deck((large, large)) == (large, large)
    assert Terms.of(TERMS.to_json()) == TERMS and Terms.of(None) == OURS
    assert OURS.rounded(large) is large and OURS.allow({"Nq": 0, "Nk": 7})


def full_run(folder: Path, spec: str = FULL_SPEC) -> SpecRun:
    path = folder / "reference.py"
    path.write_text(spec)
    recipe = recipe_of(causal_recipe(keep="True"))
    assert recipe is not None
    return SpecRun(path, {}, recipe, torch.device("cpu"))


def test_the_source_is_held_against_its_own_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = theirs(tmp_path)
    case = Case(1, 2, 2, 32, 32, seed=4)
    sizes = ours.run.sizes(case, 64, 64)
    sets = [ours.run.make_inputs(case, sizes, ours.dtype) for _ in range(2)]

    def beside(fake: Fake) -> list[Any] | Absent:
        there = replace(ours, launch=fake)
        return Source(there, replace(there, run=full_run(tmp_path))).calls(sets, case, sizes)

    calls = beside(Fake(keep=lambda i, j, nq, nk: j >= 0))
    assert isinstance(calls, list) and len(calls) == 2
    causal = beside(Fake())  # which the reference is not
    assert isinstance(causal, Absent) and causal.kind == WRONG and "not its own" in causal.reason
    with monkeypatch.context() as patch:
        patch.setattr(source_beside, "sampled", lambda *given: {})
        large = beside(Fake(keep=lambda i, j, nq, nk: j >= 0))
    assert large == Absent(UNCOMPARED, SOURCE)
    gone = beside(Fake(status=lambda fields: 700))
    assert isinstance(gone, Absent) and gone.kind == RAISED and "returned 700" in gone.reason
