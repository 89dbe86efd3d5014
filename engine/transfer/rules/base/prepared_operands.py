"""What of q and k a recipe asks to be made ready before they are multiplied."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.nodes import Expr, Module
from engine.cuir.static.kernel_names import Fresh
from engine.spec.recipes.recipe import Recipe, Role


@dataclass(frozen=True, slots=True)
class Prepared:
    """One of q and k as the attention is to read it: the field that holds it and the kernel that
    fills it. `row` is the recipe's name of a row, `heads` and `rows` are fields."""

    role: Role
    made: Expr
    row: str
    heads: str
    rows: str
    field: str
    kernel: str

    @property
    def status(self) -> str:
        """What the launch's status is called."""
        return f"{self.field.removesuffix('_ready')}_prepared"


def prepared_of(module: Module, recipe: Recipe) -> tuple[Prepared, ...]:
    """What a recipe asks to be made ready; nothing where it multiplies q and k as they are."""
    wanted: tuple[tuple[Role, Expr | None, str, str, str], ...]
    wanted = (("q", recipe.q, "i", "Hq", "Nq"), ("k", recipe.k, "j", "Hkv", "Nk"))
    taken = {f.name for f in module.fields} | {f.name for f in module.functions}
    fresh = Fresh(taken | {n for i in recipe.inputs for n in (i.name, *i.dims)})
    return tuple(
        Prepared(role, made, row, heads, rows, fresh(f"{role}_ready"), fresh(f"prepare_{role}"))
        for role, made, row, heads, rows in wanted
        if made is not None
    )
