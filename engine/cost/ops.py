"""What each op of a kernel asks of the units, from its operands' types.

An op's declaration names the function here (`cost`) that says it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.cost.demand import Demand
from engine.cost.scalar import COLUMN, ELEMENT, ROW, Lanes, Varies, expression_cost, read_late
from engine.cuir.ops import OPS
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
# of its own, whose critical path is waited for (kernels/include/cubridge/sm90_tile.cuh): where it
# gives elements, and where it masks them. Whole tiles elsewhere.
BLOCKS: Mapping[tuple[str, bool], int] = {("wgmma", True): 8, ("wgmma", False): 4}
# Of a branch of a condition: instructions of an element, and its latency once. Counted in machine
# code (12 of an element in three kernels).
LATE = Demand(alu=9, other=3, arithmetic=8, near=1, branches=1)


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

    The four threads of a quad hold a row's values each (of lines, one thread of every eight
    columns); every thread the columns that it has.
    """
    base = layout.base or layout
    lanes = base.cols / 8.0 if base.family.name == "lines" else 4.0
    rows, columns = base.rows * lanes, threads * base.cols / lanes
    if layout.role == "row":
        return Lanes(rows, rows, rows)
    if layout.role == "col":
        return Lanes(columns, columns, columns)
    return Lanes(elements(layout), rows, columns)


def cost(op: Bound) -> Demand:
    """The op's demand, by all threads that execute it together: what its declaration names."""
    rule: Callable[[Bound], Demand] = globals()[OPS[op.name].cost]
    return rule(op)


# --- registers -----------------------------------------------------------------------------------


def _each(op: Bound, mapped: bool) -> Demand:
    """A lambda over the first tile: its instructions, and its latency once per block of code."""
    tiles, given = op.operands["tiles"], op.operands["f"]
    if not isinstance(tiles, tuple) or not isinstance(given, LambdaType):
        return Demand()
    first, f = tiles[0], given.node
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
    blocks = code_blocks(op, tiles, first.layout, mapped)
    if not mapped and blocks > 1.0 and read_late(f.body):
        # In a block of code no argument is read ahead of a branch: one for every element, which
        # reads them anew, and the place where the warp meets again.
        branch = LATE.times(lanes.element)
        made = made + replace(branch, arithmetic=LATE.arithmetic, near=LATE.near)
    columns = sum(map(in_memory, tiles[1:]))
    if columns:
        # Loaded where it is taken up: its bounds, its address of 64 bits, with a stride that comes
        # from constant memory, an access that hits L1; the two rows that a thread holds share it.
        half = columns * lanes.element / 2
        made = made + Demand(memory=3 * half, alu=9 * half, fp32=4 * half, near=2 * columns)
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


def code_blocks(op: Bound, tiles: tuple[Type, ...], layout: Layout, mapped: bool) -> float:
    """How many blocks of code an op over a tile is, one after another."""
    step = BLOCKS.get((layout.family.name, mapped))
    if step is None or layout.role in ("row", "col"):
        return 1.0
    plain = len(tiles) == 2 and isinstance(tiles[1], TileType) and tiles[1].layout.role == "row"
    if mapped and plain and op.operands.get("at") is None:
        return 1.0  # the softmax's own: scheduled as a whole
    return math.ceil(elements(layout) / op.threads / step)


def mapped(op: Bound) -> Demand:
    return _each(op, True)


def masked(op: Bound) -> Demand:
    return _each(op, False)


def row_max(op: Bound) -> Demand:
    tile = op.tile("tile")
    if tile is None:
        return Demand()
    rows = lanes_of(tile.layout, op.threads).row
    return Demand(alu=elements(tile.layout) + 2 * rows, memory=2 * rows, shuffles=2, arithmetic=8)


def row_sum(op: Bound) -> Demand:
    tile = op.tile("tile")
    return Demand(fp32=elements(tile.layout), arithmetic=4) if tile else Demand()


def row_reduce(op: Bound) -> Demand:
    row = op.tile("row")
    if row is None:
        return Demand()
    rows = lanes_of(row.layout, op.threads).element
    return Demand(fp32=2 * rows, memory=2 * rows, shuffles=2)


def convert(op: Bound) -> Demand:
    tile = op.tile("tile")  # one packing conversion for two elements
    return Demand(alu=elements(tile.layout) / 2, arithmetic=1) if tile else Demand()


def load_vector(op: Bound) -> Demand:
    source = op.operands.get("tile")
    size = 4 if not isinstance(source, GmemTileType) else DTYPES[source.view.dtype].size
    lanes = op.threads * 2.0
    if in_memory(op.result):
        return Demand()  # loaded by the ops that take it up
    return Demand(memory=lanes, alu=2 * lanes, l2=size * lanes / 4, loads=1)


def load_lines(op: Bound) -> Demand:
    """16 bytes in one access, all of a thread's accesses before the first is waited for. Turned
    rows are on their way to L1 already."""
    source, lines, turn = op.operands.get("tile"), op.result, op.operands.get("turn")
    if not isinstance(source, GmemTileType) or not isinstance(lines, TileType):
        return Demand()
    size = DTYPES[source.view.dtype].size * elements(lines.layout)
    issued = Demand(memory=size / 16, alu=size / 4)
    if isinstance(turn, Scalar) and turn.value == 0:
        return issued + Demand(l2=size, dram=size, far=1)
    return issued + Demand(near=1)


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


