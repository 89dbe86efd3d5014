"""Guards for rows whose keys are all masked so far."""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import Call, Expr, Index, Module, Name, Num, map_stmt_exprs, walk_expr
from engine.cuir.rewrite import Block
from engine.cuir.text.quote import stmt
from engine.spec.recipes.recipe import Recipe
from engine.transfer.match import Attention, Site
from engine.transfer.rules.base.rule import Rule
from engine.transfer.rules.base.score_sites import edit_site


def rows_may_be_empty(recipe: Recipe) -> bool:
    reads_float = any(
        isinstance(n, Index) and n.base == Name(i.name)
        for i in recipe.extra()
        if i.dtype in ("T", "f32", "f16", "bf16")
        for n in walk_expr(recipe.score)
    )
    return recipe.keep != Num(True) or reads_float


def guard_empty_rows(module: Module, found: Attention) -> Module:
    """In the iteration that finds a row maximum, maps take it with 0 for -inf."""

    def edit(site: Site, stmts: Block) -> Block:
        top, safe = site.row_max_name, f"{site.row_max_name}_ok"
        guard = stmt("safe = map(top, lambda x: 0.0 if x == -inf else x)", safe=safe, top=top)
        head, tail = stmts[: site.row_max + 1], stmts[site.row_max + 1 :]
        return (
            *head,
            guard,
            *(map_stmt_exprs(s, lambda e: _guard_use(e, top, safe)) for s in tail),
        )

    return edit_site(module, found, edit)


def _guard_use(expr: Expr, top: str, safe: str) -> Expr:
    """Uses of the row max as an operand of `map` in the same iteration read the guarded one."""
    match expr:
        case Call("map", args):
            return replace(expr, args=tuple(Name(safe) if a == Name(top) else a for a in args))
    return expr


RULE = Rule(
    "empty_rows",
    "Guard rows without a kept key",
    "a row whose keys are all masked so far has row max -inf, and -inf - (-inf) is NaN: 0 stands "
    "for such a row maximum",
    "empty_rows",
    applies=lambda case: case.softmax and rows_may_be_empty(case.recipe),
    edit=lambda module, case: guard_empty_rows(module, case.found),
    after=("spread",),
)
