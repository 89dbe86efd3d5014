"""What each op of a kernel asks of the units, from its operands' types.

A rule is chosen by the op's name; an op without one (new ones arrive with new variants) is judged
by its operands: a lambda over a tile costs its expression per element, tiles that move their bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.cost.demand import Demand
from engine.cost.scalar import COLUMN, ELEMENT, ROW, Lanes, Varies, expression_cost
from engine.cuir.nodes import Lambda
from engine.cuir.types import (
    DTYPES,
    GmemTileType,
    LambdaType,
    Layout,
    Scalar,
    SharedType,
    TileType,
    Type,
)

# Elements of a thread that an op of a layout family takes at a time, each time in a block of code
# of its own, whose critical path is waited for (kernels/include/cubridge/sm90_tile.cuh); whole
# tiles elsewhere.
BLOCKS: Mapping[tuple[str, str], int] = {("wgmma", "map"): 8, ("wgmma", "keep"): 4}


@dataclass(frozen=True, slots=True)
class Bound:
    """An op's operands by name, as types; a list for `...`, None where it is left out."""

    name: str
    operands: Mapping[str, Type | tuple[Type, ...] | None]
    threads: int  # of the warpgroup, or of the block where no warpgroups are told apart
    result: Type | None = None
    lazy: int = 0  # tiles among the operands that `load_tile` left in memory

    def tile(self, name: str) -> TileType | None:
        found = self.operands.get(name)
        if isinstance(found, tuple):
            found = found[0] if found else None
        return found if isinstance(found, TileType) else None

    def shared(self, name: str) -> SharedType | None:
        found = self.operands.get(name)
        return found if isinstance(found, SharedType) else None

    def number(self, name: str) -> float:
        """A compile-time operand's value; 1 where it is not known."""
        found = self.operands.get(name)
        value = found.value if isinstance(found, Scalar) else None
        return float(value) if value is not None else 1.0


def elements(layout: Layout) -> float:
    return float(layout.rows * layout.cols)


def lanes_of(layout: Layout, threads: int) -> Lanes:
    """Operations for a value per element, row and column of a tile.

    The four threads of a quad hold a row's values each; every thread the columns that it has.
    """
    base = layout.base or layout
    rows, columns = base.rows * 4.0, threads * base.cols / 4.0
    if layout.role == "row":
        return Lanes(rows, rows, rows)
    if layout.role == "col":
        return Lanes(columns, columns, columns)
    return Lanes(elements(layout), rows, columns)


def known(name: str) -> bool:
    """Whether an op has a rule of its own."""
    return name in _RULES


def cost(op: Bound) -> Demand:
    """The op's demand, by all threads that execute it together."""
    rule = _RULES.get(op.name)
    return rule(op) if rule is not None else _other(op)


# --- registers -----------------------------------------------------------------------------------


def _each(op: Bound, f: Lambda, tiles: tuple[Type, ...], mapped: bool) -> Demand:
    """A lambda over the first tile: its instructions, and its latency once per block of code."""
    first = tiles[0]
    if not isinstance(first, TileType):
        return Demand()
    lanes = lanes_of(first.layout, op.threads)
    varies: dict[str, Varies] = {}
    whole: set[str] = set()
    values = tiles if mapped else tiles[1:]
    for position, name in enumerate(f.params):
        if position < len(values):
            tile = values[position]
            role = tile.layout.role if isinstance(tile, TileType) else "acc"
            kind = {"row": ROW, "col": COLUMN}.get(role, ELEMENT)
            if isinstance(tile, TileType) and tile.dtype in ("i32", "i64", "bool", "bits"):
                whole.add(name)
        else:
            one = len(f.params) - len(values) == 1
            kind = ROW if position == len(values) and not (one and first.layout.role == "col") \
                else COLUMN  # fmt: skip
            whole.add(name)
        varies[name] = frozenset((kind,))
    made = expression_cost(f.body, varies, frozenset(whole), lanes)
    if not mapped:
        made = made + Demand(alu=lanes.element)  # the choice between the score and -inf
    blocks = code_blocks(op, tiles, first.layout)
    if any(in_memory(t) for t in tiles[1:]):
        # Loaded where it is taken up: its bounds, its address, an access that hits L1; the two rows
        # that a thread holds share it.
        half = lanes.element / 2
        made = made + Demand(memory=half, alu=2 * half, fp32=half, near=1)
    if op.lazy:
        # Two neighbours in one access; a warp holds eight rows, so eight lines.
        count = op.lazy * lanes.element
        made = made + Demand(memory=4 * count, alu=count, l2=2 * count, far=1)
    if made.branches:
        blocks = max(blocks, lanes.element / op.threads)  # every element is one of its own
    return replace(
        made, arithmetic=made.arithmetic * blocks, special=made.special * blocks,
        loads=made.loads * blocks, near=made.near * blocks, far=made.far * blocks,
    )  # fmt: skip


