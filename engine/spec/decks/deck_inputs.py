"""Inputs for verification decks: the spec's own tensors, in its layout, at given sizes. Those that
index another input have values at which every load stays inside its tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import torch

from engine.cuir.nodes import Binary, Expr, Index, Name, names_in, walk_expr
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.cuir.scalar import evaluate as evaluate_tensors
from engine.errors import InputError
from engine.scalar_algebra.evaluate import evaluate
from engine.spec.decks.extreme_biases import masks_as_floats
from engine.spec.decks.integer_draws import ANY_IDS, FLAGS, IDS, Draw, in_turn
from engine.spec.decks.logit_levels import at_levels
from engine.spec.python.signature import Asked, Described, recipe_of
from engine.spec.recipes.recipe import Input, Recipe

Kind = Literal["random", "peaked", "bias-inf", "level", "far", "even"]
Inputs = Mapping[str, torch.Tensor]
KINDS: tuple[Kind, ...] = get_args(Kind)
PEAK = 10.0


def violated(asked: Described, sizes: Mapping[str, int]) -> Expr | None:
    """The first of the spec's constraints that these sizes break."""
    return next((c for c in asked.constraints if not evaluate(c, sizes)), None)


def make_inputs(
    asked: Asked,
    sizes: Mapping[str, int],
    seed: int,
    kind: Kind = "random",
    dtype: torch.dtype = torch.float64,
    turn: int = 0,
) -> dict[str, torch.Tensor]:
    """Tensors by name in the spec's layout; derived inputs are not among them.

    `sizes` gives B, Hq, Hkv, Nq, Nk, D, Dv and any other dimension that the spec names. Floats of
    dtype "T" have `dtype` and hold values that it can represent. `kind`: "peaked" multiplies q
    by 10, "bias-inf" puts -inf into float extras of two and more dimensions; "level", "far" and
    "even" are rows of logits far from 0 and all equal (`logit_levels`). Integer extras over rows
    are document numbers: sorted, in ragged runs, or as `turn` has it (see `integer_draws`), and
    flags likewise; others are lengths where a recipe says that they index nothing. Raises
    `InputError` for sizes that the spec does not allow.
    """
    broken = violated(asked, sizes)
    if broken is not None:
        raise InputError(
            f"the spec is defined for {print_expr(broken)} only, not for {dict(sizes)}"
        )
    generator = torch.Generator().manual_seed(seed)
    out: dict[str, torch.Tensor] = {}
    for item in asked.inputs:
        if item.derive is not None:
            continue
        shape = [extent(d, sizes) for d in item.dims]
        if is_length(item, asked):
            out[item.name] = lengths(item, shape, sizes, generator)
        else:
            out[item.name] = _values(item, shape, generator, kind, dtype, asked, turn)
    recipe = recipe_of(asked)
    return out if recipe is None else in_range(recipe, sizes, out, generator)


def with_own_sizes(inputs: Iterable[Input], sizes: Mapping[str, int]) -> dict[str, int]:
    """`sizes` with one for each dimension name that the spec alone has: longer than the keys, so
    that any row and any key has a place in it, and no two alike."""
    out = dict(sizes)
    spare = 11 + sizes["Nk"]
    for item in inputs:
        for dim in item.dims:
            if dim.isidentifier() and dim not in out:
                out[dim] = spare
                spare += 6
    return out


def ways_of(item: Input, asked: Asked) -> tuple[Draw, ...]:
    """The ways in which an integer over rows may be drawn: below 0 only where a recipe says that it
    indexes and shifts nothing, and no table is built from it."""
    recipe = recipe_of(asked)
    if recipe is None or any(i.derive is not None for i in recipe.inputs):
        return ANY_IDS
    nodes = [n for e in (*recipe.expressions(), recipe.kv_head) for n in walk_expr(e)]
    places = [i for n in nodes if isinstance(n, Index) for i in n.index]
    shifts = [n for n in nodes if isinstance(n, Binary) and n.op in ("<<", ">>")]
    limited = [n for e in (*places, *shifts) for n in walk_expr(e)]
    return ANY_IDS if Name(item.name) in limited else IDS


