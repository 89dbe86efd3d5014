"""The deck follows the module's own tiles and comparisons: each of these kernels once passed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.nodes import Module
from engine.gates.analysis.size_comparisons import (
    cases_past,
    compared,
    known_constants,
    met,
    thresholds,
    unmet,
)
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import Tiles, quick
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.judge import judge
from engine.gates.runs.case_run import exact
from engine.gates.runs.subject import Failure, Subject, without_value
from engine.lift import lift_source, load_package
from engine.spec.read import read_recipe
from engine.transfer.rules import plan
from tests.engine.gates.g1_g2.test_judge import subject_of as target_of

FULL = "return (n + 1) * BN <= args.Nk"
COUNT = "return ceil_div(args.Nk, BN);"
EMPTY = "if (blocks == 0) {"
LSE = "sum == 0.0f ? -INFINITY"


def lifted_with(old: str = FULL, new: str = FULL, kernel: str = "flash_fwd_sm80") -> Module:
    package = load_package(kernel)
    text = package.source.decode()
    assert text.count(old) == 1
    return lift_source(
        text.replace(old, new).encode(), package.specialisations[-1], package.archs[0],
        entry=package.entry,
    ).module  # fmt: skip


def subject_of(module: Module) -> Subject:
    reference = load_package("flash_fwd_sm80").reference
    assert reference is not None
    recipe = read_recipe(reference, {})
    return Subject(module, recipe, plan(module, recipe).binding, reference, {})


def past(module: Module) -> tuple[Subject, Failure | None]:
    """The failure of the first case past a threshold, as `judge` words it."""
    subject, tiles = subject_of(module), tiles_of(module)
    deck = quick(tiles)
    cases = cases_past(thresholds(module), deck, tiles)
    assert cases
    failure, _ = exact(BY_RECIPE, subject, cases[0], 0)
    if failure is not None:
        failure = BY_RECIPE.locate(subject, (*deck, cases[0]), len(deck), failure)
    return subject, failure


def test_tiles_are_read_from_the_text() -> None:
    assert tiles_of(lifted_with()) == Tiles(128, 32)
    assert tiles_of(lifted_with(kernel="flash_fwd_sm90")) is not None


@pytest.mark.parametrize("kernel", ["flash_fwd_sm80", "flash_fwd_sm90"])
@pytest.mark.parametrize(
    "spec", ["causal_blockwise", "global_sliding_window", "bias_gqa", "causal_document"]
)
def test_tiles_are_those_that_the_launcher_takes(spec: str, kernel: str) -> None:
    """A schedule may begin at whole blocks of keys (`p // 512 * 512`), which count no tiles."""
    module = target_of(spec, kernel, "bf16_128").module
    takes = known_constants(module)["launch"]
    assert tiles_of(module) == Tiles(takes["BM"], takes["BN"], takes.get("section", 1))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (EMPTY, "if (args.B > 4) return cudaSuccess;\n  " + EMPTY, "args.B > 4 (launch)"),
        (EMPTY, "if (args.Hq == 7 * args.Hkv) return cudaSuccess;\n  " + EMPTY, "args.Hq == 7"),
        (FULL, FULL + " || args.Nk > 1024", "args.Nk > 1024 (tile_full)"),
        (COUNT, "return args.Nk > 2048 ? args.Nk / BN : ceil_div(args.Nk, BN);", "args.Nk > 2048"),
        (COUNT, COUNT.replace("ceil", "b >= 3 ? 0 : ceil"), "b >= 3 (tile_count)"),
    ],
)
def test_a_threshold_is_passed(old: str, new: str, words: str) -> None:
    _, failure = past(lifted_with(old, new))
    assert failure is not None and words in failure.reason and failure.op is not None


def test_a_threshold_out_of_reach_is_said() -> None:
    module = lifted_with(FULL, FULL + " || args.Nk > 100000")
    deck = quick(tiles_of(module))
    assert cases_past(thresholds(module), deck, None) == []
    assert unmet(thresholds(module), deck) == "no run has args.Nk > 100000 (tile_full)"
    assert unmet(thresholds(lifted_with()), deck) == ""


def test_literals_that_a_run_compares_with_are_windows() -> None:
    from engine.gates.deck import constants

    module = lifted_with("j < args.Nk", "j < args.Nk && i < 777")
    assert constants(compared(module)) == (777,)
    assert constants(compared(lifted_with())) == ()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (FULL, FULL + " + 1", "expected"),
        (LSE, LSE.replace("-", ""), "LSE without keys is wrong: at b=0, h=0, i=0 expected -inf"),
    ],
)
def test_a_wrong_edge_is_seen(old: str, new: str, words: str) -> None:
    failure, _ = judge(subject_of(lifted_with(old, new)), lambda _: None)
    assert failure is not None and words in failure.reason


def test_a_field_that_nothing_fills_is_a_failure() -> None:
    subject = subject_of(lifted_with())
    assert without_value(subject) is None
    fewer = type(subject.binding)(
        subject.binding.tensors[1:], subject.binding.sizes, subject.binding.scalars
    )
    found = without_value(Subject(subject.module, subject.recipe, fewer, subject.spec, {}))
    assert found is not None and found.op == "Args/0"


@given(st.integers(16, 256), st.integers(16, 256))
def test_the_deck_has_both_neighbours_of_whole_tiles(rows: int, keys: int) -> None:
    deck = quick(Tiles(rows, keys))
    over: Mapping[str, set[int]] = {
        "keys": {c.Nk % keys for c in deck if c.Nk}, "rows": {c.Nq % rows for c in deck if c.Nq},
    }  # fmt: skip
    assert {0, 1, keys - 1} <= over["keys"] and {0, 1, rows - 1} <= over["rows"]
    assert max(c.Nq for c in deck) >= 193 and max(c.Nk for c in deck) >= 193


@given(st.integers(2, 90), st.sampled_from(("B", "Hq", "Nk")), st.sampled_from(("<", ">", "==")))
def test_both_outcomes_are_met(number: int, size: str, op: str) -> None:
    guard = f"if (args.{size} {op} {number}) return cudaSuccess;\n  "
    module = lifted_with(EMPTY, guard + EMPTY)
    deck = quick(None)
    (one,) = thresholds(module)
    assert met(one, (*deck, *cases_past((one,), deck, None))) == {True, False}
