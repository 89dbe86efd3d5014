"""Biases at the ends of their type, and what lies under a mask: right texts pass, old ones fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.cuir.parser import parse_module
from engine.cuir.printer import print_expr, print_module
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.runs.case_run import run_deck
from engine.gates.runs.deck_cases import read_cases
from engine.gates.runs.nan_inputs import MODE
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.lower.spelling.legal import legal
from engine.spec import read_recipe
from engine.spec.decks.extreme_biases import PATTERNS, biases, masks_as_floats
from engine.transfer.rules import apply, plan
from tests.engine.gates.g1_g2.test_judge import subject_of

HEAD = """
import math
import torch
from jaxtyping import Float, Float32, Int32
from torch import Tensor

def attention(
    q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"],
    {inputs}
) -> Float[Tensor, "B H Nq D"]:
    s = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    j = torch.arange(k.size(2))
    {body}
    return torch.softmax(s, dim=-1).to(q.dtype) @ v
"""
SPECS = {
    "per_key": ('bias: Float32[Tensor, "B Nk"],', "s = s + bias[:, None, None, :]"),
    "per_head": ('bias: Float[Tensor, "H"],', "s = s + bias[None, :, None, None]"),
    "two": (
        'bias: Float32[Tensor, "B Nq Nk"], more: Float[Tensor, "B Nk"],',
        "s = s + bias[:, None] + more[:, None, None, :]",
    ),
    "softcap": (
        'bias: Float32[Tensor, "B Nk"],',
        "s = 30.0 * torch.tanh(s / 30.0) + bias[:, None, None, :]",
    ),
    "bert": (
        'mask: Float[Tensor, "B Nk"],', "s = s + (1.0 - mask[:, None, None, :]) * -10000.0",
    ),
    "finfo": (
        'mask: Float32[Tensor, "B Nk"],',
        "s = s + (1.0 - mask[:, None, None, :]) * torch.finfo(torch.float32).min",
    ),
    "lengths": (
        'lengths: Int32[Tensor, "B"],',
        "s = s.masked_fill(j >= lengths[:, None, None, None], float('-inf'))",
    ),
    "left_padded": (
        'begin: Int32[Tensor, "B"],',
        "s = s.masked_fill(j < begin[:, None, None, None], float('-inf'))",
    ),
}  # fmt: skip


def written(folder: Path, name: str, kernel: str = "flash_fwd_sm80") -> Subject:
    inputs, body = SPECS[name]
    path = folder / f"{name}.py"
    path.write_text(HEAD.format(inputs=inputs, body=body))
    recipe, package = read_recipe(path, {}), load_package(kernel)
    base = lift(package, "bf16_64", package.archs[0]).module
    planned = plan(base, recipe)
    target = base
    for _, after in apply(base, planned.steps):
        target = after
    return Subject(legal(target), recipe, planned.binding, path, {})


def changed(subject: Subject, pattern: str, text: str) -> Subject:
    before = print_module(subject.module)
    after = re.sub(pattern, text, before)
    assert after != before
    module = parse_module(after)
    return Subject(module, subject.recipe, subject.binding, subject.spec, subject.options)


def judged(subject: Subject, wanted: str):
    """The first failure of the deck's cases of one kind, and what each run measured."""
    deck = [c for c in read_cases(subject) if (wanted == MODE) == (MODE in c.modes)]
    kinds = [c for c in deck if wanted == MODE or c.values in PATTERNS or wanted == "all"]
    assert kinds
    return run_deck(BY_RECIPE, subject, kinds, lambda _: None)


@pytest.mark.parametrize("name", ["per_key", "per_head", "two", "softcap"])
def test_a_bias_may_hold_any_number_of_its_type(tmp_path, name):
    failure, rows = judged(written(tmp_path, name), "extremes")
    assert failure is None
    assert {row["mode"] for row in rows} == {"exact", "typed"}
    assert sum("skipped" not in row for row in rows) >= len(PATTERNS)


def test_a_maximum_subtracted_behind_the_factor_fails():
    old = r"\(x - top\) \* scale_log2", "x * scale_log2 - top * scale_log2"
    failure, _ = judged(changed(subject_of("bias_gqa"), *old), "extremes")
    assert failure is not None
    assert "NaN" in failure.reason


@pytest.mark.parametrize("name", ["bert", "finfo"])
def test_a_float_mask_leaves_its_ones_their_scores(tmp_path, name):
    subject = written(tmp_path, name)
    assert "(mask[b, j] - 1.0) *" in print_expr(subject.recipe.score)
    assert print_expr(subject.recipe.keep) == "True"
    assert masks_as_floats(subject.recipe) == {"mask"}
    assert not biases(subject.recipe)
    deck = [c for c in read_cases(subject) if c.Nk == 7]
    failure, rows = run_deck(BY_RECIPE, subject, deck, lambda _: None)
    assert failure is None
    assert rows


@pytest.mark.parametrize("name", ["lengths", "left_padded"])
def test_nan_under_the_mask_does_not_matter(tmp_path, name):
    failure, rows = judged(written(tmp_path, name), MODE)
    assert failure is None
    assert all(row["hidden"] > 0 for row in rows)


def test_nan_under_the_mask_fails_a_text_that_copies_it(tmp_path):
    old = r"copy_async_rows\((.*), 0, end\)", r"copy_async(\1)"
    failure, _ = judged(changed(written(tmp_path, "lengths"), *old), MODE)
    assert failure is not None
    assert "do not keep gets into their output" in failure.reason


def test_lists_know_the_range_of_what_is_kept():
    subject = subject_of("document")
    failure, rows = judged(subject, MODE)
    assert failure is None
    assert all(row["hidden"] > 0 for row in rows)


@pytest.mark.parametrize("spec", ["full", "causal", "softcap_causal"])
def test_bounded_scores_keep_the_multiply_add(spec):
    assert "x * scale_log2 - top * scale_log2" in print_module(subject_of(spec).module)
