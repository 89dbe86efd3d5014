"""Weights that are no softmax, and factors of the output."""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Compare,
    Do,
    Expr,
    If,
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
from engine.transfer.rewrite import (
    Block,
    drop_newly_dead,
    free_names,
    map_blocks,
    map_function,
    read_names,
    substitute,
)
from engine.transfer.rules.arithmetic import cheap
from engine.transfer.rules.inputs import scalar_inputs
from engine.transfer.rules.score import insert_score
from engine.transfer.rules.sites import NEG_INF, X, edit_site, score_map, statements
from engine.transfer.rules.words import Words, is_positive


def replace_softmax(
    module: Module, found: Attention, words: Words, recipe: Recipe, score: Expr, factor: Expr
) -> Module:
    """Score and weight per element; everything that only served the softmax goes away."""
    assert recipe.weight is not None
    weight = words.of_kernel(scalar_inputs(recipe.weight, recipe))
    body = words.of_kernel(scalar_inputs(score, recipe))
    # A masked score is -inf. Where the score is x times a positive factor plus the rest, -inf stays
    # -inf and one map computes both; otherwise the score is computed before the mask.
    if not _keeps_minus_infinity(score, words.scale, factor):
        module = insert_score(module, found, _cheap_weight(body))
        body = X
    value = _cheap_weight(substitute(weight, {"s": body}))
    if not _vanishes_at_minus_infinity(recipe.weight):
        value = Select(Compare("==", X, NEG_INF), Num(0.0), value)
    kernel = module.function(found.kernel)
    was_read = read_names(kernel.body)
    vectors = _row_vectors(kernel.body)

    def weigh(site: Site, stmts: Block) -> Block:
        return tuple(
            score_map(site, value) if _is_exponential(s, site.score, vectors) else s for s in stmts
        )

    def clean(stmts: Block) -> Block:
        kept = tuple(s for s in stmts if not _serves_softmax(s, vectors))
        return kept if len(kept) != len(stmts) else stmts

    module = edit_site(module, found, weigh)
    module = map_function(
        module, found.kernel, lambda f: replace(f, body=map_blocks(f.body, clean))
    )
    module = map_function(module, found.kernel, lambda f: drop_newly_dead(f, was_read))
    lse = found.fields.get("lse")
    return replace(module, fields=tuple(f for f in module.fields if f.name != lse))


def _cheap_weight(expr: Expr) -> Expr:
    """`expr` in fewer instructions. No softmax follows, so that small values count by their own
    size: tanh stays exact, whose other form is right to an absolute error alone."""
    tanh = any(isinstance(e, Call) and e.fn == "tanh" for e in walk_expr(expr))
    return expr if tanh else cheap(expr)


def _is_exponential(stmt: Stmt, score: str, vectors: frozenset[str]) -> bool:
    """`s = map(s, m, ...)`: the score tile against its row maximum."""
    match stmt:
        case Assign(target, Call("map", (Name(first), *rest))):
            return target == first == score and any(
                isinstance(a, Name) and a.id in vectors for a in rest
            )
    return False


def _serves_softmax(stmt: Stmt, vectors: frozenset[str]) -> bool:
    """Statements that only compute, apply or store row statistics."""
    match stmt:
        case Assign(target, _) if target in vectors:
            return True
        case Do(Call("store_rows", (_, Name(name)))):
            return name in vectors
        case Assign(_, Call("map", (_, *rest))):
            return any(isinstance(a, Name) and a.id in vectors for a in rest)
        case If(_, (), ()):
            return True
    return False


def _row_vectors(body: Block) -> frozenset[str]:
    """Names that hold row statistics: row max, row sum and what is computed from them alone."""
    out: set[str] = set()
    while True:
        before = len(out)
        for stmt in statements(body):
            match stmt:
                case Assign(target, Call("row_max" | "row_sum" | "row_reduce")):
                    out.add(target)
                case Assign(target, Call("map", (Name(first), *_))) if first in out:
                    out.add(target)
                case Assign(target, Name(source)) if source in out:
                    out.add(target)
        if len(out) == before:
            return frozenset(out)


def _keeps_minus_infinity(score: Expr, scale: Expr, factor: Expr) -> bool:
    """True when score(x = -inf) is -inf: a positive multiple of x plus terms without x."""
    match score:
        case Binary("*", Name("x"), other):
            return other == scale and is_positive(factor)
        case Name("x"):
            return True
        case Binary("+", left, right):
            for part, rest in ((left, right), (right, left)):
                if "x" not in free_names(rest):
                    return _keeps_minus_infinity(part, scale, factor)
        case Binary("-", left, right):
            return "x" not in free_names(right) and _keeps_minus_infinity(left, scale, factor)
    return False


def _vanishes_at_minus_infinity(weight: Expr) -> bool:
    """True when weight(-inf) is exactly 0 (sigmoid, relu), so that masked pairs vanish."""
    from engine.cuir.scalar import evaluate

    if free_names(weight) != {"s"}:
        return False
    return bool(evaluate(weight, {"s": float("-inf")}, "exact") == 0.0)


def scale_output(module: Module, found: Attention, value: Expr) -> Module:
    """Multiply the accumulator just before it is stored."""
    # Without keys a factor such as 1 / Nk is infinite; nothing times it is still nothing.
    scaled = Select(Compare("==", X, Num(0.0)), Num(0.0), Binary("*", X, value))
    factor = Assign(
        found.accumulator,
        Call("map", (Name(found.accumulator), Lambda(("x",), scaled))),
    )

    def edit(stmts: Block) -> Block:
        for position, stmt in enumerate(stmts):
            match stmt:
                case Do(Call("store", (_, Name(name)))) if name == found.accumulator:
                    return (*stmts[:position], factor, *stmts[position:])
        return stmts

    return map_function(module, found.kernel, lambda f: replace(f, body=map_blocks(f.body, edit)))
