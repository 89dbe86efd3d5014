"""Runs with a late warp: at sizes that the spec allows, their outputs compared; said where none."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cuir.execute.schedules.run import Outcome
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_module
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.by_spec import BY_SPEC
from engine.gates.g1_g2.judge import judge_json
from engine.gates.runs import case_run as running
from engine.gates.runs import warp_starvation as starve
from engine.gates.runs.subject import Subject, as_declared
from engine.gates.runs.warp_starvation import NONE, starved
from engine.spec.recipes.recipe_json import recipe_to_json
from tests.engine.gates.g1_g2.test_by_spec import spec_of
from tests.engine.gates.g1_g2.test_judge import subject_of


@pytest.mark.parametrize(
    ("constraint", "case"),
    [
        ("Nk <= 100", "Nq 64, Nk 64"),
        ("Nq == 1", "Nq 1, Nk 400"),
        ("Nk < 2", "Nq 400, Nk 1"),
        ("Hq == 4 * Hkv", "heads 8/2, Nq 400, Nk 400"),
    ],
)
def test_the_longest_lengths_that_the_spec_allows(constraint: str, case: str) -> None:
    subject = subject_of("full")
    recipe = replace(subject.recipe, constraints=(parse_expr(constraint),))
    failure, rows = starved(BY_RECIPE, replace(subject, recipe=recipe), lambda _: None)
    assert failure is None
    (row,) = rows
    assert row["case"].endswith(case) and row["warps"] > 1 and row["O"] < 1e-10


def test_a_verdict_says_that_no_run_had_a_late_warp() -> None:
    subject = subject_of("full")
    apart = parse_expr("Nq > 1 and Nk > 1 and Nk != Nq")
    short = replace(subject.recipe, constraints=(apart,))
    assert starved(BY_RECIPE, replace(subject, recipe=short), lambda _: None) == (None, [])
    payload = {
        "module": print_module(subject.module), "recipe": recipe_to_json(short),
        "binding": subject.binding.to_json(), "spec": str(subject.spec),
    }  # fmt: skip
    verdict = judge_json(payload, lambda _: None)
    assert verdict["ok"] and NONE in verdict["reason"]


def test_wrong_outputs_of_a_late_warps_run_are_seen() -> None:
    """Right at every size of the deck: the runs with a late warp are the longest."""
    subject = subject_of("full")
    text = print_module(subject.module)
    wrong = text.replace(
        "lambda x, r: x * r)", "lambda x, r: x * r if args.Nk * 1.0 < 399.5 else r)"
    )
    assert wrong != text
    subject = replace(subject, module=parse_module(wrong))
    failure, (row,) = starved(BY_RECIPE, subject, lambda _: None)
    assert failure is not None and "O is wrong" in failure.reason
    assert failure.reason.endswith("this run has warp 1 late") and row["warps"] == 1


def test_lists_of_tiles_are_made_as_often_as_their_warps_are_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After that the attention alone runs, and each of its warps is late once in each block."""
    subject = subject_of("causal_document", "flash_fwd_sm90", "bf16_128")
    runs: list[tuple[int, int, bool]] = []  # what is late, blocks before the attention's, planned

    def run(*given: Any) -> Outcome:
        outcome = running.run_module(*given)
        before = sum(math.prod(grid) for _, grid in outcome.coverage.launches[:-1])
        runs.append((given[5].starve, before, given[6] is not None))
        return outcome

    monkeypatch.setattr(starve, "run_module", run)
    failure, (row,) = starved(BY_RECIPE, subject, lambda _: None)
    assert failure is None and row["warps"] == len(runs) == 8
    assert [planned for _, _, planned in runs] == [False] * 2 + [True] * 6
    assert runs[0][1] > 0 and all(before == 0 for _, before, planned in runs if planned)
    assert {(late + before) % 8 for late, before, _ in runs} == set(range(8))


def test_lists_are_made_anew_for_another_module() -> None:
    """Lists of an exact run serve the typed one of the same module, sizes and inputs only."""
    subject = subject_of("causal_document")
    assert subject.lists_are_whole
    subject.left[1, 1, 1, 1, 1, 0] = torch.zeros(1)
    assert not replace(subject, module=subject.module).left
    assert not subject_of("bias_gqa").left


def test_a_spec_without_a_recipe_is_asked_where_it_runs(tmp_path: Path) -> None:
    """Sizes that its declarations allow and its code does not are passed over."""
    base = subject_of("full")
    body = "    if q.size(-2) > 200:\n        raise ValueError('too long')\n"
    spec = spec_of(tmp_path, body + "    return torch.softmax(s, -1).to(q.dtype) @ v\n")
    subject = Subject(base.module, as_declared(spec, {}), base.binding, spec, {})
    failure, (row,) = starved(BY_SPEC, subject, lambda _: None)
    assert failure is None and row["case"].endswith("Nq 192, Nk 192") and row["O"] < 1e-10
    nowhere = spec_of(tmp_path, "    raise ValueError('only on Tuesdays')\n")
    subject = Subject(base.module, as_declared(nowhere, {}), base.binding, nowhere, {})
    assert starved(BY_SPEC, subject, lambda _: None) == (None, [])
