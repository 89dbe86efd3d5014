"""A free hand's work order and phases are run with more heads than are taken turn by turn."""

from __future__ import annotations

from functools import cache

import pytest

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.gates.by_recipe import BY_RECIPE
from engine.gates.cases import SECTION, unforeseen
from engine.gates.deck import quick
from engine.gates.running import exact
from engine.gates.tile_sizes import tiles_of
from engine.gates.subject import Subject
from engine.lift import lift, load_package
from engine.lower.legal import legal
from engine.resources import specs_dir
from engine.spec.read import read_recipe
from engine.transfer.rules import apply, plan

SPEC = specs_dir() / "softcap_causal.py"
HEADS = "    heads = min(section, args.B * args.Hq - first)\n"
# Each once passed all that a free hand's G2 ran.
WRONG = {
    "one section of all heads": (HEADS, "    heads = args.B * args.Hq - first\n"),
    "a last section as long as the others": (HEADS, "    heads = min(section, args.B * args.Hq)\n"),
    "a phase of rows without tiles": (
        "                l = row_reduce(l)\n                round = round + 1\n",
        "                l = row_reduce(l)\n            round = round + 1\n",
    ),
    "tiles passed over by the number of heads": (
        "return max(0, end - own_end)",
        "return max(0, end - own_end) * (args.Hq * args.B // 17 + 1)",
    ),
}


@cache
def right() -> Subject:
    package = load_package("flash_fwd_sm90")
    base = lift(package, "bf16_96", "sm_90a").module
    recipe = read_recipe(SPEC, {})
    planned = plan(base, recipe)
    *_, (_, target) = apply(base, planned.steps)
    return Subject(legal(target), recipe, planned.binding, SPEC, {})


def passes(module: Module) -> bool:
    subject = Subject(module, right().recipe, right().binding, SPEC, {})
    many = [c for c in unforeseen(module, quick(tiles_of(module))) if c.B * c.Hq > SECTION]
    rows = tiles_of(module)
    assert rows is not None and sum(c.Nq > rows.rows for c in many) >= 2
    return all(exact(BY_RECIPE, subject, c, 0)[0] is None for c in many if c.Nq > rows.rows)


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_order_or_phase_fails(what: str) -> None:
    old, new = WRONG[what]
    text = print_module(right().module)
    assert old in text
    assert not passes(parse_module(text.replace(old, new)))


def test_the_rules_own_passes() -> None:
    assert passes(right().module)
