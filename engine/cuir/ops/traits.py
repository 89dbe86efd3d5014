"""Sets of ops by what their declarations say: outside of the ops, nobody lists names."""

from __future__ import annotations

from collections.abc import Callable

from engine.cuir.ops import OPS
from engine.cuir.ops.spec import Effect, OpSpec, Pending, Trait


def _those(is_one: Callable[[OpSpec], bool]) -> frozenset[str]:
    return frozenset(name for name, spec in OPS.items() if is_one(spec))


def _having(trait: Trait) -> frozenset[str]:
    return _those(lambda spec: trait in spec.traits)


REDUCTIONS, FILLS, MASKS = map(_having, (Trait.REDUCES, Trait.FILLS, Trait.MASKS))
ORDERS, NAMED_BARRIERS = _having(Trait.ORDERS), _having(Trait.NAMED)
COMMITS = _having(Trait.COMMITS)
GROUP_WAITS = _those(
    lambda spec: Trait.ORDERS in spec.traits and any(o.name == "n" for o in spec.operands)
)
"""They wait until at most the `n` newest groups that a commit closed are in flight."""
BUILT, STEADY = _having(Trait.BUILT), _having(Trait.STEADY)
ELECTIONS, WARPGROUPS = _having(Trait.ELECTS), _having(Trait.WARPGROUP)

LAUNCHES = _those(lambda spec: Effect.LAUNCHES in spec.effects)
"""Their first operand is a kernel with its constants, the second its arguments."""
GLOBAL_WRITES = _those(lambda spec: Effect.WRITES_GLOBAL in spec.effects)
"""Their first operand is what they write."""
TILE_LOADS = _those(lambda spec: {Effect.WRITES_SHARED, Effect.READS_GLOBAL} <= spec.effects)
"""They copy a tile of a tensor into shared memory: their first two operands are these."""
REGISTER_LOADS = _those(
    lambda spec: Effect.READS_GLOBAL in spec.effects and spec.spelling.kind.startswith("tile:{")
)
"""They load a register tile from the tile of a view that is their first argument."""
COLUMN_LOADS = _having(Trait.BY_COLUMN) - _having(Trait.BY_ROW)
ROW_LOADS = REGISTER_LOADS & _having(Trait.BY_ROW) - _having(Trait.BY_COLUMN)
LATER, BLOCKS = _having(Trait.LATER), _having(Trait.BLOCK)
DENSE_LOADS = _those(lambda spec: {Trait.BY_ROW, Trait.BY_COLUMN} <= spec.traits)
ROW_STORES = _those(lambda spec: spec.name in GLOBAL_WRITES and Trait.BY_ROW in spec.traits)
FIELD_VIEWS = _those(lambda spec: any(o.kind == "field" for o in spec.operands))
"""They say what a tensor field of the argument struct looks like."""
HINTS = _those(lambda spec: not spec.effects and any(o.kind == "map" for o in spec.operands))
"""They read and write nothing of the tensor whose map they are given."""
PLACES = _those(
    lambda spec: spec.is_value and spec.spelling.kind.partition(":")[0] in (
        "view", "shared", "stages", "barriers", "words", "tensor_map", "row_map",
    )
)  # fmt: skip
"""They name memory."""
MATMULS = _those(lambda spec: any(o.name == "acc" for o in spec.operands))
"""Their operands are acc, a and b."""
ASYNC_MATMULS = _those(lambda spec: spec.pending is Pending.MMA)
REALLOCATIONS = _those(lambda spec: spec.needs == "setmaxnreg")
"""They change how many registers a thread may hold, to their operand."""
MAPS = _those(lambda spec: bool(spec.spelling.elements) and Trait.MASKS not in spec.traits)
"""Their lambda gives the elements of a tile."""
CONDITIONS = _those(lambda spec: spec.spelling.condition)
"""Their lambda is a predicate."""
COUNTS = _those(lambda spec: spec.spelling.kind in ("u32", "u64"))
"""Numbers that C++ gives without a sign."""
