"""A term of the softmax's sum that no key has (attention sinks).

It is added after the last key tile, so that the loop stays as it is: rows sum to
`sum exp(s - top) + exp(sink - top)`, and the log-sum-exp of the keys and the sink are added as
logarithms. The sink's exponential is not kept below an overflow: where it is infinite, the weights
of all keys are 0 in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    Lambda,
    Module,
    Name,
    Path,
    Select,
    map_stmt_exprs,
    walk_block,
)
from engine.cuir.rewrite import Block, substitute
from engine.cuir.static.kernel_names import locals_for
from engine.cuir.text.quote import expr
from engine.errors import TransferError
from engine.transfer.match import block_at
from engine.transfer.rules.base.input_views import scalar_inputs
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.score_sites import map_rows, put_block


@dataclass(frozen=True, slots=True)
class Ending:
    """Where a kernel is done with a row's keys."""

    block: Path
    inverse: int  # place of the statement that first reads the row's sum, with what was added to it
    lse: int  # place of `lse = map(top, sum, ...)`
    top: str
    sum: str
    top_name: str  # of the row's maximum in the lambda of LSE
    score: Expr  # of the maximum: the score that it stands for


def ending_of(module: Module, case: Case) -> Ending:
    """Where rows are normalised: found by the log-sum-exp that is stored."""
    found = case.found
    statements = list(walk_block(module.function(found.kernel).body, (found.kernel,)))
    stored = {
        stmt.call.args[1]
        for _, stmt in statements
        if isinstance(stmt, Do) and stmt.call.fn == "store_rows"
    }
    for _, stmt in reversed(statements):  # or is what the stored one is made of
        match stmt:
            case Assign(made, Call("map", (Name() as first, *_))) if Name(made) in stored:
                stored.add(first)
    for path, stmt in statements:
        match stmt:
            case Assign(
                lse, Call("map", (Name(top), Name(total), Lambda((x, y), Select(_, _, value))))
            ) if Name(lse) in stored:
                score = _beside_logarithm(value, y)
                if score is None:
                    continue
                at = path[-1]
                assert isinstance(at, int)
                inverse = _first_read(block_at(module, path[:-1])[:at], total)
                if inverse is None:
                    raise TransferError(
                        f"{found.kernel} has no `map` of the row sum `{total}` before the "
                        "log-sum-exp, and that is what a row is normalised by",
                        fix="compute that factor before the log-sum-exp in the kernel",
                    )
                return Ending(path[:-1], inverse, at, top, total, x, score)
    raise TransferError(
        "a sink is added where a kernel computes the log-sum-exp of its rows, and this one has no "
        "`map` of row maximum and row sum that is stored"
    )


def _beside_logarithm(value: Expr, total: str) -> Expr | None:
    """What is added to log(total)."""
    match value:
        case Binary("+", other, Call("log", (Name(id),))) if id == total:
            return other
        case Binary("+", Call("log", (Name(id),)), other) if id == total:
            return other
    return None


def _first_read(before: Block, total: str) -> int | None:
    """The place of the first `map` of the row sum alone, or of the sum with more in it."""
    sums = {total}
    for place, stmt in enumerate(before):
        match stmt:
            case Assign(_, Call("map", (Name(first), Lambda()))) if first in sums:
                return place
            case Assign(made, Call("map", (Name(first), *_))) if first in sums:
                sums.add(made)
    return None


def add_sink(module: Module, case: Case) -> Module:
    """The sink in the sum that normalises a row, and in its log-sum-exp."""
    found, recipe, words = case.found, case.recipe, case.words
    assert recipe.sink is not None
    end = ending_of(module, case)
    kernel = module.function(found.kernel)
    fresh = locals_for(module, [kernel], words.names)
    total, x, top = (Name(fresh(wanted)) for wanted in (f"{end.sum}_all", "sum", "top"))
    sink = words.of_kernel(scalar_inputs(recipe.sink, recipe))
    score = substitute(end.score, {end.top_name: top})
    stmts = block_at(module, end.block)
    lse = stmts[end.lse]
    assert isinstance(lse, Assign)
    # A row without a kept key has no maximum to take off, and O = 0.
    added = expr(
        "x if x == 0.0 else x + exp2_approx((sink - score) * LOG2E)",
        x=x, sink=sink, score=score,
    )  # fmt: skip
    joined = expr(
        "sink if x == -inf else max(x, sink) + log(1.0 + exp(-abs(x - sink)))", x=x, sink=sink
    )
    row = found.sites[0].rows
    between = (
        map_stmt_exprs(s, lambda e: substitute(e, {end.sum: total}))
        for s in stmts[end.inverse : end.lse]
    )
    whole = Name(fresh(f"{lse.target}_all"))
    behind = stmts[end.lse + 1 :]
    stored = (map_stmt_exprs(s, lambda e: substitute(e, {lse.target: whole})) for s in behind)
    edited = (
        *stmts[: end.inverse],
        map_rows(total.id, (Name(end.sum), Name(end.top)), (x, top), added, row),
        *between,
        lse,
        map_rows(whole.id, (Name(lse.target),), (x,), joined, row),
        *stored,
    )
    return put_block(module, end.block, edited)


RULE = Rule(
    "sink",
    "Add the sink to the softmax's sum",
    "the spec's softmax sums over a term that no key has: it is added once, after the last key "
    "tile, to what the rows are divided by and to the log-sum-exp",
    "sink",
    applies=lambda case: case.recipe.sink is not None,
    edit=add_sink,
    after=("late",),
)
