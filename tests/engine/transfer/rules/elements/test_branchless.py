"""Masks of score tiles without branches: the same pairs, and nothing looked at that may fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuir.nodes import Bool, Call, Expr, Lambda, Module, stmt_exprs, walk_block, walk_expr
from engine.cuir.parser import parse_expr
from engine.cuir.scalar import evaluate
from engine.spec.recipes.recipe import Input
from engine.transfer.match import find_attention
from engine.transfer.rules import apply, plan
from engine.transfer.rules.elements.branchless import unbranched
from tests.engine.transfer.recipes import lifted, recipe
from tests.engine.transfer.test_tiles_visited import KERNELS, carried, masked

pytestmark = pytest.mark.xdist_group("tiles")  # which shares what is carried over
ATOMS = ("j <= i", "j < 16", "i < 5", "j >= i - 7", "i // 8 == j // 8", "j != 3", "True")
predicates = st.recursive(
    st.sampled_from(ATOMS).map(parse_expr),
    lambda inner: st.builds(Bool, st.sampled_from(("and", "or")), inner, inner),
    max_leaves=8,
)


def kept(module: Module, kernel: str) -> list[Expr]:
    """The predicates of the kernel's masks."""
    return [
        node.args[-1].body
        for _, stmt in walk_block(module.function(kernel).body, (kernel,))
        for expr in stmt_exprs(stmt)
        for node in walk_expr(expr)
        if isinstance(node, Call) and node.fn == "keep" and isinstance(node.args[-1], Lambda)
    ]


def alternatives(expr: Expr) -> bool:
    return any(isinstance(n, Bool) and n.op == "or" for n in walk_expr(expr))


@given(predicates, st.integers(0, 40), st.integers(0, 40))
def test_the_same_pairs_are_kept(predicate: Expr, i: int, j: int) -> None:
    flat = unbranched(predicate)
    assert bool(evaluate(flat, {"i": i, "j": j})) == bool(evaluate(predicate, {"i": i, "j": j}))
    assert not any(isinstance(n, Bool) for n in walk_expr(flat))


@pytest.mark.parametrize("spec", [*masked(data=False), *masked(data=True)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_no_bundled_mask_branches_in_a_tile(kernel: str, spec: str) -> None:
    base, target, _ = carried(kernel, spec)
    assert not any(map(alternatives, kept(target, find_attention(base).kernel)))


GUARDED = {
    "a division by what may be 0": (
        "width[b] > 0 and (j // width[b] == i // width[b] or j <= 4)",
        Input("width", "extra", "i32", ("B",)),
    ),
    "a load where others say so": (
        "j > i or table[i - j] == 1",
        Input("table", "extra", "i32", ("Nq",)),
    ),
}


@pytest.mark.parametrize("case", GUARDED)
def test_what_may_fail_stays_behind_its_condition(case: str) -> None:
    keep, extra = GUARDED[case]
    base = lifted("flash_fwd_sm90")
    *_, (_, target) = apply(base, plan(base, recipe(keep=keep, extra=(extra,))).steps)
    assert any(map(alternatives, kept(target, find_attention(base).kernel)))
