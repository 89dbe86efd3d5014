"""What is a float of a size, and what only looks like one."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_module
from engine.gates.analysis.reference_mismatch import Fault
from engine.gates.widths.size_floats import size_as_float
from engine.lift import lift, load_package
from engine.spec import Recipe
from engine.spec.recipes.recipe import Input
from engine.transfer.rules import plan
from tests.engine.gates.g1_g2.test_judge import OF_ANY_COLUMNS
from tests.engine.spec.read_once import recipe_at, recipe_of

PACKAGE = load_package("flash_fwd_sm80")
BASE = lift(PACKAGE, "bf16_64", PACKAGE.archs[0]).module
assert PACKAGE.reference is not None
PLAIN = recipe_at(PACKAGE.reference)
CUT = Input("cut", "extra", "i32", ("B", "Nq"))
LOOP_END = "    l = row_reduce(l)\n"


def asked(keep: str, *extra: Input) -> Recipe:
    return replace(PLAIN, inputs=(*PLAIN.inputs, *extra), keep=parse_expr(keep))


def target(recipe: Recipe) -> Module:
    return reduce(lambda module, step: step.apply(module), plan(BASE, recipe).steps, BASE)


def fault(module: Module, recipe: Recipe) -> Fault | None:
    return size_as_float(BASE, module, plan(BASE, recipe).binding, recipe)


@pytest.mark.parametrize(
    "recipe",
    [
        asked("j < cut[b, i] + (Nk - Nq)", CUT),
        asked("(j < Nk * 0.3) | (j <= i)"),
        asked("j < fraction * Nk", Input("fraction", "extra", "f32", ())),
    ],
    ids=["whole numbers are loaded", "a literal in the mask", "an input in the mask"],
)
def test_what_the_rules_write_of_sizes_is_no_fault(recipe: Recipe) -> None:
    module = target(recipe)
    assert "args.Nk" in print_module(module)
    assert fault(module, recipe) is None


@pytest.mark.parametrize("name", OF_ANY_COLUMNS)
def test_what_the_rules_write_for_a_bundled_spec_is_no_fault(name: str) -> None:
    recipe = recipe_of(name)
    assert fault(target(recipe), recipe) is None


def edited(old: str, new: str) -> Module:
    text = print_module(BASE)
    assert text.count(old) == 1, old
    return parse_module(text.replace(old, new))


MASK = "lambda i, j: j < args.Nk, at"


@pytest.mark.parametrize(
    "mask",
    [
        "lambda row, col: col < args.Nk and col <= row + args.Nk - args.Nq, at",
        "lambda x, top: top < args.Nk, at",
    ],
)
def test_a_coordinate_is_a_whole_number_whatever_it_is_called(mask: str) -> None:
    assert fault(edited(MASK, mask), PLAIN) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # an element that is called like a coordinate
        (LOOP_END, LOOP_END + "    l = map(l, lambda i: i * args.Nk)\n"),
        (MASK, "lambda row, col: exp2(col * 0.25 - args.Nk) < 1.0, at"),
        # a float that is loaded, and one of a name that stands for others
        (LOOP_END, LOOP_END + "    y = LSE[b, h, q0]\n    z = y\n    late = z * args.Nk\n"),
        (LOOP_END, LOOP_END + "    y = args.Nk\n    y = y * 0.5\n    late = y * args.Nk\n"),
        # with a constant of the kernel beside it, and as one way of two
        (LOOP_END, LOOP_END + "    late = exp2(f32(args.Nk + BN) - 20000.0)\n"),
        (LOOP_END, LOOP_END + "    l = map(l, lambda x: args.Nk if x > 0.0 else 1.0)\n"),
    ],
)
def test_a_float_is_one_whatever_it_is_called_and_wherever_it_comes_from(
    old: str, new: str
) -> None:
    found = fault(edited(old, new), PLAIN)
    assert found is not None and "makes a float of the size Nk" in found.reason


def test_a_mask_that_only_compares_whole_sizes_frees_none() -> None:
    recipe = asked("j <= i + (Nk - Nq)")
    module = edited(LOOP_END, LOOP_END + "    late = exp2(f32(args.Nk) * 0.25 - 20000.0)\n")
    found = fault(module, recipe)
    assert found is not None and "no score, weight or mask of the spec does" in found.reason


FLOATS = {
    "a row beside a key": "lambda i, j: f32(j) * 4096.0 < f32(i) * 4096.0 + 0.5, at",
    "a row as it is": "lambda i, j: j < args.Nk and j * 1.0 <= i, at",
    "half a key": "lambda i, j: i32(f32(j) * 0.5) * 2 < args.Nk, at",
    "a root of a key": "lambda i, j: sqrt(j) < 300.0, at",
    "a tile": "lambda i, j: j < args.Nk and f32(n) < 5000000.5, at",
    "a head": "lambda i, j: j < args.Nk and h * 0.5 >= 0.0, at",
    "a block": "lambda i, j: j < args.Nk and f32(block_id(0)) >= 0.0, at",
    "a choice": "lambda i, j: (0.5 if j < i else f32(j)) < 7.0, at",
}


@pytest.mark.parametrize("name", FLOATS)
def test_index_arithmetic_in_float_is_refused(name: str) -> None:
    """However right it is at the sizes of a deck; a spec that adds floats of places to its scores
    does not decide by them."""
    module = edited(MASK, FLOATS[name])
    found = fault(module, PLAIN)
    assert found is not None and "a float of" in found.reason
    alibi = replace(PLAIN, score=parse_expr("x * 0.125 + 0.5 * (j - i)"))
    assert size_as_float(BASE, module, plan(BASE, PLAIN).binding, alibi) is not None


@pytest.mark.parametrize(
    ("recipe", "new"),
    [
        (asked("(j * 0.5 < i) & (j < Nk)"), "lambda i, j: j * 0.5 < i and j < args.Nk, at"),
        (asked("j < Nk"), "lambda i, j: i64(j) * 4096 < i64(args.Nk) * 4096, at"),
    ],
)
def test_what_the_spec_does_in_float_an_edit_may_do(recipe: Recipe, new: str) -> None:
    assert size_as_float(BASE, edited(MASK, new), plan(BASE, PLAIN).binding, recipe) is None


def test_a_score_may_be_made_of_places_where_the_spec_makes_it_so() -> None:
    old = "    m_prev = m\n"
    assert print_module(BASE).count(old) == 1
    new = f"    s = map(s, lambda x, i, j: x + 0.5 * (j - i), at=[q0, n * BN])\n    {old}"
    module = edited(old, new)
    alibi = replace(PLAIN, score=parse_expr("x * 0.125 + 0.5 * (j - i)"))
    assert size_as_float(BASE, module, plan(BASE, PLAIN).binding, alibi) is None
    assert fault(module, PLAIN) is not None
