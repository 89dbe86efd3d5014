"""The rules: each one turns a clause of the recipe into an edit of the module.

A rule is a pure function Module -> Module with a reason. Rules never look at names or at the spec's
text: they match the attention that `match` found and the expressions of the recipe."""

from __future__ import annotations

from collections.abc import Iterator

from engine.cuir.nodes import Binary, Expr, Module, Name, Num, walk_expr
from engine.spec.recipe import Recipe
from engine.transfer.logic import factored
from engine.transfer.match import find_attention
from engine.transfer.rules.arithmetic import hoist_shared
from engine.transfer.rules.bind import binding_of
from engine.transfer.rules.branches import look_at_all
from engine.transfer.rules.dense import narrow_tiles, take_smaller_tiles
from engine.transfer.rules.empty_rows import guard_empty_rows, rows_may_be_empty
from engine.transfer.rules.exponent import subtract_first, unbounded
from engine.transfer.rules.free_names import with_free_names
from engine.transfer.rules.grid import begin_with_the_longest, spread_uneven_rows
from engine.transfer.rules.heads import check_heads
from engine.transfer.rules.inputs import add_inputs, scalar_inputs
from engine.transfer.rules.lists import lists_of, mask_by_bits
from engine.transfer.rules.mask import mask_steps
from engine.transfer.rules.next_tile import load_next
from engine.transfer.rules.normaliser import replace_softmax, scale_output
from engine.transfer.rules.offset import hoist_offset
from engine.transfer.rules.score import score_steps
from engine.transfer.rules.sites import X
from engine.transfer.rules.stage import BYTES, stage_inputs
from engine.transfer.rules.steps import Plan, Step
from engine.transfer.rules.ticket import hand_out
from engine.transfer.rules.under_mask import Kept, kept_range, leave_out, listed_range
from engine.transfer.rules.words import Words


