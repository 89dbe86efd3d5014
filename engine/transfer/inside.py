"""Which pairs count as inside the range of keys that a block of rows keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import Expected, expected
from engine.transfer.schedule import bounding


def inside(recipe: Recipe, want: Expected, inputs: Mapping[str, Tensor], listed: bool) -> Tensor:
    """[B, Hq, Nq, Nk]: the pairs that the spec keeps; of a mask that bounds no range exactly those
    up to the bounds that there are, as its tiles are visited. `listed`: lists of tiles, which are
    made of the pairs themselves, give the range."""
    bounds = bounding(recipe.keep)
    if listed or bounds == recipe.keep:
        return want.keep
    return expected(replace(recipe, keep=bounds), inputs).keep
