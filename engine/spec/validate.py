"""Hold a recipe against the spec's own function: a misread recipe never leaves this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from engine.errors import SpecError, Where
from engine.spec.derived import derived_values
from engine.spec.oracle import Expected, canonical_layout, expected, output_as_bhnd, run_wide
from engine.spec.program import Program, large_integers
from engine.spec.reading import random_inputs
from engine.spec.recipe import EmptyRows, Recipe
from engine.spec.sizes import CHECK_SIZES, Domain, dimension_values, slots

TOLERANCE = 1e-10  # of the largest magnitude in the row
LARGEST_STRETCH = 8_300  # a spec may build masks of Nk times Nk
LARGEST_SQUARE = 600
MAX_STRETCHES = 3


class Misread(SpecError):
    """The recipe that was read does not compute what the spec computes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the comparison found beside equality: how the spec fills rows that keep no key."""

    empty_rows: EmptyRows


def validate_recipe(program: Program, recipe: Recipe, domain: Domain) -> Outcome:
    """Compare at several sizes, flat and peaked. Raises `SpecError` at the first difference.

    Sizes beyond every integer in the spec are among them: a window of 1024, or a `min(window, Nk)`
    in Python, has no effect at the small sizes of the trace.
    """
    fills: set[EmptyRows] = set()
    runs = [(sizes, peak) for sizes in CHECK_SIZES for peak in (1.0, 10.0)]
    for seed, (sizes, peak) in enumerate(runs):
        fills |= _compare(program, recipe, domain.within(sizes), peak, seed + 100)
    for seed, sizes in enumerate(stretched(program)):
        try:
            fills |= _compare(program, recipe, domain.within(sizes), 1.0, seed + 200)
        except SpecError as error:
            # A table of positions may end before these lengths: then they are not the spec's.
            if error.__cause__ is None:
                raise
    if not fills:
        return Outcome("never")
    return Outcome(next(iter(fills)) if len(fills) == 1 else "spec-defined")


def stretched(program: Program) -> list[Mapping[str, int]]:
    """Few rows with many keys and the reverse, past the integers that stand in the file."""
    wanted = sorted(
        (v for v in large_integers(program.source) if v <= LARGEST_STRETCH), reverse=True
    )
    base = {"B": 1, "Hq": 2, "Hkv": 1, "D": 4, "Dv": 4}
    out: list[Mapping[str, int]] = []
    for value in wanted[:MAX_STRETCHES]:
        out.append({**base, "Nq": 5, "Nk": value + 9})
        out.append({**base, "Nq": value + 9, "Nk": 5})
    square = next((v for v in wanted if v <= LARGEST_SQUARE), None)
    if square is not None:
        out.append({**base, "Nq": square + 9, "Nk": square + 9})
    return out


def _compare(
    program: Program, recipe: Recipe, sizes: Mapping[str, int], peak: float, seed: int
) -> set[EmptyRows]:
    slot = slots(program.tensors)
    dims = dimension_values(list(slot), slot, sizes)
    inputs = random_inputs(program.tensors, dims, seed)
    q = next(i.name for i in recipe.inputs if i.role == "q")
    inputs[q] = inputs[q] * peak
    theirs = output_as_bhnd(recipe, run_wide(program, inputs))
    full = {**inputs, **derived_values(program, recipe, inputs)}
    ours = expected(recipe, full)
    if theirs.shape != ours.o.shape:
        raise _differs(program, f"the output has the shape {tuple(theirs.shape)}", dims)
    empty = ours.empty
    scale = ours.o.abs().amax(-1, keepdim=True).clamp(min=1e-300)
    wrong = ((theirs - ours.o).abs() > TOLERANCE * scale) | theirs.isnan()
    wrong &= ~empty[..., None]
    if bool(wrong.any()):
        b, h, i, d = (int(n) for n in wrong.nonzero()[0])
        gap = (
            f"{float(theirs[b, h, i, d]):.6g} in the spec, {float(ours.o[b, h, i, d]):.6g} as read"
        )
        raise _differs(program, f"row {i} of head {h} is {gap}", dims)
    return _fills(theirs, ours, canonical_layout(recipe, "v", inputs), recipe)


def _fills(theirs: torch.Tensor, ours: Expected, v: torch.Tensor, recipe: Recipe) -> set[EmptyRows]:
    """How the spec fills the rows that keep nothing."""
    rows = ours.empty
    if not bool(rows.any()):
        return set()
    got = theirs[rows]
    if bool(got.isnan().all()):
        return {"nan"}
    if bool((got == 0).all()):
        return {"zero"}
    group = theirs.shape[1] // v.shape[1]
    mean = v.to(torch.float64).mean(-2, keepdim=True).repeat_interleave(group, 1).expand_as(theirs)
    if bool(((got - mean[rows]).abs() <= 1e-9).all()):
        return {"mean"}
    return {"spec-defined"}


def _differs(program: Program, what: str, dims: Mapping[str, int]) -> Misread:
    shown = ", ".join(f"{name} {value}" for name, value in dims.items())
    return Misread(
        f"the rules misread this spec: at {shown}, {what}",
        where=Where(str(program.source.path), program.source.line),
        fix="write the variant more plainly, or use --transfer llm",
    )
