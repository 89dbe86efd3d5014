"""Integer inputs that index another input: values at which every load stays inside its tensor."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from engine.cuir.nodes import Expr, Index, Name, names_in, walk_expr
from engine.cuir.parser import parse_expr
from engine.cuir.scalar import evaluate
from engine.scalar_algebra.evaluate import evaluate as evaluate_number
from engine.spec.recipes.recipe import Recipe

Inputs = Mapping[str, torch.Tensor]


def in_range(
    recipe: Recipe, sizes: Mapping[str, int], inputs: Inputs, generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """`inputs` with integers in the ranges that the spec declares, and those that index tables
    drawn anew, over the widest range in which every such load is inside its table; as they are
    where there is none."""
    places = _places(recipe, sizes, inputs)
    out = {**inputs, **_declared(recipe, sizes, inputs)}
    inputs = dict(out)
    declared = {i.name for i in recipe.inputs if i.between is not None}
    drawn = sorted({name for at, _ in places for name in _integers(recipe, at)} - declared)
    if not drawn or not all(out[name].numel() for name in drawn):
        return out
    widest = max(extent for _, extent in places)
    bound = widest
    while bound:
        for name in drawn:
            value = torch.randint(
                0, bound, out[name].shape, generator=generator, device=out[name].device
            )
            out[name] = value.to(out[name].dtype)
        if all(_inside(at, extent, sizes, out) for at, extent in places):
            return out
        bound //= 2
    return dict(inputs)


def _declared(recipe: Recipe, sizes: Mapping[str, int], inputs: Inputs) -> dict[str, torch.Tensor]:
    """Integers whose spec says between which values they are, moved there: what is equal or in runs
    stays so."""
    out: dict[str, torch.Tensor] = {}
    for item in recipe.inputs:
        if item.between is not None and item.name in inputs:
            low, high = (int(evaluate_number(parse_expr(e), sizes)) for e in item.between)
            out[item.name] = low + (inputs[item.name] - low) % max(high - low + 1, 1)
    return out


def _places(recipe: Recipe, sizes: Mapping[str, int], inputs: Inputs) -> list[tuple[Expr, int]]:
    """Index expressions that read an integer input, each with the extent that it must be within."""
    tables = {i.name: i for i in recipe.inputs if i.name in inputs}
    found: dict[tuple[Expr, int], None] = {}
    for expr in recipe.expressions():
        for load in walk_expr(expr):
            if not (isinstance(load, Index) and isinstance(load.base, Name)):
                continue
            item = tables.get(load.base.id)
            for at, dim in zip(load.index, item.dims if item else (), strict=False):
                if _integers(recipe, at):
                    found[at, int(evaluate_number(parse_expr(dim, "dimension"), sizes))] = None
    if _integers(recipe, recipe.kv_head):
        found[recipe.kv_head, sizes["Hkv"]] = None
    return list(found)


def _integers(recipe: Recipe, at: Expr) -> frozenset[str]:
    """Names of the integer inputs that `at` reads."""
    names = names_in(at)
    whole = {i.name for i in recipe.inputs if i.dtype in ("i32", "i64") and i.derive is None}
    return names & whole


def _inside(at: Expr, extent: int, sizes: Mapping[str, int], inputs: Inputs) -> bool:
    device = next(iter(inputs.values())).device
    env = {**sizes, **{n: t if t.dim() else t.item() for n, t in inputs.items()}}
    shape = ("B", "Hq", "Nq", "Nk")
    for place, (name, size) in enumerate(zip("bhij", shape, strict=True)):
        counts = torch.arange(sizes[size], device=device)
        env[name] = counts.reshape([-1 if n == place else 1 for n in range(4)])
    try:
        value = torch.as_tensor(evaluate(at, env))
    except KeyError:  # a table that the spec builds itself: its values are not known here
        return True
    return not value.numel() or (int(value.min()) >= 0 and int(value.max()) < extent)
