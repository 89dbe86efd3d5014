"""Tiles between global memory, shared memory and registers."""

from __future__ import annotations

from engine.cuir.ops.registers import in_registers, no_bits
from engine.cuir.ops.spec import (
    Effect,
    Pending,
    Proxy,
    RuleContext,
    Trait,
    Who,
    mismatch,
    no_primitive,
    nothing,
    op,
)
from engine.cuir.types import (
    DTYPES,
    GmemTileType,
    Layout,
    LayoutValue,
    Nothing,
    Scalar,
    SharedType,
    TileType,
    Type,
    Unknown,
)  # fmt: skip

PANEL = 64  # columns of two bytes that a swizzle permutes: 128 bytes


def _tile_and_shared(context: RuleContext, tile: Type, shared: Type) -> Type:
    if isinstance(tile, GmemTileType) and isinstance(shared, SharedType):
        if tile.view.dtype != shared.dtype:
            mismatch(
                f"{tile.view.field} holds {tile.view.dtype} and the shared tile {shared.dtype}"
            )
        if tile.vector and shared.rows != 1:
            mismatch(f"{tile} fits a shared tile of one row, not {shared}")
    return Nothing()


def _copy_async(context: RuleContext, dst: Type, src: Type) -> Type:
    return _tile_and_shared(context, src, dst)


def _copy_async_rows(context: RuleContext, dst: Type, src: Type, begin: Type, end: Type) -> Type:
    return _tile_and_shared(context, src, dst)


def _store(context: RuleContext, dst: Type, src: Type) -> Type:
    if not isinstance(src, TileType):
        return Nothing()
    _whole(src)
    if src.layout.role != "acc":
        mismatch(f"store writes an accumulator, not {src}", "layout_mismatch")
    no_bits("store", src)
    in_registers(context, "store", src, lines=True)
    family = src.layout.family
    if isinstance(dst, SharedType):
        if not family.stores_shared:
            no_primitive(context, f"store: {src.layout} goes straight to global memory")
        if (dst.rows, dst.cols) != (src.layout.rows, src.layout.cols):
            mismatch(f"store: {src.layout} does not fit {dst}")
    if isinstance(dst, GmemTileType):
        if dst.vector:
            mismatch(f"store needs a tile of rows, and {dst.view.field} gives a vector")
        if dst.view.dtype not in family.stores_global:
            wanted = " or ".join(family.stores_global)
            no_primitive(
                context,
                f"store: {src.layout} goes to global memory as {wanted}, and {dst.view.field} "
                f"holds {dst.view.dtype}" if wanted else
                f"store: {src.layout} goes to global memory by way of a shared tile: store there, "
                "sync, copy",
            )  # fmt: skip
    return Nothing()


def _load_shared(context: RuleContext, layout: Type, tile: Type, column: Type) -> Type:
    if not isinstance(layout, LayoutValue) or not isinstance(tile, SharedType):
        return Unknown()
    _panels("load_shared", layout.layout, tile, column)
    return TileType(layout.layout, "f32")


def _store_shared(context: RuleContext, dst: Type, column: Type, src: Type) -> Type:
    if isinstance(src, TileType) and isinstance(dst, SharedType):
        no_bits("store_shared", src)
        in_registers(context, "store_shared", src)
        _panels("store_shared", src.layout, dst, column)
    return Nothing()


def _panels(name: str, layout: Layout, tile: SharedType, column: Type) -> None:
    """Raises `Mismatch` where the layout's columns are no whole panels of the shared tile's."""
    if layout.role != "acc" or layout.family.unit != "warpgroup":
        mismatch(f"{name} takes a warpgroup's accumulator, not {layout}", "layout_mismatch")
    if layout.rows != tile.rows or layout.cols > tile.cols:
        mismatch(f"{name}: {layout} does not fit {tile}", "layout_mismatch")
    at = column.value if isinstance(column, Scalar) else None
    if layout.cols % PANEL or (at is not None and at % PANEL):
        mismatch(
            f"{name} takes columns by {PANEL}, which lie together in a shared tile, not "
            f"{layout.cols} of them{'' if at is None else f' from {at} on'}",
            "layout_mismatch",
        )


def _whole(row: TileType) -> None:
    if row.partial == "yes":
        mismatch("a share of a row sum is stored; row_reduce comes first", "partial_sum")


def _store_rows(context: RuleContext, dst: Type, row: Type) -> Type:
    if isinstance(row, TileType):
        if row.layout.role != "row":
            mismatch(f"store_rows writes a row vector, not {row}", "layout_mismatch")
        if row.dtype != "f32":
            no_primitive(context, f"store_rows writes f32 values, not {row}")
        _whole(row)
    if isinstance(dst, GmemTileType) and not dst.vector:
        mismatch(
            f"store_rows needs a vector, and {dst.view.field} gives a tile of rows: index all "
            "but its last dimension"
        )
    if isinstance(dst, GmemTileType) and DTYPES[dst.view.dtype].holds != "float":
        no_primitive(
            context, f"store_rows writes floats, and {dst.view.field} holds {dst.view.dtype}"
        )
    return Nothing()


