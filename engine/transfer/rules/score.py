"""The spec's score, computed per element before masking and the row maximum."""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Expr,
    Lambda,
    Module,
    Name,
    Num,
    Stmt,
    walk_expr,
)
from engine.spec.recipe import Recipe
from engine.transfer.match import Attention, Site
from engine.transfer.rewrite import (
    Block,
    map_blocks,
    map_expr,
    map_stmt_exprs,
    substitute_expr,
)
from engine.transfer.rules.arithmetic import cheap, positive_multiple
from engine.transfer.rules.inputs import scalar_inputs
from engine.transfer.rules.sites import edit_site, score_map
from engine.transfer.rules.steps import Step
from engine.transfer.rules.words import Words


def score_steps(found: Attention, recipe: Recipe, words: Words, rest: Expr) -> list[Step]:
    score = words.of_kernel(scalar_inputs(rest, recipe))
    capped = positive_multiple(score)
    body = cheap(score) if capped is None else capped.value
    return [
        Step(
            "Compute the spec's score",
            "the score is more than a positive multiple of q.k, so it is computed per element "
            "before masking and the row maximum" + _how(score, body),
            "score",
            lambda m: insert_score(m, found, body),
        ),
        Step(
            "Take the scale out of the exponential",
            "the multiplier is no longer the last thing that happens to the score, so it cannot be "
            "folded into exp2",
            "scale",
            lambda m: _unfold_scale(m, found, words),
        )
        if capped is None
        else Step(
            "Put the cap where the scale was",
            "the score is a positive multiple of what the element holds, plus a constant: the "
            "exponential multiplies anyway, and only the log-sum-exp sees the constant",
            "scale",
            lambda m: _unfold_scale(m, found, words, capped.factor, capped.shift),
        ),
    ]


def _how(score: Expr, body: Expr) -> str:
    functions = {e.fn for e in walk_expr(score) if isinstance(e, Call)}
    left = {e.fn for e in walk_expr(body) if isinstance(e, Call)}
    replaced = sorted((functions & {"tanh", "sigmoid"}) - left)
    if not replaced:
        return ""
    return (
        f"; {' and '.join(replaced)} as one exponential and one reciprocal, with an absolute error "
        "below 2^-21"
    )


def insert_score(module: Module, found: Attention, body: Expr) -> Module:
    def edit(site: Site, stmts: Block) -> Block:
        assert site.mask is not None
        return (*stmts[: site.mask], score_map(site, body), *stmts[site.mask :])

    return edit_site(module, found, edit)


def _unfold_scale(
    module: Module, found: Attention, words: Words, factor: float = 1.0, shift: float = 0.0
) -> Module:
    """Everywhere but in the inserted score maps, the scale becomes `factor`; a logarithm of the row
    sum, which is absolute, also gets `shift`. The host's text may hold the scale too."""

    def change(expr: Expr) -> Expr:
        if shift != 0.0:
            expr = map_expr(expr, lambda e: _shifted(e, words.scale, shift))
        return _drop_ones(substitute_expr(expr, words.scale, Num(factor)))

    def edit(body: Block) -> Block:
        return tuple(s if _is_score_map(s, found) else map_stmt_exprs(s, change) for s in body)

    functions = (replace(f, body=map_blocks(f.body, edit)) for f in module.functions)
    return replace(module, functions=tuple(functions))


def _shifted(expr: Expr, scale: Expr, shift: float) -> Expr | None:
    """The natural log-sum-exp `top * scale + log(sum)` with the scores' constant added."""
    match expr:
        case Binary("+", Binary("*", _, factor) as top, Call("log") as log) if factor == scale:
            return Binary("+", _plus(top, shift), log)
        case Binary("+", Call("log") as log, Binary("*", _, factor) as top) if factor == scale:
            return Binary("+", log, _plus(top, shift))
    return None


def _plus(expr: Expr, shift: float) -> Expr:
    return Binary("+" if shift > 0 else "-", expr, Num(abs(shift)))


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
