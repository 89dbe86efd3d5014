"""Names of ours in a kernel: for extra inputs whose names it uses itself, and for the dimensions of
tables that are computed from other sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.cuir.nodes import Expr, Index, Module, Name
from engine.cuir.static.kernel_names import Fresh, meaning_of
from engine.scalar_algebra.rewrite import map_children
from engine.spec.recipes.recipe import Other, Recipe
from engine.transfer.match import Attention
from engine.transfer.rules.base.input_views import names_in


def with_free_names(
    module: Module, found: Attention, recipe: Recipe
) -> tuple[Recipe, Mapping[str, str]]:
    """The recipe with such names replaced, and by each new one what the spec says there."""
    fields = {f.name for f in module.fields}
    inside = names_in(module, found)
    ours: dict[str, str] = {}
    spoken_for = {n for i in recipe.inputs for n in (i.name, *i.dims)}
    fresh = Fresh(fields | inside | spoken_for)
    for item in recipe.extra():
        hidden = item.name in fields or (bool(item.dims) and item.name in inside)
        if hidden or meaning_of(item.name) is not None:
            plain = item.name if item.name.isascii() and item.name[0] != "_" else ""
            ours[item.name] = fresh(f"{plain}_input" if plain else "input")
    for dim in (d for item in recipe.extra() for d in item.dims):
        if not dim.isdigit() and not dim.isidentifier() and dim not in ours:
            ours[dim] = fresh("length")
    if not ours:
        return recipe, {}

    def renamed(expr: Expr) -> Expr:
        expr = map_children(expr, renamed)
        match expr:
            case Name(id) if id in ours:
                return Name(ours[id])
            case Index(Name(id), index) if id in ours:
                return Index(Name(ours[id]), index)
        return expr

    changed = replace(
        recipe.mapped(renamed),
        other=_renamed(recipe.mapped(renamed).other, ours),
        inputs=tuple(
            replace(i, name=ours.get(i.name, i.name), dims=tuple(ours.get(d, d) for d in i.dims))
            if i.role == "extra"
            else i
            for i in recipe.inputs
        ),
    )
    return changed, {new: old for old, new in ours.items()}


def _renamed(other: Other | None, ours: Mapping[str, str]) -> Other | None:
    if other is None:
        return None
    return replace(other, q=ours.get(other.q, other.q), k=ours.get(other.k, other.k))
