"""Names for places: ids, views of global tensors, shared tiles, barriers."""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.ops.spec import Effect, RuleContext, Trait, Who, mismatch, nothing, op
from engine.cuir.types import (
    WORD_PITCH,
    BarriersType,
    DTypeValue,
    FieldType,
    GmemType,
    Scalar,
    SharedType,
    Type,
    Unknown,
    WordsType,
)  # fmt: skip

I32 = Scalar("i32")
MATMUL_STEP = 16  # columns that one step of a matmul contracts, in elements of 2 bytes


def _known(value: Type) -> int | None:
    return int(value.value) if isinstance(value, Scalar) and value.value is not None else None


def _int(context: RuleContext, *operands: Type) -> Type:
    return I32


def _axis(context: RuleContext, axis: Type) -> Type:
    if _known(axis) not in (0, 1, 2, None):
        mismatch("the axis is 0, 1 or 2")
    return I32


def _bool(context: RuleContext, *operands: Type) -> Type:
    return Scalar("bool")


def _gmem(context: RuleContext, dtype: Type, field: Type, dims: tuple[Type, ...]) -> Type:
    if isinstance(dtype, Unknown) or isinstance(field, Unknown):
        return Unknown()
    assert isinstance(dtype, DTypeValue) and isinstance(field, FieldType)
    if field.kind != "tensor":
        mismatch(f"gmem views a tensor field, and {field.name} is {field.kind}")
    if not 1 <= len(dims) <= 4:
        mismatch(f"a view has 1 to 4 dimensions, not {len(dims)}")
    return GmemType(field.name, dtype.dtype.name, len(dims))


def _shared(
    context: RuleContext, dtype: Type, rows: Type, cols: Type, offset: Type, stages: Type | None
) -> Type:
    sizes = (_known(rows), _known(cols))
    if not isinstance(dtype, DTypeValue) or None in sizes:
        return Unknown()
    count = None if stages is None else _known(stages)
    if min(s for s in sizes if s is not None) <= 0 or (count is not None and count <= 0):
        mismatch(f"a shared tile needs sizes above 0, not {sizes[0]} x {sizes[1]}")
    start = _known(offset)
    if start is not None and start % 16:
        mismatch(f"a shared tile starts at a multiple of 16 bytes, not {start}", "misaligned")
    made = SharedType(dtype.dtype.name, sizes[0] or 0, sizes[1] or 0, start, count)
    if start is not None:
        end = start + made.bytes
        limit = context.arch.shared_block
        if start < 0 or end > limit:
            mismatch(
                f"the tile ends at byte {end}, and a block of {context.arch.name} has at most "
                f"{limit} bytes of shared memory",
                "shared_over_limit",
            )
    return made


def _one_shared(context: RuleContext, dtype: Type, rows: Type, cols: Type, offset: Type) -> Type:
    return _shared(context, dtype, rows, cols, offset, None)


def _staged_shared(
    context: RuleContext, dtype: Type, stages: Type, rows: Type, cols: Type, offset: Type
) -> Type:
    return _shared(context, dtype, rows, cols, offset, stages)


def _transpose(context: RuleContext, tile: Type) -> Type:
    if not isinstance(tile, SharedType):
        return Unknown()
    return replace(tile, transposed=True)


def _columns(context: RuleContext, count: Type, tile: Type) -> Type:
    wanted = _known(count)
    if not isinstance(tile, SharedType) or wanted is None:
        return Unknown()
    if not 0 < wanted <= tile.cols or wanted % MATMUL_STEP:
        mismatch(
            f"the first columns are a multiple of {MATMUL_STEP} up to the tile's {tile.cols}, not "
            f"{wanted}"
        )
    return tile if wanted == tile.cols else replace(tile, cols=wanted, pitch=tile.cols)


def _barriers(context: RuleContext, count: Type, offset: Type) -> Type:
    start = _known(offset)
    if start is not None and start % 8:
        mismatch(f"an mbarrier starts at a multiple of 8 bytes, not {start}", "misaligned")
    return BarriersType(_known(count), offset=start)


def _words(context: RuleContext, count: Type, offset: Type) -> Type:
    size, start = _known(count), _known(offset)
    if size is not None and size <= 0:
        mismatch(f"there is at least one shared word, not {size}", "bad_value")
    if start is not None and start % WORD_PITCH:
        mismatch(f"shared words start at a multiple of {WORD_PITCH} bytes, not {start}",
                 "misaligned")  # fmt: skip
    made = WordsType(size, offset=start)
    limit = context.arch.shared_block
    if start is not None and not 0 <= start <= limit - made.bytes:
        mismatch(
            f"the words end at byte {start + made.bytes}, and a block of {context.arch.name} has "
            f"at most {limit} bytes of shared memory",
            "shared_over_limit",
        )
    return made


def _sizeof(context: RuleContext, dtype: Type) -> Type:
    return Scalar("i32", dtype.dtype.size) if isinstance(dtype, DTypeValue) else I32


def _same_type(context: RuleContext, a: Type, b: Type) -> Type:
    if isinstance(a, DTypeValue) and isinstance(b, DTypeValue):
        return Scalar("bool", a.dtype == b.dtype)
    return Scalar("bool")


