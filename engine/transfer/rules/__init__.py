"""The rules: each one turns a clause of the recipe into an edit of the module.

A rule is an object with a title, a reason, the cases that it applies to and the rules that it comes
after; its edit is a pure function of the module and the case. Rules never look at names or at the
spec's text: they match the attention that `match` found and the expressions of the recipe."""

from __future__ import annotations

from collections.abc import Iterator

from engine.cuir.nodes import Module
from engine.spec.recipe import Recipe
from engine.transfer.match import find_attention
from engine.transfer.rules import (
    arithmetic,
    branches,
    dense,
    empty_rows,
    exponent,
    grid,
    list_bits,
    list_kernels,
    mask,
    next_tile,
    normaliser,
    offset,
    pass_inputs,
    score,
    stage,
    ticket,
)
from engine.transfer.rules.bind import binding_of
from engine.transfer.rules.free_names import with_free_names
from engine.transfer.rules.heads import check_heads
from engine.transfer.rules.lists import lists_of
from engine.transfer.rules.rule import Case, Plan, Rule, Step, ordered
from engine.transfer.rules.under_mask import Kept, kept_range, leave_out, listed_range
from engine.transfer.rules.words import Words


def _kept(case: Case) -> Kept:
    if case.lists is not None:
        return listed_range(case.module, case.found, case.lists)
    return kept_range(case.module, case.found, case.words, case.keep)


UNDER_MASK = Rule(
    "under_mask",
    "Leave out what lies under the mask",
    "a weight of 0 times NaN is NaN: the copies of V take the keys that a block of "
    "rows keeps, and zeros for all others, whatever a cache holds there",
    "mask",
    applies=lambda case: case.masked and _kept(case) != Kept(None, None),
    edit=lambda module, case: leave_out(module, case.found, _kept(case)),
    after=("ticket",),
)

RULES = ordered((
    pass_inputs.RULE, score.SCORE, score.SCALE, score.CAP, exponent.RULE, mask.KEEP, mask.VISIT,
    mask.FIND, mask.LISTED, list_kernels.LAUNCH, grid.LONGEST, grid.SPREAD,
    empty_rows.RULE, normaliser.SOFTMAX, offset.RULE, stage.RULE, dense.NARROW, dense.SMALLER,
    next_tile.RULE, arithmetic.RULE, normaliser.OUTPUT, branches.RULE, list_bits.RULE, ticket.RULE,
    UNDER_MASK,
))  # fmt: skip
"""In the order that their `after`s give; that of this list says nothing."""


def case_of(module: Module, recipe: Recipe) -> Case:
    """What the rules look at. Raises `TransferError` for what no rule carries."""
    found = find_attention(module)
    check_heads(module, found, recipe)
    recipe, theirs = with_free_names(module, found, recipe)
    words = Words(module, found, recipe)
    lists = lists_of(module, found, recipe)
    return Case(module, found, recipe, theirs, words, lists, *words.split_scale(recipe.score))


def plan(module: Module, recipe: Recipe) -> Plan:
    """The steps that carry `recipe` to `module`. Raises `TransferError` when no rule does."""
    case = case_of(module, recipe)
    steps = tuple(rule.step(case) for rule in RULES if rule.applies(case))
    return Plan(steps, binding_of(case))


def apply(module: Module, steps: tuple[Step, ...]) -> Iterator[tuple[Step, Module]]:
    """The module after each step."""
    for step in steps:
        module = step.apply(module)
        yield step, module


__all__ = ["RULES", "Case", "Plan", "Rule", "Step", "apply", "case_of", "plan"]
