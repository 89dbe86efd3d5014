"""What a target computes, tried at a few sizes in exact mode: for who decides on a hunk, long
before G2 judges what was decided. A fault is a fault; no fault is no proof.

Values are those of the recipe: nothing of a person's is run. Runs where torch may be imported.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from engine.cuir.findings import KINDS
from engine.cuir.nodes import Module, Num, walk
from engine.cuir.printer import cut, first_line
from engine.cuir.static.check import check
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import UNKNOWN, Case, Tiles, constants, edges, in_turn
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.outcome import Trial
from engine.gates.runs.case_run import Compare, Row, run_deck
from engine.gates.runs.deck_cases import bent
from engine.gates.runs.nan_inputs import MODE, PADDED, under_mask_cases
from engine.gates.runs.output_comparison import lse_equal, rows_equal
from engine.gates.runs.subject import Failure, Subject, at_sight, op_text, without_value
from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import Expected, expected, output_as_bhnd
from engine.transfer.binding import Binding
from engine.transfer.bounds import reads_pairs

# What a part of a block waits for that never comes. A wait for the wrong phase may also end too
# early, so its message says which.
HANGS = frozenset({"lost_arrival", "row_without_tiles", "deadlock"})
EMPTY = "NaN in rows without a kept key, whose O must be 0"


def tried(module: Module, recipe: Recipe, binding: Binding) -> Trial:
    """A module against the recipe at a few sizes, up to the first fault."""
    if any(item.derive is not None for item in recipe.inputs):
        return Trial(problem="the spec computes some of its inputs itself")
    subject = Subject(module, recipe, binding, pathlib.Path(), {})
    found = check(module)
    if found:
        return Trial(False, found[0].message + _text(module, op_text(found[0].path)))
    failure = without_value(subject)
    if failure is not None:
        return Trial(False, failure.reason)
    deck = few_cases(subject)
    failure, rows = run_deck(BY_READING, subject, deck, lambda _: None)
    # Numbers too wide at the largest sizes say less than a run that is wrong.
    failure = failure or at_sight(subject)
    compared = {row["case"] for row in rows if "skipped" not in row}
    sizes = ", ".join(dict.fromkeys(f"{c.Nq} x {c.Nk}" for c in deck if str(c) in compared))
    if failure is None and not sizes:
        return Trial(problem="the spec allows none of the sizes that are tried")
    return Trial(fault="" if failure is None else failure.reason, sizes=sizes)


def _text(module: Module, op: str | None) -> str:
    """The statement that a verdict's op is, where it is one, in a few letters."""
    stmts = (stmt for path, stmt in walk(module) if op_text(path) == op)
    return next((f": {cut(first_line(stmt))}" for stmt in stmts), "")


def few_cases(subject: Subject) -> list[Case]:
    """The smallest sizes first: two blocks of rows and a tile that a mask may leave whole, more
    rows than keys, lengths at which a tile just lacks a pair, NaN under the mask, and more work
    than multiprocessors."""
    at = tiles_of(subject.module) or UNKNOWN
    masked = subject.recipe.keep != Num(True)
    own = constants(subject.recipe.expressions())
    turn = PADDED if reads_pairs(subject.recipe.keep) else 0
    deck: list[Case] = [_wide(at, turn), _tall(at, turn)]
    deck += edges(own, at) if masked else []
    deck += under_mask_cases(at) if masked else []
    deck.append(_many(at, turn))
    fitting = (bent(subject, case) for case in deck)
    return list(dict.fromkeys(case for case in fitting if case is not None))


def _wide(at: Tiles, turn: int) -> Case:
    keys = at.keys * (2 + -(-at.rows // at.keys)) + 22
    return Case(1, 2, 1, at.rows + 9, keys, modes=("exact",), turn=turn, slots=1)


def _tall(at: Tiles, turn: int) -> Case:
    return in_turn(2 * at.rows - 1, at.keys + 9, turn=turn)


def _many(at: Tiles, turn: int) -> Case:
    """Six pieces of work for two multiprocessors, so that a block that takes one after the other
    comes to its third, and what it takes is not what a loop over the grid would."""
    exact = ("exact",)
    return Case(1, 3, 1, at.rows + 9, at.keys + 9, modes=exact, turn=turn, processors=2)


def _compared(subject: Subject, _case: Case, inputs: Mapping[str, Any]) -> Compare:
    """O and LSE as the recipe says them."""
    want = expected(subject.recipe, inputs)

    def compare(out: Mapping[str, Tensor]) -> tuple[Failure | None, Row]:
        o = output_as_bhnd(subject.recipe, out["O"])
        failure, _ = rows_equal(o, want.o, "O")
        if failure is not None and _only_empty(o, want):
            return Failure(EMPTY), {}
        if failure is None and want.lse is not None and "LSE" in out:
            failure, _ = lse_equal(out["LSE"], want.lse)
        return failure, {}

    return compare


def _only_empty(o: Tensor, want: Expected) -> bool:
    """Whether NaN stands in rows without a kept key, and all others are right."""
    there = want.empty[..., None]
    spoilt = bool(o.isnan().logical_and(there).any())
    return spoilt and rows_equal(o.masked_fill(there, 0.0), want.o, "O")[0] is None


def _located(subject: Subject, deck: Sequence[Case], seed: int, failure: Failure) -> Failure:
    """The failure in few words with its size, as a pair that is kept or masked wrongly where it is
    one: where all rows are wrong it is not the mask, and weights may be 0 because they are wrong.
    """
    case, example = deck[seed], failure.counterexample or {}
    words = failure.reason
    if MODE in case.modes:
        words = words.partition(": O ")[0]
    elif example.get("wrong_rows", 0) < example.get("rows", 0):
        words = (BY_RECIPE.probe(subject, case, seed)[0] or failure).reason
    kind, _, message = words.partition(": ")
    if kind in KINDS:
        at = _text(subject.module, failure.op)
        words = f"it hangs, nothing ends this wait{at}" if kind in HANGS else f"{message}{at}"
    return replace(failure, reason=f"{words}, at {case.Nq} x {case.Nk}")


BY_READING = replace(BY_RECIPE, compared=_compared, locate=_located)