OPS = (
    op(
        "block_id(axis: int)", "ids", rule=_axis, execute="views:block_id", who=Who.ANY,
        kind="u32",
        lift=(
            "blockIdx.x -> block_id(0)",
            "blockIdx.y -> block_id(1)",
            "blockIdx.z -> block_id(2)",
        ),
        lower=(
            "block_id(0) -> blockIdx.x",
            "block_id(1) -> blockIdx.y",
            "block_id(2) -> blockIdx.z",
        ),
        traits=(Trait.STEADY, Trait.BLOCK),
        doc="The block's place in the grid along axis 0, 1 or 2.",
    ),
    op(
        "grid_dim(axis: int)", "ids", rule=_axis, execute="views:grid_dim", who=Who.ANY,
        kind="u32",
        lift=("gridDim.x -> grid_dim(0)", "gridDim.y -> grid_dim(1)", "gridDim.z -> grid_dim(2)"),
        lower=("grid_dim(0) -> gridDim.x", "grid_dim(1) -> gridDim.y", "grid_dim(2) -> gridDim.z"),
        traits=(Trait.STEADY,),
        doc="Blocks in the grid along axis 0, 1 or 2.",
    ),
    op(
        "warpgroup_id()", "ids", rule=_int, execute="views:warpgroup_id", who=Who.ANY,
        kind="i32", lift="warpgroup_id()", lower="warpgroup_id()",
        traits=(Trait.STEADY, Trait.WARPGROUP), between=(0, 8),
        doc="Which warpgroup of the block this is, counted from 0.",
    ),
    op(
        "elect()", "ids", rule=_bool, execute="views:elect", who=Who.ANY,
        kind="bool", lift="elect()", lower="elect()",
        between=(0, 1),
        traits=(Trait.ELECTS,),
        doc="True in exactly one thread of the unit (the warpgroup, or the block where no "
            "warpgroups are used). What `if elect():` holds is done by that one thread. The "
            "question stands alone or beside `and`, without an else, or in a name that is given it "
            "once.",
    ),
    op(
        "gmem[T: dtype](field: field, dims: int...)", "views", rule=_gmem, execute="views:gmem",
        who=Who.ANY,
        kind="view:{T}", lift="gmem<{T}>({field:tensor}, {dims...})",
        lower="gmem[{T}]({field}, {dims...})",
        doc="A view of a tensor field with the given shape, outermost first; strides come with the "
            "argument, offsets are 64-bit. `V[b, h, row:]` is the tile of rows from `row` on (all "
            "columns; a vector where the rows are the last dimension); rows outside the shape are "
            "absent. `V[b, h, i, j]` is one element, 0 outside.",
    ),
    op(
        "shared[T: dtype, R: int, C: int](offset: int)", "views", rule=_one_shared,
        execute="views:shared", who=Who.ANY,
        kind="shared", lift="shared<{T}, {R}, {C}>({offset})",
        lower="shared[{T}, {R}, {C}]({offset})",
        doc="A tile of R rows and C columns in dynamic shared memory at a byte offset. Tiles "
            "overlap only where their offsets say so. The swizzle is the primitives' own (see "
            "Shared tiles).",
    ),
    op(
        "shared_stages[T: dtype, S: int, R: int, C: int](offset: int)", "views",
        rule=_staged_shared, execute="views:shared_stages", who=Who.ANY,
        kind="stages", lift="shared_stages<{T}, {S}, {R}, {C}>({offset})",
        lower="shared_stages[{T}, {S}, {R}, {C}]({offset})",
        doc="S tiles one after another; `tiles[s]` is one of them.",
    ),
    op(
        "columns[C: int](tile: shared)", "views", rule=_columns, execute="views:columns",
        who=Who.ANY, needs="wgmma",
        kind="shared", lift="columns<{n}>({s:shared})", lower="columns[{n}]({s})",
        doc="The first C columns of the same shared tile, for a matmul that leaves out what rows "
            "are padded with: a multiple of 16.",
    ),
    op(
        "transpose(tile: narrow)", "views", rule=_transpose, execute="views:transpose",
        who=Who.ANY,
        kind="shared", lift="transpose({s:shared})", lower="transpose({s})",
        doc="The same shared tile read with rows and columns exchanged.",
    ),
    op(
        "mbarriers[S: int](offset: int)", "views", rule=_barriers, execute="views:mbarriers",
        who=Who.ANY, needs="mbarrier",
        kind="barriers", lift="mbarriers<{n}>({offset})", lower="mbarriers[{n}]({offset})",
        doc="S mbarriers of 8 bytes each in shared memory; `bars[s]` is one of them.",
    ),
    op(
        "shared_words[S: int](offset: int)", "views", rule=_words, execute="views:shared_words",
        who=Who.ANY,
        kind="words", lift="shared_words<{n}>({offset})", lower="shared_words[{n}]({offset})",
        doc="S whole numbers (i32) in shared memory, each in 16 bytes of its own: what one part "
            "tells the others. `words[s]` is one of them.",
    ),
    op(
        "sizeof(T: sized)", "ids", rule=_sizeof, execute="views:sizeof", who=Who.ANY,
        anywhere=True,
        kind="u64", lift="sizeof({T})", lower="sizeof({T})",
        traits=(Trait.BUILT,), between=(1, 8),
        doc="Bytes of one element.",
    ),
    op(
        "same_type(A: sized, B: sized)", "ids", rule=_same_type, execute="views:same_type",
        who=Who.ANY, anywhere=True,
        kind="bool", lift="std::is_same_v<{A}, {B}> -> same_type({A}, {B})",
        lower="same_type({A}, {B}) -> std::is_same_v<{A}, {B}>",
        traits=(Trait.BUILT,), between=(0, 1),
        doc="Whether two element types are one.",
    ),
    op(
        "sync()", "synchronisation", rule=nothing, execute="pipeline:sync", who=Who.BLOCK,
        effects=(Effect.SYNCS,),
        cost="barrier", lift=("sync()", "__syncthreads() -> sync()"), lower="sync()",
        ptx=("bar.sync 0 -> sync()", "barrier.sync 0 -> sync()"),
        traits=(Trait.ORDERS,),
        doc="All threads of the block wait for each other; what they wrote is visible after it. "
            "A copy that has not landed is not.",
    ),
)  # fmt: skip
