"""The spec's score, computed per element before masking and the row maximum."""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import Assign, Binary, Call, Expr, Lambda, Module, Name, Num, Stmt
from engine.spec.recipe import Recipe
from engine.transfer.match import Attention, Site
from engine.transfer.rewrite import (
    Block,
    map_blocks,
    map_expr,
    map_function,
    map_stmt_exprs,
    substitute_expr,
)
from engine.transfer.rules.inputs import scalar_inputs
from engine.transfer.rules.sites import edit_site, score_map
from engine.transfer.rules.steps import Step
from engine.transfer.rules.words import Words


def score_steps(found: Attention, recipe: Recipe, words: Words, rest: Expr) -> list[Step]:
    body = words.of_kernel(scalar_inputs(rest, recipe))
    return [
        Step(
            "Compute the spec's score",
            "the score is more than a positive multiple of q.k, so it is computed per element "
            "before masking and the row maximum",
            "score",
            lambda m: insert_score(m, found, body),
        ),
        Step(
            "Take the scale out of the exponential",
            "the multiplier is no longer the last thing that happens to the score, so it cannot be "
            "folded into exp2",
            "scale",
            lambda m: _unfold_scale(m, found, words),
        ),
    ]


def insert_score(module: Module, found: Attention, body: Expr) -> Module:
    def edit(site: Site, stmts: Block) -> Block:
        assert site.mask is not None
        return (*stmts[: site.mask], score_map(site, body), *stmts[site.mask :])

    return edit_site(module, found, edit)


def _unfold_scale(module: Module, found: Attention, words: Words) -> Module:
    """Everywhere but in the inserted score maps, the scale becomes 1."""

    def change(expr: Expr) -> Expr:
        return _drop_ones(substitute_expr(expr, words.scale, Num(1.0)))

    def edit(body: Block) -> Block:
        return tuple(s if _is_score_map(s, found) else map_stmt_exprs(s, change) for s in body)

    return map_function(module, found.kernel, lambda f: replace(f, body=map_blocks(f.body, edit)))


def _is_score_map(stmt: Stmt, found: Attention) -> bool:
    """A map of one score tile whose lambda's first parameter is x: only rules write those."""
    match stmt:
        case Assign(target, Call("map", (Name(name), Lambda(params, _)))):
            return target == name and params[0] == "x" and name in {s.score for s in found.sites}
    return False


def _drop_ones(expr: Expr) -> Expr:
    """x * 1.0 and 1.0 * x become x, anywhere in the expression."""
    match expr:
        case Binary("*", left, right):
            a, b = _drop_ones(left), _drop_ones(right)
            if a == Num(1.0):
                return b
            return a if b == Num(1.0) else Binary("*", a, b)
    return map_expr(
        expr,
        lambda n: (
            _drop_ones(n) if isinstance(n, Binary) and n.op == "*" and n is not expr else None
        ),
    )
