"""What a function's own arguments can say is read from a recipe's values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.parser import parse_expr
from engine.worker.contests.own_arguments import cap_of, window_of
from engine.worker.contests.rivals import mask_of
from engine.worker.problems.problem_sizes import Case
from tests.engine.gpu.fakes import Fake, causal_recipe, subject

SIZES = {"B": 1, "Hq": 2, "Hkv": 2, "Nq": 40, "Nk": 56, "D": 64, "Dv": 64}


@pytest.mark.parametrize(
    ("score", "want"),
    [
        ("x / sqrt(float(D))", (0.125, 0.0)),
        ("0.5 * x", (0.5, 0.0)),
        ("30.0 * tanh(x * 0.125 / 30.0)", (0.125, 30.0)),
        ("tanh(x / (30.0 * sqrt(float(D)))) * 30.0", (0.125, 30.0)),
        ("x * 0.125 + 0.1 * float(j)", None),
        ("x * 0.125 + 1.0", None),
        ("30.0 * tanh(x / 30.0) * 0.5", (0.5, 15.0)),
        ("x * abs(x)", None),
        ("-x", None),
    ],
)
def test_scale_and_cap(score: str, want: tuple[float, float] | None) -> None:
    found = cap_of(parse_expr(score), SIZES)
    assert found == (None if want is None else pytest.approx(want))


def windows(keep: str, n_q: int, n_k: int, tmp: Path) -> Any:
    found = subject(tmp, Fake(), recipe=causal_recipe(keep=keep))
    sizes = {**SIZES, "Nq": n_q, "Nk": n_k}
    inputs = found.run.make_inputs(Case(1, 2, 2, n_q, n_k), sizes, torch.bfloat16)
    return window_of(found.run, inputs, sizes, mask_of(found.run, inputs, sizes))


@pytest.mark.parametrize(
    ("keep", "n_q", "n_k", "want"),
    [
        ("True", 40, 40, (None, None)),
        ("j <= i", 40, 40, (None, 0)),
        ("j <= i + (Nk - Nq)", 40, 56, (None, 0)),
        ("j <= i and j > i - 8", 40, 40, (7, 0)),
        ("abs(i - j) <= 5", 40, 40, (5, 5)),
        ("j <= i + (Nk - Nq) and j >= i + (Nk - Nq) - 9", 40, 56, (9, 0)),
        ("j <= i or j < 4", 40, 40, None),
        ("j <= i and h < 1", 40, 40, None),
        ("j % 2 == 0", 40, 40, None),
        ("j < i", 40, 40, (None, -1)),
    ],
)
def test_windows(
    keep: str, n_q: int, n_k: int, want: tuple[int | None, int | None] | None, tmp_path: Path
) -> None:
    assert windows(keep, n_q, n_k, tmp_path) == want


@given(st.floats(0.01, 4.0), st.floats(1.0, 100.0))
def test_every_cap_is_found(scale: float, cap: float) -> None:
    found = cap_of(parse_expr(f"{cap!r} * tanh(x * {scale!r} / {cap!r})"), SIZES)
    assert found is not None
    assert math.isclose(found[0], scale, rel_tol=1e-6) and math.isclose(found[1], cap, rel_tol=1e-9)