OPS = (
    op(
        "copy_async(dst: shared, src: tile)", "movement", rule=_copy_async,
        execute="movement:copy_async", who=Who.PART, proxy=Proxy.GENERIC, pending=Pending.COPY,
        effects=(Effect.WRITES_SHARED, Effect.READS_GLOBAL), needs="cp_async",
        cost="copy_async", lift="copy_async({dst:shared}, {src:region})",
        lower="copy_async({dst}, {src})",
        doc="Each thread starts copying its share of the tile to shared memory (cp.async, 16 bytes "
            "at a time); rows outside the tensor are filled with zeros. It lands for the thread "
            "that issued it at wait_async, and for others after a sync that follows.",
    ),
    op(
        "copy_async_rows(dst: shared, src: tile, begin: int, end: int)", "movement",
        rule=_copy_async_rows, execute="movement:copy_async_rows", who=Who.PART,
        proxy=Proxy.GENERIC, pending=Pending.COPY,
        effects=(Effect.WRITES_SHARED, Effect.READS_GLOBAL), needs="cp_async",
        cost="copy_async", lift="copy_async_rows({dst:shared}, {src:region}, {begin}, {end})",
        lower="copy_async_rows({dst}, {src}, {begin}, {end})",
        doc="copy_async of the tensor's rows from `begin` to the one before `end`; the other rows "
            "of the tile are filled with zeros, whatever the tensor holds there.",
    ),
    op(
        "commit_async()", "movement", rule=nothing, execute="movement:commit_async", who=Who.PART,
        needs="cp_async",
        cost="nothing", lift="commit_async()", lower="commit_async()",
        ptx="cp.async.commit_group -> commit_async()", traits=(Trait.COMMITS,),
        doc="Closes the group of copies that this thread started since the last commit.",
    ),
    op(
        "wait_async(n: int)", "movement", rule=nothing, execute="movement:wait_async",
        who=Who.PART, effects=(Effect.SYNCS,), needs="cp_async",
        cost="barrier", lift="wait_async<{n}>() -> wait_async({n})",
        lower="wait_async({n}) -> wait_async<{n}>()",
        ptx="cp.async.wait_group {n} -> wait_async({n})",
        traits=(Trait.ORDERS,),
        doc="Waits until at most the n newest committed groups of this thread are in flight.",
    ),
    op(
        "store(dst: place, src: reg)", "movement", rule=_store, execute="movement:store",
        who=Who.PART, proxy=Proxy.GENERIC, effects=(Effect.WRITES_SHARED, Effect.WRITES_GLOBAL),
        cost="store", lift=("store({dst:shared}, {src:tile})", "store({dst:region}, {src:tile})"),
        lower="store({dst}, {src})",
        doc="An mma accumulator to a shared tile; a wgmma accumulator (as f16 or bf16) and lines "
            "straight to global memory, where rows and columns outside the tensor are dropped. "
            "Rounded to the element type there; a warp writes its own rows.",
    ),
    op(
        "load_shared[layout: layout](tile: shared, column: int)", "movement", rule=_load_shared,
        execute="movement:load_shared", who=Who.PART, proxy=Proxy.GENERIC,
        effects=(Effect.READS_SHARED,), needs="wgmma",
        kind="tile:f32", cost="load_shared",
        lift="load_shared<{L}>({src:shared}, {column})", lower="load_shared[{L}]({src}, {column})",
        doc="Columns of a shared tile from `column` on in the registers of a wgmma accumulator, "
            "widened: 64 of them or several times 64, which lie together there. A warp reads its "
            "own rows.",
    ),
    op(
        "store_shared(dst: shared, column: int, src: reg)", "movement", rule=_store_shared,
        execute="movement:store_shared", who=Who.PART, proxy=Proxy.GENERIC,
        effects=(Effect.WRITES_SHARED,), needs="wgmma",
        cost="store", lift="store_shared({dst:shared}, {column}, {src:tile})",
        lower="store_shared({dst}, {column}, {src})",
        doc="A wgmma accumulator, rounded to the element type, as the columns of a shared tile "
            "from `column` on, as load_shared takes them. A warp writes its own rows.",
    ),
    op(
        "copy(dst: tile, src: shared)", "movement", rule=_tile_and_shared,
        execute="movement:copy_out", who=Who.PART, proxy=Proxy.GENERIC,
        effects=(Effect.READS_SHARED, Effect.WRITES_GLOBAL),
        cost="copy", lift="copy({dst:region}, {src:shared})", lower="copy({dst}, {src})",
        doc="A shared tile to global memory; rows outside the tensor are dropped. Every thread "
            "copies other rows than its warp stored, so a sync comes first.",
    ),
    op(
        "store_rows(dst: tile, row: reg)", "movement", rule=_store_rows,
        execute="movement:store_rows", who=Who.PART, effects=(Effect.WRITES_GLOBAL,),
        cost="store_rows", lift="store_rows({dst:region}, {src:tile})",
        lower="store_rows({dst}, {src})",
        traits=(Trait.BY_ROW,),
        doc="A row vector to global memory; rows outside the tensor are dropped.",
    ),
)  # fmt: skip
