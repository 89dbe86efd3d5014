"""The rules: each one turns a clause of the recipe into an edit of the module.

A rule is an object with a title, a reason, the cases that it applies to and the rules that it comes
after; its edit is a pure function of the module and the case. Rules never look at names or at the
spec's text: they match the attention that `match` found and the expressions of the recipe."""

from __future__ import annotations

from collections.abc import Iterator

from engine.cuir.nodes import Module
from engine.spec.recipes.recipe import Recipe
from engine.transfer.match import find_attention
from engine.transfer.rules.base.dimension_orders import with_rows_last
from engine.transfer.rules.base.list_layout import lists_of
from engine.transfer.rules.base.prepared_operands import prepared_of
from engine.transfer.rules.base.recipe_names import Words
from engine.transfer.rules.base.rule import Case, Plan, Rule, Step, ordered
from engine.transfer.rules.base.wide_products import with_wide_products
from engine.transfer.rules.elements import arithmetic, exponent, next_tile, row_values, score, stage
from engine.transfer.rules.elements import branchless as branches
from engine.transfer.rules.elements import dense_tiles as dense
from engine.transfer.rules.elements import diagonal_offset as offset
from engine.transfer.rules.launches import (
    grid,
    landed,
    pass_inputs,
    position_tables,
    prepare,
    ticket,
)
from engine.transfer.rules.launches import head_map as heads
from engine.transfer.rules.launches import other_attention as other
from engine.transfer.rules.launches.argument_binding import binding_of
from engine.transfer.rules.launches.free_names import with_free_names
from engine.transfer.rules.launches.head_map import check_heads
from engine.transfer.rules.launches.other_attention import with_other_output
from engine.transfer.rules.launches.position_tables import with_tables
from engine.transfer.rules.masks import empty_rows, mask, passed_tiles
from engine.transfer.rules.masks import masked_values as under_mask
from engine.transfer.rules.outputs import late, lse, normaliser, output, sink
from engine.transfer.rules.tile_lists import list_bits, list_kernels

RULES = ordered((
    pass_inputs.RULE, prepare.RULE, landed.RULE, position_tables.RULE, score.SCORE, score.SCALE,
    score.CAP, exponent.RULE, mask.KEEP, mask.VISIT, mask.FIND, mask.LISTED, list_kernels.LAUNCH,
    grid.LONGEST, grid.SPREAD, empty_rows.RULE, normaliser.RULE, late.RULE, sink.RULE, lse.RULE,
    output.RULE, offset.RULE, stage.RULE, dense.NARROW, dense.SMALLER, passed_tiles.RULE,
    dense.BUILT, next_tile.RULE, arithmetic.RULE, row_values.RULE, branches.RULE, list_bits.RULE,
    ticket.RULE, under_mask.RULE, heads.RULE, other.RULE,
))  # fmt: skip
"""In the order that their `after`s give; that of this list says nothing."""


def case_of(module: Module, recipe: Recipe, narrower: int = 0) -> Case:
    """What the rules look at. Raises `TransferError` for what no rule carries."""
    found = find_attention(module)
    check_heads(module, found, recipe)
    recipe, orders = with_rows_last(recipe.mapped(with_wide_products))
    recipe, theirs = with_free_names(module, found, recipe)
    recipe = with_other_output(with_tables(recipe, module), module)
    words = Words(module, found, recipe)
    lists = lists_of(module, found, recipe)
    prepared = prepared_of(module, found, recipe, words)
    scale = words.split_scale(recipe.score)
    return Case(module, found, recipe, theirs, orders, words, lists, *scale, prepared, narrower)


def plan(module: Module, recipe: Recipe, narrower: int = 0) -> Plan:
    """The steps that carry `recipe` to `module`, by tiles that have `narrower` steps of keys fewer
    than rules choose by themselves. Raises `TransferError` when no rule does."""
    case = case_of(module, recipe, narrower)
    steps = tuple(rule.step(case) for rule in RULES if rule.applies(case))
    return Plan(steps, binding_of(case))


def apply(module: Module, steps: tuple[Step, ...]) -> Iterator[tuple[Step, Module]]:
    """The module after each step."""
    for step in steps:
        module = step.apply(module)
        yield step, module


__all__ = ["RULES", "Case", "Plan", "Rule", "Step", "apply", "case_of", "plan"]
