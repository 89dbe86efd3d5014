"""Right targets of functions whose numbers at logits of thousands mean nothing: no failure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.by_spec import BY_SPEC
from engine.gates.runs.case_run import Row, Way, run_deck
from engine.gates.runs.deck_cases import read_cases
from engine.gates.runs.stable_logits import UNSOUND, UNUSUAL, steady
from tests.engine.gates.test_deck import subject_of

HEAD = """\
def attention(q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"],
              v: Float[Tensor, "B H Nk D"]):
    s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
"""
SQUARED = f"{HEAD}    return torch.softmax(s * s, -1) @ v\n"
UNBOUNDED = f"{HEAD}    return torch.exp(s) @ v\n"


RELU = f"{HEAD}    return torch.relu(s).square().to(q.dtype) @ v\n"


def runs_of(tmp_path: Path, text: str, way: Way, key: str = "bf16_64") -> list[Row]:
    subject = subject_of(tmp_path, text, key)
    cases = [c for c in read_cases(subject) if c.values in UNUSUAL]
    failure, rows = run_deck(way, subject, cases, lambda _: None)
    assert failure is None
    return rows


@pytest.mark.parametrize("way", [BY_RECIPE, BY_SPEC], ids=["recipe", "spec"])
def test_a_weight_that_overflows_is_not_compared(tmp_path: Path, way: Way) -> None:
    rows = runs_of(tmp_path, UNBOUNDED, way)
    assert rows and all(row.get("skipped") == UNSOUND for row in rows)


@pytest.mark.parametrize("way", [BY_RECIPE, BY_SPEC], ids=["recipe", "spec"])
@pytest.mark.parametrize(("key", "room"), [("f16_64", False), ("bf16_64", True)])
def test_where_the_spec_leaves_the_element_type_s_numbers_behind_so_may_the_kernel(
    tmp_path: Path, way: Way, key: str, room: bool
) -> None:
    """A square of 1,000 is no f16."""
    rows = [r for r in runs_of(tmp_path, RELU, way, key) if r["mode"] == "typed"]
    assert rows and all(("skipped" not in row) == room for row in rows)


def test_a_softmax_of_squares_is_compared(tmp_path: Path) -> None:
    rows = runs_of(tmp_path, SQUARED, BY_RECIPE)
    assert not any("skipped" in row for row in rows)
    assert [row["rows"] for row in rows if row["mode"] == "exact"] == [40, 150]


def test_rows_that_the_last_bit_moves_are_not_compared() -> None:
    """A sine of 10^9 has seven digits in float64; one of 1 has them all."""
    q = torch.tensor([1.0, 1e9]).double().reshape(1, 1, 2, 1)

    def spec(inputs: Mapping[str, Any]) -> Tensor:
        return torch.as_tensor(inputs["q"]).sin()

    assert steady(spec, {"q": q}, "q", q.sin()).tolist() == [[[True, False]]]