def gemm(op: Bound) -> Demand:
    """mma.sync: every warp loads its rows of the left and all of the right operand."""
    flops, _, left, right = _product(op)
    acc = op.tile("acc")
    warps = (acc.layout.warps or 1) if acc else 1
    loaded = left + warps * right
    instructions = flops / (2 * 16 * 8 * 16) + loaded / 512
    return Demand(mma=flops, shared=loaded, other=32 * instructions, matmuls=1)


def gemm_async(op: Bound) -> Demand:
    """wgmma: the tensor cores read shared operands themselves, the right one once per 64 rows."""
    flops, rows, left, right = _product(op)
    return Demand(wgmma=flops, operands=left + right * math.ceil(rows / 64), matmuls=1)


# --- movement and order --------------------------------------------------------------------------


def copy_async(op: Bound) -> Demand:
    shared = op.shared("dst")
    if shared is None:
        return Demand()
    chunks = shared.tile_bytes / 16
    return Demand(shared=shared.tile_bytes, l2=shared.tile_bytes, memory=chunks, alu=2 * chunks)


def tma_load(op: Bound) -> Demand:
    shared = op.shared("dst")
    return Demand(l2=shared.tile_bytes, shared=shared.tile_bytes) if shared else Demand()


def tma_store(op: Bound) -> Demand:
    shared = op.shared("src")
    return Demand(l2=shared.tile_bytes, shared=shared.tile_bytes) if shared else Demand()


def store(op: Bound) -> Demand:
    tile, place = op.tile("src"), op.operands.get("dst")
    if tile is None:
        return Demand()
    count = elements(tile.layout)
    if isinstance(place, SharedType) and tile.layout.family.unit == "warpgroup":
        return Demand(shared=2 * count, alu=count / 2, memory=count / 8)
    if isinstance(place, SharedType):
        return Demand(shared=2 * count, alu=count / 2, memory=count / 2, loads=0, barriers=1)
    if tile.layout.family.name == "lines":  # packed in pairs, eight columns per access
        return Demand(alu=count, memory=count / 8, l2=2 * count, dram=2 * count)
    # To global memory: packed in pairs, exchanged within a quad, eight columns per access.
    return Demand(alu=count * 1.5, memory=count / 2 + count / 8, l2=2 * count, shuffles=4)


def load_shared(op: Bound) -> Demand:
    """Four matrices of 8 x 8 in one access of a warp, and an instruction to widen each element."""
    if not isinstance(op.result, TileType):
        return Demand()
    count = elements(op.result.layout)
    return Demand(shared=2 * count, alu=count, memory=count / 8, near=1)


def copy(op: Bound) -> Demand:
    shared = op.shared("src")
    if shared is None:
        return Demand()
    chunks = shared.tile_bytes / 16
    return Demand(shared=shared.tile_bytes, l2=shared.tile_bytes, memory=2 * chunks, alu=4 * chunks)


def store_rows(op: Bound) -> Demand:
    row = op.tile("row")
    rows = float(row.layout.rows) if row else 0.0
    return Demand(memory=rows, l2=4 * rows, alu=2 * rows)


def barrier(op: Bound) -> Demand:
    return Demand(barriers=1)


def nothing(op: Bound) -> Demand:
    """Beside what others do. Of zeros: registers are cleared in pairs, and gemm_async_init needs
    none."""
    return Demand()


def count_kept(op: Bound) -> Demand:
    """One warp: every lane a column of 32, all rows below each other."""
    columns = op.number("C")
    count = op.number("R") * columns
    return _over(op, Lanes(count, count, columns), (ROW, COLUMN))


def put_bits(op: Bound) -> Demand:
    """The predicate of every pair, a vote for each 32 of them, four words written per row."""
    pairs = op.number("R") * op.number("C")
    return count_kept(op) + Demand(alu=pairs, memory=op.number("R"), l2=16 * op.number("R"))


def load_bits(op: Bound) -> Demand:
    """Four words per row, loaded by the four threads that share it; whoever takes them waits."""
    bits = op.result
    if not isinstance(bits, TileType):
        return Demand()
    lanes = lanes_of(bits.layout, op.threads)
    return Demand(memory=lanes.row, l2=16 * float(bits.layout.rows))


def keep_bits(op: Bound) -> Demand:
    """The bits waited for; a test and a choice each."""
    tile = op.tile("tile")
    if tile is None:
        return Demand()
    lanes = lanes_of(tile.layout, op.threads)
    return Demand(alu=2 * lanes.element, loads=1, arithmetic=2)


def extreme(op: Bound) -> Demand:
    count = op.number("N")
    return _over(op, Lanes(count, count, count), (ELEMENT,)) + Demand(shuffles=5)


def compact(op: Bound) -> Demand:
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


def claim(op: Bound) -> Demand:
    """One atomic in L2, by one thread, and its answer waited for."""
    return Demand(memory=1, l2=32, loads=1)


def fetch(op: Bound) -> Demand:
    """A shared word, by each thread."""
    return Demand(memory=op.threads, shared=4 * op.threads)


def put(op: Bound) -> Demand:
    return Demand(memory=1.0, l2=32.0)
