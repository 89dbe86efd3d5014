"""The grid of persistent kernels where the mask makes work uneven."""

from __future__ import annotations

import pytest

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.spec.recipes.recipe import Recipe
from engine.transfer.match import find_attention
from engine.transfer.rules import apply, plan
from engine.transfer.rules.launches.grid import spread_uneven_rows
from tests.engine.transfer.recipes import VARIANTS, lifted, recipe

MASKS = {
    "window_of_512": recipe(keep="j <= i + 256 and j >= i - 256"),
    "global_tokens": recipe(keep="(j <= i + 256 and j >= i - 256) or i < 16 or j < 16"),
}
EVEN = "blocks = min(works, sm_count())"
UNEVEN = "blocks = max(min(works, sm_count()), ceil_div(works, 2))"


def target_of(kernel: str, wanted: Recipe, narrower: int = 0) -> Module:
    base = lifted(kernel)
    return list(apply(base, plan(base, wanted, narrower).steps))[-1][1]


@pytest.mark.parametrize("variant", ["softcap_causal", "alibi_causal", "global_tokens"])
def test_uneven_rows_are_handed_out(variant: str) -> None:
    text = print_module(target_of("flash_fwd_sm90", MASKS.get(variant) or VARIANTS[variant]))
    assert UNEVEN in text and EVEN not in text


@pytest.mark.parametrize("variant", ["bias", "sigmoid", "global_window", "window_of_512"])
def test_even_rows_keep_their_grid(variant: str) -> None:
    """Rows of a window are even but for the first ones: a fixed share ends sooner."""
    text = print_module(target_of("flash_fwd_sm90", MASKS.get(variant) or VARIANTS[variant]))
    assert EVEN in text and UNEVEN not in text


def test_a_length_per_batch_is_uneven_too() -> None:
    from engine.spec.recipes.recipe import Input

    lengths = (Input("length", "extra", "i32", ("B",)),)
    text = print_module(target_of("flash_fwd_sm90", recipe(keep="j < length[b]", extra=lengths)))
    assert UNEVEN in text


def test_a_block_per_piece_of_work_stays() -> None:
    assert "sm_count" not in print_module(target_of("flash_fwd_sm80", VARIANTS["softcap_causal"]))


def test_a_grid_that_no_loop_steps_by_stays() -> None:
    module = target_of("flash_fwd_sm90", recipe(keep="j <= i"))
    text = print_module(module).replace(UNEVEN, EVEN)
    fixed = parse_module(text.replace(", grid_dim(0))", ", 132)"))
    assert spread_uneven_rows(fixed, find_attention(fixed)) == fixed
    again = parse_module(text)
    assert spread_uneven_rows(again, find_attention(again)) == module
