"""The range of keys that a block of rows keeps, and NaN in the place of what lies beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.cuir.scalar import evaluate
from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import Expected, as_bhnd, expected
from engine.transfer.schedule import bounding


def inside(recipe: Recipe, want: Expected, inputs: Mapping[str, Tensor], listed: bool) -> Tensor:
    """[B, Hq, Nq, Nk]: the pairs that the spec keeps; of a mask that bounds no range exactly those
    up to the bounds that there are, as its tiles are visited. `listed`: lists of tiles, which are
    made of the pairs themselves, give the range."""
    bounds = bounding(recipe.keep)
    if listed or bounds == recipe.keep:
        return want.keep
    return expected(replace(recipe, keep=bounds), inputs).keep


def outside_range(
    recipe: Recipe,
    keep: Tensor,
    sizes: Mapping[str, int],
    block: slice,
    inputs: Mapping[str, Any],
) -> Tensor:
    """[B, Hkv, Nk]: keys beyond those from the first to the last that rows of the block keep, of
    any query head that reads them. `inputs` may hold a table of such heads."""
    kept = keep[:, :, block].any(2)
    at = torch.arange(kept.shape[1], device=keep.device)
    heads = evaluate(recipe.kv_head, {**inputs, **sizes, "h": at})
    heads = torch.as_tensor(heads).broadcast_to(kept.shape[1:2]).to(torch.int64)
    shared = torch.zeros(kept.shape[0], sizes["Hkv"], kept.shape[2], dtype=torch.int64)
    shared = shared.to(kept.device).index_add(1, heads.to(kept.device), kept.to(torch.int64)) > 0
    from_first = shared.to(torch.int64).cumsum(-1) > 0
    to_last = shared.flip(-1).to(torch.int64).cumsum(-1).flip(-1) > 0
    return ~(from_first & to_last)


def with_nan(
    recipe: Recipe, inputs: Mapping[str, Any], where: Tensor, roles: tuple[str, ...]
) -> dict[str, Any]:
    """The inputs with NaN in the rows of K or V that `where` ([B, Hkv, Nk]) has."""
    out = dict(inputs)
    for item in recipe.inputs:
        if item.role in roles:
            out[item.name] = inputs[item.name].clone()
            view = as_bhnd(item, out[item.name])
            view.masked_fill_(where[..., None].expand(view.shape), torch.nan)
    return out
