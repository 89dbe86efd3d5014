"""Dimensions of extra inputs are moved wherever the input is read."""

from __future__ import annotations

from engine.cuir.printer import print_expr
from engine.spec.recipes.recipe import Input
from engine.transfer.rules.base.dimension_orders import with_rows_last
from tests.engine.transfer.recipes import recipe


def test_every_load_follows_the_order() -> None:
    table = Input("t", "extra", "i32", ("Nk", "Hq"))
    moved, dims = with_rows_last(recipe(keep="t[j, h] > 0", kv_head="t[0, h]", extra=(table,)))
    assert dims == {"t": ("Nk", "Hq")} and moved.inputs[-1].dims == ("Hq", "Nk")
    assert print_expr(moved.keep) == "t[h, j] > 0"
    assert print_expr(moved.kv_head) == "t[h, 0]"
