"""The second output of a spec: its rows' log-sum-exp, in which base and order of dimensions.

Found and held by its values: the softmax that was read says what it must be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import torch

from engine.spec.python.program import Program
from engine.spec.recipes.recipe import LseBase, Recipe

PER_UNIT: dict[LseBase, float] = {"e": 1.0, "2": 1.0 / math.log(2.0)}
"""What a natural log-sum-exp of 1 is in each base."""
DIMS = ("B", "Hq", "Nq")
TOLERANCE = 1e-9


def in_order(lse: torch.Tensor, dims: Sequence[str]) -> torch.Tensor:
    """A log-sum-exp with the dimensions `dims` as [B, Hq, Nq] (a view)."""
    out = lse.permute([dims.index(d) for d in DIMS if d in dims])
    for axis, name in enumerate(DIMS):
        if name not in dims:
            out = out.unsqueeze(axis)
    return out


def base_and_order(
    program: Program, recipe: Recipe, given: torch.Tensor, ours: torch.Tensor | None
) -> tuple[LseBase, tuple[str, ...]]:
    """What `given` is, at sizes that differ, where `ours` [B, Hq, Nq] is natural.

    Raises `SpecError` where it is no log-sum-exp.
    """
    own = [d for d in DIMS if d in recipe.output_dims]
    for base, unit in PER_UNIT.items():
        for dims in permutations(own):
            if ours is None or given.dim() != len(dims):
                continue
            seen = in_order(given, dims)
            if seen.shape == ours.shape and _equal(seen, ours * unit):
                return base, dims
    raise program.source.error(
        "the second output is not the log-sum-exp of the rows that the first one sums over",
        program.source.line,
        "return the output alone, or log(sum(exp(scores))) over the kept keys beside it, natural "
        "or in base 2, a sink included",
    )


def _equal(seen: torch.Tensor, wanted: torch.Tensor) -> bool:
    kept = wanted.isfinite()
    error = (seen - wanted).abs()[kept]
    return bool((error <= TOLERANCE * wanted[kept].abs().clamp(min=1.0)).all())