def in_memory(tile: Type | None) -> bool:
    """Whether a vector's values stay in memory until an op takes them up: columns beside a wgmma
    accumulator, for which there are no registers (ColsInMemory in sm90_tile.cuh)."""
    if not isinstance(tile, TileType):
        return False
    return tile.layout.role == "col" and tile.layout.family.unit == "warpgroup"


def code_blocks(op: Bound, tiles: tuple[Type, ...], layout: Layout) -> float:
    """How many blocks of code an op over a tile is, one after another."""
    step = BLOCKS.get((layout.family.name, op.name))
    if step is None or layout.role in ("row", "col"):
        return 1.0
    plain = len(tiles) == 2 and isinstance(tiles[1], TileType) and tiles[1].layout.role == "row"
    if op.name == "map" and plain and op.operands.get("at") is None:
        return 1.0  # the softmax's own: scheduled as a whole
    return math.ceil(elements(layout) / op.threads / step)


def _map(op: Bound) -> Demand:
    tiles, f = op.operands["tiles"], op.operands["f"]
    if not isinstance(tiles, tuple) or not isinstance(f, LambdaType):
        return Demand()
    return _each(op, f.node, tiles, op.name == "map")


def _zeros(op: Bound) -> Demand:
    return Demand()  # registers are cleared in pairs beside other work; gemm_async_init needs none


def _row_max(op: Bound) -> Demand:
    tile = op.tile("tile")
    if tile is None:
        return Demand()
    rows = lanes_of(tile.layout, op.threads).row
    return Demand(alu=elements(tile.layout) + 2 * rows, memory=2 * rows, shuffles=2, arithmetic=8)


def _row_sum(op: Bound) -> Demand:
    tile = op.tile("tile")
    return Demand(fp32=elements(tile.layout), arithmetic=4) if tile else Demand()


def _row_reduce(op: Bound) -> Demand:
    row = op.tile("row")
    if row is None:
        return Demand()
    rows = lanes_of(row.layout, op.threads).element
    return Demand(fp32=2 * rows, memory=2 * rows, shuffles=2)


def _convert(op: Bound) -> Demand:
    tile = op.tile("tile")  # one packing conversion for two elements
    return Demand(alu=elements(tile.layout) / 2, arithmetic=1) if tile else Demand()


def _load_vector(op: Bound) -> Demand:
    source = op.operands.get("tile")
    size = 4 if not isinstance(source, GmemTileType) else DTYPES[source.view.dtype].size
    lanes = op.threads * 2.0
    if op.name == "load_cols" and in_memory(op.result):
        return Demand()  # loaded by the ops that take it up
    return Demand(memory=lanes, alu=2 * lanes, l2=size * lanes / 4, loads=1)


# --- matmul --------------------------------------------------------------------------------------


