"""Weights that are no softmax."""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    Function,
    If,
    Module,
    Name,
    Stmt,
    free_names,
    walk_expr,
)
from engine.cuir.rewrite import (
    Block,
    drop_newly_dead,
    map_blocks,
    map_function,
    read_names,
    substitute,
)
from engine.cuir.scalar import evaluate
from engine.cuir.static.facts import statements
from engine.cuir.text.quote import expr
from engine.transfer.match import Site
from engine.transfer.rules.base.input_views import scalar_inputs
from engine.transfer.rules.base.recipe_names import is_positive
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.score_sites import X, edit_site, score_map
from engine.transfer.rules.elements.arithmetic import cheap
from engine.transfer.rules.elements.score import insert_score


def replace_softmax(module: Module, case: Case) -> Module:
    """Score and weight per element; everything that only served the softmax goes away."""
    found, words, recipe = case.found, case.words, case.recipe
    assert recipe.weight is not None
    score = case.rest if case.rest is not None else Binary("*", X, words.scale)
    weight = words.of_kernel(scalar_inputs(recipe.weight, recipe))
    body = words.of_kernel(scalar_inputs(score, recipe))
    # A masked score is -inf. Where the score is x times a positive factor plus the rest, -inf stays
    # -inf and one map computes both; otherwise the score is computed before the mask.
    if not _keeps_minus_infinity(score, words.scale, case.factor):
        module = insert_score(module, found, _cheap_weight(body, weight))
        body = X
    value = _cheap_weight(substitute(weight, {"s": body}), weight)
    if not _vanishes_at_minus_infinity(recipe.weight):
        value = expr("0.0 if x == -inf else value", x=X, value=value)
    kernel = module.function(found.kernel)
    was_read = read_names(kernel.body)
    vectors = _row_vectors(kernel)

    def weigh(site: Site, stmts: Block) -> Block:
        return tuple(
            score_map(site, value) if _is_exponential(s, site.score, vectors) else s for s in stmts
        )

    def clean(stmts: Block) -> Block:
        kept = tuple(s for s in stmts if not _serves_softmax(s, vectors))
        return kept if len(kept) != len(stmts) else stmts

    module = edit_site(module, found, weigh)
    module = map_function(
        module,
        found.kernel,
        lambda f: drop_newly_dead(replace(f, body=map_blocks(f.body, clean)), was_read),
    )
    lse = found.fields.get("lse")
    return replace(module, fields=tuple(f for f in module.fields if f.name != lse))


def _cheap_weight(expr: Expr, weight: Expr) -> Expr:
    """`expr`, a part of the weight or all of it, in fewer instructions.

    tanh's other form is right to an absolute error alone. Under a sigmoid or an exponential that
    is the same relative error of the weight; any other weight counts small values by their own
    size, and tanh stays exact.
    """
    tanh = any(isinstance(e, Call) and e.fn == "tanh" for e in walk_expr(expr))
    exponential = isinstance(weight, Call) and weight.fn in ("sigmoid", "exp", "exp2")
    return expr if tanh and not exponential else cheap(expr)


def _is_exponential(one: Stmt, score: str, vectors: frozenset[str]) -> bool:
    """`s = map(s, m, ...)`: the score tile against its row maximum."""
    match one:
        case Assign(target, Call("map", (Name(first), *rest))):
            return target == first == score and any(
                isinstance(a, Name) and a.id in vectors for a in rest
            )
    return False


def _serves_softmax(one: Stmt, vectors: frozenset[str]) -> bool:
    """Statements that only compute, apply or store row statistics."""
    match one:
        case Assign(target, _) if target in vectors:
            return True
        case Do(Call("store_rows", (_, Name(name)))):
            return name in vectors
        case Assign(_, Call("map", (_, *rest))):
            return any(isinstance(a, Name) and a.id in vectors for a in rest)
        case If(_, (), ()):
            return True
    return False


def _row_vectors(kernel: Function) -> frozenset[str]:
    """Names that hold row statistics: row max, row sum and what is computed from them alone."""
    out: set[str] = set()
    while True:
        before = len(out)
        for one in statements(kernel):
            match one:
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
    if free_names(weight) != {"s"}:
        return False
    return bool(evaluate(weight, {"s": float("-inf")}, "exact") == 0.0)


RULE = Rule(
    "softmax",
    "Replace softmax by the spec's own weight",
    "the spec does not normalise over keys: row max, row sum and LSE go away",
    "normaliser",
    applies=lambda case: not case.softmax,
    edit=replace_softmax,
    after=("empty_rows", "keep"),
)
