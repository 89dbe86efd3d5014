"""What of q and k a recipe asks to be made ready before they are multiplied."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.nodes import Call, Expr, Index, Lambda, Module, Name, free_names, walk_expr
from engine.cuir.static.kernel_names import Fresh
from engine.spec.recipes.recipe import Input, Recipe, Role, places_of, sums_over_heads
from engine.transfer.match import Attention
from engine.transfer.rules.base.landing import landing_of
from engine.transfer.rules.base.recipe_names import Words

COLUMN = "dd"  # of q or k, in a recipe


@dataclass(frozen=True, slots=True)
class Prepared:
    """One of q and k as the attention is to read it: the field that holds it and the kernel that
    fills it; or `landed`, where its rows are made ready in the attention itself. `row` is the
    recipe's name of a row, `heads` and `rows` are fields."""

    role: Role
    made: Expr
    row: str
    heads: str
    rows: str
    field: str
    kernel: str
    landed: bool = False

    @property
    def status(self) -> str:
        """What the launch's status is called."""
        return f"{self.field.removesuffix('_ready')}_prepared"


def prepared_of(
    module: Module, found: Attention, recipe: Recipe, words: Words
) -> tuple[Prepared, ...]:
    """What a recipe asks to be made ready; nothing where it multiplies q and k as they are."""
    wanted: tuple[tuple[Role, Expr | None, str, str, str], ...]
    wanted = (("q", recipe.q, "i", "Hq", "Nq"), ("k", recipe.k, "j", "Hkv", "Nk"))
    taken = {f.name for f in module.fields} | {f.name for f in module.functions}
    fresh = Fresh(taken | {n for i in recipe.inputs for n in (i.name, *i.dims)})
    return tuple(
        Prepared(
            role, made, row, heads, rows, fresh(f"{role}_ready"), fresh(f"prepare_{role}"),
            role == "q" and recipe.other is None and words.sizes.get("D") == Name("D")
            and _of_its_row(made, row, next(i for i in recipe.inputs if i.role == role))
            and landing_of(module, found) is not None,
        )
        for role, made, row, heads, rows in wanted
        if made is not None
    )  # fmt: skip


def _of_its_row(made: Expr, row: str, raw: Input) -> bool:
    """Whether an element is made of those of its own row, of vectors of columns or rows, and of
    numbers: rotated ones are not, nor what sums over heads."""
    columns = {COLUMN}
    for e in walk_expr(made):
        match e:
            case Call(op, (Lambda((column,), _), extent)):
                if op != "sum_over" or extent != Name("D") or sums_over_heads(e):
                    return False
                columns.add(column)
    at = places_of(raw.dims)[-1]
    if at is None or raw.dims[at] != "D":
        return False
    for load in (e for e in walk_expr(made) if isinstance(e, Index)):
        *outer, last = load.index
        if load.base == Name(raw.name):
            if not all(isinstance(e, Name) for e in load.index):
                return False
        elif last not in {Name(n) for n in (row, *columns)} or any(
            free_names(e) & {row, *columns} for e in outer
        ):
            return False
    return True