def is_length(item: Input, asked: Asked) -> bool:
    """True for integers that stand for no row and index nothing: lengths, windows, prefixes."""
    recipe = recipe_of(asked)
    if recipe is None or item.dtype not in ("i32", "i64") or {"Nq", "Nk"} & set(item.dims):
        return False
    nodes = [n for e in recipe.expressions() for n in walk_expr(e)]
    indexes = [n for e in nodes if isinstance(e, Index) for i in e.index for n in walk_expr(i)]
    return Name(item.name) in nodes and Name(item.name) not in indexes


def lengths(
    item: Input, shape: list[int], sizes: Mapping[str, int], generator: torch.Generator
) -> torch.Tensor:
    """From none to one past all keys; never 0 for a single one, which may be a divisor."""
    low, high = (0 if shape else 1), max(sizes["Nk"], 1) + 2
    kind = torch.int32 if item.dtype == "i32" else torch.int64
    drawn = torch.randint(low, high, shape, generator=generator, device=generator.device)
    return drawn.to(kind)


def extent(dim: str, sizes: Mapping[str, int]) -> int:
    """The value of one dimension: a number, a name, or an expression of sizes."""
    return int(evaluate(parse_expr(dim, "dimension"), sizes))


def _values(
    item: Input,
    shape: list[int],
    generator: torch.Generator,
    kind: Kind,
    dtype: torch.dtype,
    asked: Asked,
    turn: int,
) -> torch.Tensor:
    batched = turn > 0 and item.dims[:1] == ("B",)
    if item.dtype == "bool":
        return in_turn(FLAGS, shape, generator, turn, batched)
    if item.dtype in ("i32", "i64"):
        drawn = in_turn(ways_of(item, asked), shape, generator, turn, batched)
        return drawn.to(torch.int32 if item.dtype == "i32" else torch.int64)
    target = (
        dtype if item.dtype == "T" else torch.float64 if dtype == torch.float64 else torch.float32
    )
    value = torch.randn(shape, generator=generator, dtype=torch.float64)
    recipe = recipe_of(asked)
    if recipe is not None and item.name in masks_as_floats(recipe):
        value = (value < 1.0).to(torch.float64)
    if item.role == "q" and kind == "peaked":
        value = value * PEAK
    value = at_levels(item.role, value, item.dims, kind)
    if item.role == "extra" and kind == "bias-inf" and len(shape) >= 2:
        value[torch.rand(shape, generator=generator) < 0.25] = -math.inf
    return value.to(target)


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
    bound = max(most for _, most in places)
    while bound:
        for name in drawn:
            value = torch.randint(
                0, bound, out[name].shape, generator=generator, device=out[name].device
            )
            out[name] = value.to(out[name].dtype)
        if all(_inside(at, most, sizes, out) for at, most in places):
            return out
        bound //= 2
    return dict(inputs)


def _declared(recipe: Recipe, sizes: Mapping[str, int], inputs: Inputs) -> dict[str, torch.Tensor]:
    """Integers whose spec says between which values they are, moved there: what is equal or in runs
    stays so."""
    out: dict[str, torch.Tensor] = {}
    for item in recipe.inputs:
        if item.between is not None and item.name in inputs:
            low, high = (int(evaluate(parse_expr(e), sizes)) for e in item.between)
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
                    found[at, extent(dim, sizes)] = None
    if _integers(recipe, recipe.kv_head):
        found[recipe.kv_head, sizes["Hkv"]] = None
    return list(found)


def _integers(recipe: Recipe, at: Expr) -> frozenset[str]:
    """Names of the integer inputs that `at` reads."""
    names = names_in(at)
    whole = {i.name for i in recipe.inputs if i.dtype in ("i32", "i64") and i.derive is None}
    return names & whole


def _inside(at: Expr, most: int, sizes: Mapping[str, int], inputs: Inputs) -> bool:
    device = next(iter(inputs.values())).device
    env = {**sizes, **{n: t if t.dim() else t.item() for n, t in inputs.items()}}
    shape = ("B", "Hq", "Nq", "Nk")
    for place, (name, size) in enumerate(zip("bhij", shape, strict=True)):
        counts = torch.arange(sizes[size], device=device)
        env[name] = counts.reshape([-1 if n == place else 1 for n in range(4)])
    try:
        value = torch.as_tensor(evaluate_tensors(at, env))
    except KeyError:  # a table that the spec builds itself: its values are not known here
        return True
    return not value.numel() or (int(value.min()) >= 0 and int(value.max()) < most)
