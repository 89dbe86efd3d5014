"""The host's side: tensor maps, launches, facts about the device."""

from __future__ import annotations

from functools import partial

from engine.cuir.ops.spec import Effect, RuleContext, Trait, Who, mismatch, op
from engine.cuir.types import (
    DTypeValue,
    FieldType,
    ListType,
    MapType,
    Scalar,
    Type,
    Unknown,
)  # fmt: skip


def _tensor_map(
    context: RuleContext, dtype: Type, field: Type, dims: Type, box: Type, swizzle: Type,
    *, ranged: bool = False,
) -> Type:  # fmt: skip
    if not (isinstance(dtype, DTypeValue) and isinstance(field, FieldType)):
        return Unknown()
    if not (isinstance(dims, ListType) and isinstance(box, ListType)):
        return Unknown()
    if field.kind != "tensor":
        mismatch(f"a tensor map needs a tensor field, and {field.name} is {field.kind}")
    if len(box.items) != 2:
        mismatch("the box of a tensor map is [rows, columns]")
    sizes = tuple(
        int(i.value) if isinstance(i, Scalar) and i.value is not None else None for i in box.items
    )
    span = swizzle.value if isinstance(swizzle, Scalar) else None
    if span is not None and span not in (0, 32, 64, 128):
        mismatch(f"a swizzle spans 0, 32, 64 or 128 bytes, not {span}")
    if span and sizes[1] is not None:
        wide = sizes[1] * dtype.dtype.size
        if wide > span and wide % span:
            mismatch(
                f"a box row of {wide} bytes is no multiple of the swizzle's {span}", "misaligned"
            )
    if any(s is not None and not 1 <= s <= 256 for s in sizes):
        mismatch(f"a box side has 1 to 256 elements, not {sizes[0]} x {sizes[1]}")
    return MapType(field.name, dtype.dtype.name, len(dims.items), sizes, ranged)


def _run(
    context: RuleContext, kernel: Type, args: Type, grid: Type, threads: Type, shared: Type
) -> Type:
    if isinstance(grid, ListType) and not 1 <= len(grid.items) <= 3:
        mismatch("a grid has 1 to 3 sizes", "launch_mismatch")
    limit = context.arch.threads_block
    count = threads.value if isinstance(threads, Scalar) else None
    if count is not None and (count % 32 or not 32 <= count <= limit):
        mismatch(
            f"a block has 32 to {limit} threads in whole warps, not {count}", "launch_mismatch"
        )
    if isinstance(shared, Scalar) and shared.value is not None:
        most = context.arch.shared_block
        if shared.value > most:
            mismatch(
                f"{shared.value} bytes of shared memory per block, and {context.arch.name} "
                f"has {most}",
                "shared_over_limit",
            )
    return Scalar("i32")


def _int(context: RuleContext, *operands: Type) -> Type:
    return Scalar("i32")


def _shared_limit(context: RuleContext) -> Type:
    return Scalar("i32", context.arch.shared_block)


OPS = (
    op(
        "tensor_map[T: dtype](field: field, dims: list, *, box: coords, swizzle: int)", "host",
        rule=_tensor_map, execute="host:tensor_map", who=Who.HOST,
        kind="tensor_map",
        lift="tensor_map<{T}, {rows}, {columns}>({field:tensor}, {dims...})"
            " -> tensor_map[{T}]({field}, [{dims...}], box=[{rows}, {columns}], swizzle=128)",
        lower="tensor_map[{T}]({field}, [{dims...}], box=[{rows}, {cols}], swizzle=128)"
            " -> tensor_map<{T}, {rows}, {cols}>({field}, {dims...})",
        doc="A tensor map of a field: sizes outermost first, strides from the argument, the box "
            "[rows, columns] of one copy, and the swizzle in bytes. Rows wider than the swizzle "
            "are moved as that many boxes side by side.",
    ),
    op(
        "row_map[T: dtype](field: field, dims: list, *, box: coords, swizzle: int)", "host",
        rule=partial(_tensor_map, ranged=True), execute="host:tensor_map", who=Who.HOST,
        kind="row_map",
        lift="row_map<{T}, {rows}, {columns}>({field:tensor}, {dims...})"
            " -> row_map[{T}]({field}, [{dims...}], box=[{rows}, {columns}], swizzle=128)",
        lower="row_map[{T}]({field}, [{dims...}], box=[{rows}, {cols}], swizzle=128)"
            " -> row_map<{T}, {rows}, {cols}>({field}, {dims...})",
        doc="tensor_map for tma_load_rows: what takes a range of a box's rows.",
    ),
    op(
        "run(kernel: kernel, args: list, *, grid: coords, threads: int, shared: int)", "host",
        rule=_run, execute="host:run", who=Who.HOST, effects=(Effect.LAUNCHES,),
        kind="status", cost="nothing",
        lift="run<{kernel:kernel}>"
            "(dim3({grid...}), {threads}, {shared}, {stream:stream}, {args...}) -> "
            "run({kernel}, [{args...}], grid=[{grid...}], threads={threads}, shared={shared})",
        lower="run({kernel}, [{args...}], grid=[{grid...}], threads={threads}, shared={shared})"
            " -> run<{kernel}>(dim3({grid...}), {threads}, {shared}, {stream}, {args...})",
        doc="Launches a kernel; launches run in stream order.",
    ),
    op(
        "shared_limit()", "host", rule=_shared_limit, execute="host:shared_limit", who=Who.HOST,
        anywhere=True,
        kind="i32", lift="shared_limit()", lower="shared_limit()",
        traits=(Trait.BUILT,), between=(0, 2**18),
        doc="Shared memory that a block of this arch can ask for, in bytes.",
    ),
    op(
        "sm_count()", "host", rule=_int, execute="host:sm_count", who=Who.HOST,
        kind="i32", lift="sm_count()", lower="sm_count()",
        traits=(Trait.STEADY,), between=(1, 1024),
        doc="Multiprocessors of the device.",
    ),
)  # fmt: skip
