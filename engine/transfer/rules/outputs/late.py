"""Weights that are multiplied by something after their row is normalised.

The rows' sums have all kept keys: the factor goes to the weights behind them, before the product
with v. It may be 0, where a mask drops weights without renormalising the rest.
"""

from __future__ import annotations

from engine.cuir.nodes import Assign, Binary, Call, Expr, Module, Name, Num, Select, Stmt
from engine.cuir.rewrite import Block
from engine.errors import TransferError
from engine.transfer.match import Site
from engine.transfer.rules.base.input_views import scalar_inputs
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.score_sites import X, edit_site, score_map


def multiply_late(module: Module, case: Case) -> Module:
    """The score tile, weights by then, times the factor behind each row sum of it."""
    recipe = case.recipe
    assert recipe.late is not None
    factor = case.words.of_kernel(scalar_inputs(recipe.late, recipe))
    value: Expr = Binary("*", X, factor)
    if isinstance(factor, Select) and (factor.then, factor.other) == (Num(1.0), Num(0.0)):
        value = Select(factor.cond, X, Num(0.0))

    def edit(site: Site, stmts: Block) -> Block:
        at = next((n for n, s in enumerate(stmts) if _sums(s, site.score)), None)
        if at is None:
            raise TransferError(f"no row sum of the score tile {site.score} follows it")
        return (*stmts[: at + 1], score_map(site, value), *stmts[at + 1 :])

    return edit_site(module, case.found, edit)


def _sums(one: Stmt, score: str) -> bool:
    """`l = row_sum(s, l)` of the score tile."""
    match one:
        case Assign(_, Call("row_sum", (Name(tile), _))):
            return tile == score
    return False


RULE = Rule(
    "late",
    "Multiply the weights behind their sum",
    "the spec drops or scales weights after it normalised them: the sum has them as they were",
    "late",
    applies=lambda case: case.recipe.late is not None,
    edit=multiply_late,
    after=("softmax",),
)
