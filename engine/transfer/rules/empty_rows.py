"""Guards for rows whose keys are all masked so far."""

from __future__ import annotations

from engine.cuir.nodes import (
    Assign,
    Call,
    Compare,
    Expr,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Select,
    Stmt,
    walk_expr,
)
from engine.spec.recipe import Recipe
from engine.transfer.match import Attention, Site
from engine.transfer.rewrite import Block, map_stmt_exprs
from engine.transfer.rules.sites import NEG_INF, edit_site


def rows_may_be_empty(recipe: Recipe) -> bool:
    reads_float = any(
        isinstance(n, Index) and n.base == Name(i.name)
        for i in recipe.extra()
        if i.dtype in ("T", "f32", "f16", "bf16")
        for n in walk_expr(recipe.score)
    )
    return recipe.keep != Num(True) or reads_float


def guard_empty_rows(module: Module, found: Attention) -> Module:
    def edit(site: Site, stmts: Block) -> Block:
        top = site.row_max_name
        safe = f"{top}_ok"
        guard = Assign(
            safe,
            Call(
                "map",
                (
                    Name(top),
                    Lambda(("x",), Select(Compare("==", Name("x"), NEG_INF), Num(0.0), Name("x"))),
                ),
            ),
        )
        head, tail = stmts[: site.row_max + 1], stmts[site.row_max + 1 :]
        out: list[Stmt] = []
        for stmt in tail:
            out.append(map_stmt_exprs(stmt, lambda e: _guard_use(e, top, safe)))
        return (*head, guard, *out)

    return edit_site(module, found, edit)


def _guard_use(expr: Expr, top: str, safe: str) -> Expr:
    """Uses of the row max as an operand of `map` in the same iteration read the guarded one."""
    match expr:
        case Call("map", args, kwargs, params):
            return Call(
                "map", tuple(Name(safe) if a == Name(top) else a for a in args), kwargs, params
            )
    return expr