def _product(op: Bound) -> tuple[float, int, float, float]:
    """FLOP, M, and bytes of the left (when in shared memory) and right operands of acc += a b."""
    acc, a, b = op.tile("acc"), op.operands.get("a"), op.shared("b")
    if acc is None or b is None:
        return 0.0, 0, 0.0, 0.0
    inner = b.cols if b.transposed else b.rows
    rows, cols = acc.layout.rows, acc.layout.cols
    left = float(a.tile_bytes) if isinstance(a, SharedType) else 0.0
    return 2.0 * rows * cols * inner, rows, left, float(b.tile_bytes)


def _gemm(op: Bound) -> Demand:
    """mma.sync: every warp loads its rows of the left and all of the right operand."""
    flops, _, left, right = _product(op)
    acc = op.tile("acc")
    warps = (acc.layout.warps or 1) if acc else 1
    loaded = left + warps * right
    instructions = flops / (2 * 16 * 8 * 16) + loaded / 512
    return Demand(mma=flops, shared=loaded, other=32 * instructions, matmuls=1)


def _gemm_async(op: Bound) -> Demand:
    """wgmma: the tensor cores read shared operands themselves, the right one once per 64 rows."""
    flops, rows, left, right = _product(op)
    return Demand(wgmma=flops, operands=left + right * math.ceil(rows / 64), matmuls=1)


# --- movement and order --------------------------------------------------------------------------


def _copy_async(op: Bound) -> Demand:
    shared = op.shared("dst")
    if shared is None:
        return Demand()
    chunks = shared.tile_bytes / 16
    return Demand(shared=shared.tile_bytes, l2=shared.tile_bytes, memory=chunks, alu=2 * chunks)


def _tma_load(op: Bound) -> Demand:
    shared = op.shared("dst")
    return Demand(l2=shared.tile_bytes, shared=shared.tile_bytes) if shared else Demand()


def _tma_store(op: Bound) -> Demand:
    shared = op.shared("src")
    return Demand(l2=shared.tile_bytes, shared=shared.tile_bytes) if shared else Demand()


def _store(op: Bound) -> Demand:
    tile, place = op.tile("src"), op.operands.get("dst")
    if tile is None:
        return Demand()
    count = elements(tile.layout)
    if isinstance(place, SharedType):
        return Demand(shared=2 * count, alu=count / 2, memory=count / 2, loads=0, barriers=1)
    # To global memory: packed in pairs, exchanged within a quad, eight columns per access.
    return Demand(alu=count * 1.5, memory=count / 2 + count / 8, l2=2 * count, shuffles=4)


def _copy(op: Bound) -> Demand:
    shared = op.shared("src")
    if shared is None:
        return Demand()
    chunks = shared.tile_bytes / 16
    return Demand(shared=shared.tile_bytes, l2=shared.tile_bytes, memory=2 * chunks, alu=4 * chunks)


def _store_rows(op: Bound) -> Demand:
    row = op.tile("row")
    rows = float(row.layout.rows) if row else 0.0
    return Demand(memory=rows, l2=4 * rows, alu=2 * rows)


def _barrier(op: Bound) -> Demand:
    return Demand(barriers=1)


def _nothing(op: Bound) -> Demand:
    return Demand()


def _count_kept(op: Bound) -> Demand:
    """One warp: every lane a column of 32, all rows below each other."""
    columns = op.number("C")
    count = op.number("R") * columns
    return _over(op, Lanes(count, count, columns), (ROW, COLUMN))


def _put_bits(op: Bound) -> Demand:
    """The predicate of every pair, a vote for each 32 of them, four words written per row."""
    pairs = op.number("R") * op.number("C")
    return _count_kept(op) + Demand(alu=pairs, memory=op.number("R"), l2=16 * op.number("R"))


def _load_bits(op: Bound) -> Demand:
    """Four words per row, loaded by the four threads that share it; whoever takes them waits."""
    bits = op.result
    if not isinstance(bits, TileType):
        return Demand()
    lanes = lanes_of(bits.layout, op.threads)
    return Demand(memory=lanes.row, l2=16 * float(bits.layout.rows))


def _keep_bits(op: Bound) -> Demand:
    """The bits waited for; a test and a choice each."""
    tile = op.tile("tile")
    if tile is None:
        return Demand()
    lanes = lanes_of(tile.layout, op.threads)
    return Demand(alu=2 * lanes.element, loads=1, arithmetic=2)


