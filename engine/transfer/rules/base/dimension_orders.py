"""The order of an extra input's dimensions in the kernel: rows, then columns, last.

Model code keeps a gate as [B, N, H, D] and reads it as gate[b, i, h, d]: in the kernel that is
gate[b, h, i, d] with the caller's strides, a tile of rows and columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.cuir.nodes import Expr, Index, Name, walk_expr
from engine.scalar_algebra.rewrite import map_children
from engine.spec.recipes.recipe import Input, Recipe

COLUMN = Name("dd")
_LAST = {"i": 1, "j": 2, "d": 2}


def with_rows_last(recipe: Recipe) -> tuple[Recipe, Mapping[str, tuple[str, ...]]]:
    """The recipe with such dimensions moved, and the spec's own dimensions of each such input."""
    parts = (*recipe.expressions(), recipe.kv_head)
    orders: dict[str, tuple[int, ...]] = {}
    for item in recipe.extra():
        loads = [
            e for part in parts for e in walk_expr(part)
            if isinstance(e, Index) and e.base == Name(item.name)
        ]  # fmt: skip
        order = _order(item, loads)
        if order != tuple(range(len(item.dims))):
            orders[item.name] = order
    if not orders:
        return recipe, {}

    def moved(expr: Expr) -> Expr:
        expr = map_children(expr, moved)
        match expr:
            case Index(Name(id), index) if id in orders:
                return Index(Name(id), tuple(index[n] for n in orders[id]))
        return expr

    def of(item: Input) -> Input:
        order = orders.get(item.name)
        return item if order is None else replace(item, dims=tuple(item.dims[n] for n in order))

    changed = replace(recipe.mapped(moved), inputs=tuple(map(of, recipe.inputs)))
    return changed, {i.name: i.dims for i in recipe.inputs if i.name in orders}


def _order(item: Input, loads: list[Index]) -> tuple[int, ...]:
    def rank(axis: int) -> int:
        if any(e == COLUMN for load in loads for e in walk_expr(load.index[axis])):
            return 3  # of q or k, wherever in the row
        names = (e.id for load in loads if isinstance(e := load.index[axis], Name))
        return max((_LAST.get(name, 0) for name in names), default=0)

    same = item.derive is None and all(len(load.index) == len(item.dims) for load in loads)
    return tuple(sorted(range(len(item.dims)), key=rank if same else lambda axis: axis))
