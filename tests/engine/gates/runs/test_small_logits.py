"""The mask's probe takes logits so small that every kept pair shows, whatever the score's scale."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.gates.deck import Case
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.by_spec import BY_SPEC
from engine.gates.runs.case_run import run_deck
from engine.gates.runs.subject import Subject, as_declared
from engine.spec.decks.logit_levels import FACTORS, factor_that_shows
from tests.engine.gates.test_deck import edited, subject_of

CASE = Case(1, 2, 2, 40, 70, probe_keep=True, modes=())
ARGUMENTS = """\
def attention(q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"],
              v: Float[Tensor, "B H Nk D"]%s):
    n_q, n_k = q.size(-2), k.size(-2)
    i = torch.arange(n_q, device=q.device)[:, None] + n_k - n_q
    j = torch.arange(n_k, device=q.device)[None, :]
    x = q @ k.transpose(-1, -2)
    s = %s
    s = torch.where(j <= i, s, float("-inf"))
    return %s @ v
"""
SOFTMAX = "torch.softmax(s, -1)"
BIASED = ', bias: Float[Tensor, "H Nq Nk"]'
GAIN = ', gain: Float[Tensor, ""]'
SCORES = {
    "times 16": ("", "x * 16", SOFTMAX),
    "times 32": ("", "x * 32", SOFTMAX),
    "times 64": ("", "x * 64", SOFTMAX),
    "times 3750": ("", "x * 3750", SOFTMAX),
    "softcap of much": ("", "900 * torch.tanh(x * 40 / 900)", SOFTMAX),
    "a bias times much": (BIASED, "(x + bias) * 300", SOFTMAX),
    "a slope": ("", "x * 64 - 0.5 * (i - j)", SOFTMAX),
    "a gain": (GAIN, "x * gain * 500", SOFTMAX),
}


@pytest.mark.parametrize("name", SCORES)
def test_a_large_scale_is_right_and_its_wrong_mask_is_seen(tmp_path: Path, name: str) -> None:
    right = subject_of(tmp_path, ARGUMENTS % SCORES[name])
    failure, (row,) = run_deck(BY_RECIPE, right, [CASE], lambda _: None)
    assert failure is None and row["hidden"] == 0
    for old, new in (
        (r"j <= i \+ offset", "j < i + offset"),
        (r"j <= i \+ offset", "j <= i + offset + 1"),
    ):
        wrong = edited(right, old, new)
        failure, _ = run_deck(BY_RECIPE, wrong, [CASE], lambda _: None)
        assert failure is not None and "the keep set differs" in failure.reason


def test_so_it_is_without_a_recipe(tmp_path: Path) -> None:
    right = subject_of(tmp_path, ARGUMENTS % SCORES["times 3750"])
    declared = as_declared(right.spec, {})
    unread = Subject(right.module, declared, right.binding, right.spec, {})
    failure, (row,) = run_deck(BY_SPEC, unread, [CASE], lambda _: None)
    assert failure is None and row["kept"] == 2 * sum(range(31, 71))
    failure, _ = run_deck(
        BY_SPEC, edited(unread, r"j <= i \+ offset", "j < i + offset"), [CASE], lambda _: None
    )
    assert failure is not None and "the weight of a pair differs" in failure.reason


def test_the_largest_factor_that_shows_most() -> None:
    logits = torch.tensor([[0.0, -2000.0, -3e7]])
    assert factor_that_shows(lambda f: torch.exp(f * logits.double()), 1e-250) == FACTORS[-1]
    assert factor_that_shows(lambda f: torch.exp(f * logits[:, :1].double()), 1e-250) == FACTORS[0]
    relu = torch.tensor([1.0, 0.0])
    assert factor_that_shows(lambda f: f * relu, 1e-250) == FACTORS[0]