def plan(module: Module, recipe: Recipe) -> Plan:
    """The steps that carry `recipe` to `module`. Raises `TransferError` when no rule does."""
    found = find_attention(module)
    check_heads(module, found, recipe)
    recipe, theirs = with_free_names(module, found, recipe)
    words = Words(module, found, recipe)
    lists = lists_of(module, found, recipe)
    steps: list[Step] = []
    factor, rest = words.split_scale(recipe.score)
    read = [rest, recipe.keep, recipe.weight, recipe.output_factor]
    used = [i for i in recipe.extra() if _is_read(i.name, read)]
    if used:
        steps.append(
            Step(
                "Pass " + ", ".join(theirs.get(i.name, i.name) for i in used) + " to the kernel",
                "the spec reads extra inputs: each gets a field in the argument struct and a view",
                "inputs",
                lambda m: add_inputs(m, found, used),
            )
        )
    if rest is not None and recipe.weight is None:
        steps += score_steps(found, recipe, words, rest)
    if recipe.weight is None and unbounded(recipe.score, recipe):
        steps.append(
            Step(
                "Subtract the row maximum before the factor",
                "a part of the score may be any float: at the ends of its range the row maximum "
                "times log2(e) overflows, and far before that its rounding is a large exponent",
                "score",
                lambda m: subtract_first(m, found),
            )
        )
    if recipe.keep != Num(True):
        steps += mask_steps(found, recipe, words, lists)
        steps.append(
            Step(
                "Begin with the longest rows",
                "the mask makes the first rows the longest: begun last, each would hold the launch "
                "up alone when all others are done",
                "mask",
                lambda m: begin_with_the_longest(m, found),
            )
        )
        if lists is None or not lists.queue:
            steps.append(
                Step(
                    "Hand out uneven rows as multiprocessors become free",
                    "the mask makes some rows longer than others: a share of the work that is "
                    "fixed before the launch would leave multiprocessors idle at the end",
                    "mask",
                    lambda m: spread_uneven_rows(m, found),
                )
            )
    if recipe.weight is None and rows_may_be_empty(recipe):
        steps.append(
            Step(
                "Guard rows without a kept key",
                "a row whose keys are all masked so far has row max -inf, and -inf - (-inf) is NaN",
                "empty_rows",
                lambda m: guard_empty_rows(m, found),
            )
        )
    if recipe.weight is not None:
        score = rest if rest is not None else Binary("*", X, words.scale)
        steps.append(
            Step(
                "Replace softmax by the spec's own weight",
                "the spec does not normalise over keys: row max, row sum and LSE go away",
                "normaliser",
                lambda m: replace_softmax(m, found, words, recipe, score, factor),
            )
        )
    if any(n == Name("Nk") for e in read if e is not None for n in walk_expr(e)):
        steps.append(
            Step(
                "Compute the distance of the sequences' ends once",
                "Nk - Nq is the same for every element: one integer before the loop",
                "mask",
                lambda m: hoist_offset(m, found),
            )
        )
    if words.tensors:
        steps.append(
            Step(
                "Load each input where its class belongs",
                "values per head are loaded once, per row as a row vector, per key once a tile",
                "inputs",
                lambda m: stage_inputs(m, found, words.tensors),
            )
        )
        sizes = {t.name: BYTES.get(t.dtype, 0) for t in words.tensors}
        plain = recipe.keep == Num(True) and recipe.weight is None
        steps.append(
            Step(
                "Take key tiles that leave registers for the dense tile",
                "its loads start before the score's matmul is waited for: their latency passes "
                "under the matmul, and their elements are held until the score is there",
                "inputs",
                lambda m: narrow_tiles(m, found, sizes, plain),
            )
        )
        steps.append(
            Step(
                "Take tiles that leave registers for what is read",
                "all that the score and the mask read at once would spill beside a whole tile; the "
                "price is more tiles, each with its barriers and row maxima: a third more of 48 "
                "keys than of 64, twice as many of 16 as of 32, three times as many as of 48",
                "inputs",
                lambda m: take_smaller_tiles(m, found),
            )
        )
        steps.append(
            Step(
                "Load the next dense tile while this one is worked on",
                "memory takes longer than the score's matmul: the next loads start when "
                "the weights are summed, and pass under both matmuls",
                "inputs",
                lambda m: load_next(m, found, sizes, plain),
            )
        )
    if rest is not None or recipe.weight is not None:
        steps.append(
            Step(
                "Compute what all elements share once",
                "a factor or a constant that is the same for every element is one value before "
                "the loop, not an instruction per element",
                "score",
                lambda m: hoist_shared(m, found),
            )
        )
    if recipe.output_factor is not None:
        value = words.of_kernel(recipe.output_factor)
        steps.append(
            Step(
                "Scale the output",
                "the spec multiplies the result by a factor",
                "output",
                lambda m: scale_output(m, found, value),
            )
        )
    if recipe.keep != Num(True):
        steps.append(
            Step(
                "Look at all alternatives of the mask",
                "`and` and `or` are a branch for each element, which lanes take apart; with "
                "`&` and `|` each comparison is one instruction",
                "mask",
                lambda m: look_at_all(m, found),
            )
        )
    if lists is not None:
        steps.append(
            Step(
                "Mask partial tiles by their bits",
                "the mask of a tile is the same for all heads: its bits cost one load for each row "
                "and no arithmetic; a tile beyond the last slot has its mask computed",
                "mask",
                lambda m: mask_by_bits(m, found, lists),
            )
        )
    if lists is not None and lists.queue:
        steps.append(
            Step(
                "Hand out the work by tickets",
                "how long a piece of work is only the lists know: a block that has done one claims "
                "the next, so that no multiprocessor waits for another's share",
                "mask",
                lambda m: hand_out(m, found, lists),
            )
        )
    if recipe.keep != Num(True):
        mask = factored(scalar_inputs(recipe.keep, recipe))
        kept = (
            kept_range(module, found, words, mask)
            if lists is None
            else listed_range(module, found, lists)
        )
        if kept != Kept():
            steps.append(
                Step(
                    "Leave out what lies under the mask",
                    "a weight of 0 times NaN is NaN: the copies of V take the keys that a block of "
                    "rows keeps, and zeros for all others, whatever a cache holds there",
                    "mask",
                    lambda m: leave_out(m, found, words, kept, lists),
                )
            )
    workspace = lists.workspace if lists is not None else None
    return Plan(tuple(steps), binding_of(module, found, recipe, used, factor, workspace, theirs))


def _is_read(name: str, exprs: list[Expr | None]) -> bool:
    return any(n == Name(name) for e in exprs if e is not None for n in walk_expr(e))


def apply(module: Module, steps: tuple[Step, ...]) -> Iterator[tuple[Step, Module]]:
    """The module after each step."""
    for step in steps:
        module = step.apply(module)
        yield step, module


__all__ = ["Plan", "Step", "apply", "plan"]