def _extreme(op: Bound) -> Demand:
    count = op.number("N")
    return _over(op, Lanes(count, count, count), (ELEMENT,)) + Demand(shuffles=5)


def _compact(op: Bound) -> Demand:
    lanes = Lanes(32.0, 32.0, 32.0)
    return _over(op, lanes, (ELEMENT,)) + Demand(shuffles=1, memory=32.0, l2=128.0)


def _over(op: Bound, lanes: Lanes, kinds: tuple[str, ...]) -> Demand:
    """A lambda of whole coordinates by one warp; eight rounds of 32 lanes wait for one path."""
    f = op.operands.get("f")
    if not isinstance(f, LambdaType):
        return Demand()
    varies = {n: frozenset((kind,)) for n, kind in zip(f.node.params, kinds, strict=False)}
    each = expression_cost(f.node.body, varies, frozenset(varies), lanes, lines=1.0)
    rounds = max(1.0, lanes.element / 32 / 8)
    # After the first round the loads hit L1.
    return replace(
        each, arithmetic=each.arithmetic * rounds, special=each.special * rounds,
        loads=min(each.loads, 1.0), near=each.loads * (rounds - 1),
    )  # fmt: skip


def _claim(op: Bound) -> Demand:
    """One atomic in L2, by one thread, and its answer waited for."""
    return Demand(memory=1, l2=32, loads=1)


def _fetch(op: Bound) -> Demand:
    """A shared word, by each thread."""
    return Demand(memory=op.threads, shared=4 * op.threads)


def _put(op: Bound) -> Demand:
    return Demand(memory=1.0, l2=32.0)


def _other(op: Bound) -> Demand:
    """An op without a rule of its own: a lambda over a tile per element, else bytes of tiles."""
    found = [v for v in op.operands.values() if isinstance(v, LambdaType)]
    tiles = tuple(v for v in op.operands.values() if isinstance(v, TileType))
    if found and tiles:
        return _each(op, found[0].node, tiles, True)
    shared = [v for v in op.operands.values() if isinstance(v, SharedType)]
    moved = float(sum(s.tile_bytes for s in shared))
    return Demand(shared=moved, alu=op.threads, arithmetic=1)


_RULES: Mapping[str, Callable[[Bound], Demand]] = {
    "map": _map, "keep": _map, "zeros": _zeros, "fill": _zeros, "row_max": _row_max,
    "row_sum": _row_sum, "row_reduce": _row_reduce, "convert": _convert, "load_rows": _load_vector,
    "load_cols": _load_vector, "load_tile": _nothing, "gemm": _gemm, "gemm_async": _gemm_async,
    "gemm_async_init": _gemm_async, "copy_async": _copy_async, "tma_load": _tma_load,
    "copy_async_rows": _copy_async, "tma_load_rows": _tma_load,
    "tma_store": _tma_store, "store": _store, "copy": _copy, "store_rows": _store_rows,
    "sync": _barrier, "named_sync": _barrier, "wait": _barrier, "wait_async": _barrier,
    "named_arrive": _nothing, "arrive": _nothing, "arrive_expect": _nothing,
    "mbarrier_init": _nothing, "fence_barrier_init": _nothing, "commit_async": _nothing,
    "mma_fence": _nothing, "mma_commit": _nothing, "mma_wait": _nothing, "fence_async": _nothing,
    "tma_commit": _nothing, "tma_wait": _nothing, "prefetch_map": _nothing,
    "raise_registers": _nothing, "lower_registers": _nothing,
    "count_kept": _count_kept, "class_of": _count_kept, "put_bits": _put_bits,
    "load_bits": _load_bits, "keep_bits": _keep_bits, "least": _extreme, "greatest": _extreme,
    "compact": _compact, "put": _put,
    "claim": _claim, "post": _nothing, "fetch": _fetch,
}  # fmt: skip
