"""Runs with a late warp: at sizes that the spec allows, their outputs compared; said where none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_module
from engine.gates.by_recipe import BY_RECIPE
from engine.gates.judge import judge_json
from engine.gates.starve import NONE, starved
from engine.spec.text import recipe_to_json
from tests.engine.gates.test_judge import subject_of


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
    assert verdict["ok"] and verdict["reason"].endswith(NONE)


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
