"""What lies under a mask, at the range of keys that the mask's bounds give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.cuir.parser import parse_expr
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import Tiles
from engine.gates.runs import nan_inputs
from engine.gates.runs.deck_cases import read_cases
from engine.gates.runs.nan_inputs import MODE, run_under_mask, under_mask_cases
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.lower.spelling.legal import legal
from engine.spec.read import read_recipe
from engine.transfer.rules import apply, plan
from engine.transfer.schedule import bounding
from tests.engine.gates.g1_g2.test_judge import edited, subject_of

# Keys 0 to 3 of the first 6: the last one that a row keeps is not the last within the bound.
STRIDED = """\
def attention_mods():
    def mask(b, h, i, j):
        return (j < 6) & (j // 4 % 5 == 0)

    return mask
"""


def carried(folder: Path, text: str, kernel: str, key: str) -> Subject:
    spec = folder / "spec.py"
    spec.write_text(text)
    recipe = read_recipe(spec, {})
    package = load_package(kernel)
    base = lift(package, key, package.archs[0]).module
    planned = plan(base, recipe)
    trail = [base, *(module for _, module in apply(base, planned.steps))]
    return Subject(legal(trail[-1]), recipe, planned.binding, spec, {})


def test_a_mask_that_bounds_no_range_exactly_counts_up_to_its_bounds(tmp_path: Path) -> None:
    subject = carried(tmp_path, STRIDED, "flash_fwd_sm80", "bf16_64")
    case, _ = under_mask_cases(Tiles(128, 64))
    with subject.function:
        failure, row = run_under_mask(subject, case, 0)
    assert failure is None and row["hidden"] > 0


# Row i has keys from i - 133 to i + Nk - Nq: none at all, of far more rows than keys.
CONTRARY = """\
def attention_mods(D, Nq, Nk):
    def mask(b, h, i, j):
        return (i - j < D + 6) & (j <= i + Nk - Nq)

    return mask
"""
# A quotient of heads is no number of tiles.
BY_HEADS = """\
def attention_mods(Hq):
    def mask(b, h, i, j):
        return j <= i + Hq // 6 + 1

    return mask
"""


@pytest.mark.parametrize("text", [CONTRARY, BY_HEADS])
def test_rows_that_keep_nothing_and_ends_by_heads(text: str, tmp_path: Path) -> None:
    subject = carried(tmp_path, text, "flash_fwd_sm90", "bf16_128")
    assert tiles_of(subject.module) is not None
    with subject.function:
        for case in read_cases(subject):
            if MODE in case.modes:
                assert run_under_mask(subject, case, 0)[0] is None


def test_where_no_text_tells_a_block_all_rows_are_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = carried(tmp_path, BY_HEADS, "flash_fwd_sm90", "bf16_128")
    monkeypatch.setattr(nan_inputs, "tiles_of", lambda _: None)
    with subject.function:
        failure, row = run_under_mask(subject, next(under_mask_cases(None)), 0)
    assert failure is None and row["hidden"] > 0


def test_bounds_without_what_bounds_nothing() -> None:
    def loosened(text: str) -> object:
        return bounding(parse_expr(text))

    assert loosened("j <= i and (i - j) % 3 == 0") == parse_expr("j <= i")
    assert loosened("j % 2 == 0") == parse_expr("True")
    exact = parse_expr("j <= i or j < 64")
    assert bounding(exact) == exact


def test_a_range_past_a_prefix_ends_with_the_rows_of_its_own_block() -> None:
    right = subject_of("prefix_lm", "flash_fwd_sm90", "bf16_64")
    tiles = Tiles(192, 128)
    first, _, past = under_mask_cases(tiles, (256,))
    wrong = edited(right, "max(min(q0 + BM, args.Nq), 256)", "max(max(q0 + BM, args.Nq), 256)")
    with right.function, wrong.function:
        assert run_under_mask(right, past, 0)[0] is None
        assert run_under_mask(wrong, first, 0)[0] is None  # which is why there is the other
        failure, _ = run_under_mask(wrong, past, 0)
    assert failure is not None and "queries 384 to 575" in failure.reason


def test_keys_may_follow_the_last_row_that_ends_them() -> None:
    right = subject_of("prefix_lm")
    *_, past = under_mask_cases(Tiles(128, 64), (256,))
    wrong = edited(right, "min(args.Nk, max(", "max(args.Nk, max(")
    with right.function, wrong.function:
        assert run_under_mask(right, past, 0)[0] is None
        assert run_under_mask(wrong, replace(past, Nk=past.Nq), 0)[0] is None
        failure, _ = run_under_mask(wrong, past, 0)
    assert failure is not None and "queries 512 to 520" in failure.reason
