"""What is a float, by what is loaded."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.gates.analysis.float_expressions import float_in_lists
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.resources import spec_path
from engine.spec.read import read_recipe
from engine.transfer.rules import plan

PACKAGE = load_package("flash_fwd_sm80")
BASE = lift(PACKAGE, "bf16_64", PACKAGE.archs[0]).module


@pytest.fixture(scope="module")
def document() -> Subject:
    recipe = read_recipe(spec_path("document"), {})
    planned = plan(BASE, recipe)
    module: Module = reduce(lambda m, step: step.apply(m), planned.steps, BASE)
    return Subject(module, recipe, planned.binding, spec_path("document"), {})


def test_lists_of_whole_numbers_are_the_same_in_typed_mode(document: Subject) -> None:
    assert document.lists_are_whole
    assert not float_in_lists(BASE)


@pytest.mark.parametrize(
    "line",
    [
        "    late = gmem[f32](args.lse, args.B, args.Hq, args.Nq)\n",
        "    late = 1 if q0 * 0.5 < 3.0 else 0\n",
        "    late = i32(args.scale)\n",
    ],
)
def test_lists_that_a_float_has_a_part_in_are_made_anew(document: Subject, line: str) -> None:
    """Whatever the recipe's mask reads: the module may read more."""
    text = print_module(document.module)
    begin = text.index("def class_tiles(")
    at = text.index("    first_key", begin)
    at = text.rindex("\n", begin, at) + 1
    indent = " " * (len(text[at:]) - len(text[at:].lstrip(" ")))
    edited = parse_module(text[:at] + indent + line.lstrip() + text[at:])
    assert not replace(document, module=edited).lists_are_whole
