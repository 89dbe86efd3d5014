"""Key tiles that end where parts of a block's rows do, for masks with two edges."""

from __future__ import annotations

from engine.cuir.nodes import Expr, Module, Select
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.tile_sizes import chosen, tile_const, with_tile

PART = 64  # rows of a warpgroup
# Fewer keys than this leave registers for wide accumulators, and are no more than those need.
MANY = 96


def _edit(module: Module, case: Case) -> Module:
    found, tail = case.found, case.found.schedule.tail
    keys = tile_const(module.function(found.kernel), found, 1)
    if tail is None or keys is None or module.function(tail) == case.module.function(tail):
        return module
    return with_tile(module, found, keys, lambda value: _plain(chosen(value, _whole_parts)))


def _plain(value: Expr) -> Expr:
    """Without a choice between equal numbers."""
    if not isinstance(value, Select):
        return value
    then, other = _plain(value.then), _plain(value.other)
    return then if then == other else Select(value.cond, then, other)


def _whole_parts(number: int) -> int:
    return -(-number // PART) * PART if number > MANY else number


RULE = Rule(
    "edge_tiles",
    "Take key tiles in which an edge of the mask lies whole",
    "64 rows meet an edge of the mask in one tile of 128 keys, in 1.6 of 112 in the mean: fewer "
    "tiles evaluate the mask; nothing but the mask needs registers beside the scores",
    "mask",
    applies=lambda case: case.masked and case.softmax and case.lists is None and case.rest is None,
    edit=_edit,
    after=("smaller_tiles",),
)
