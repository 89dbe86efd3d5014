"""Barriers, bulk copies and register reallocation: what a warp-specialised pipeline is made of."""

from __future__ import annotations

from engine.cuir.ops.spec import (
    Effect,
    Pending,
    Proxy,
    RuleContext,
    Trait,
    Who,
    async_tiles,
    mismatch,
    nothing,
    op,
)
from engine.cuir.types import ListType, MapType, Nothing, Scalar, SharedType, Type


def _value(operand: Type) -> int | None:
    known = isinstance(operand, Scalar) and operand.value is not None
    return int(operand.value) if known else None  # type: ignore[union-attr, arg-type]


def _named(context: RuleContext, id: Type, threads: Type) -> Type:
    number, count = _value(id), _value(threads)
    limit = context.arch.named_barriers
    if number is not None and not 1 <= number < limit:
        mismatch(
            f"named barriers are 1 to {limit - 1} (0 is sync()'s), not {number}",
            "barriers_over_limit",
        )
    if count is not None and (count <= 0 or count % 32):
        mismatch(
            f"a named barrier counts whole warps of 32 threads, not {count} threads",
            "wrong_named_count",
        )
    if count is not None and context.threads is not None and count > context.threads:
        mismatch(
            f"a named barrier for {count} threads in a block of {context.threads}",
            "wrong_named_count",
        )
    return Nothing()


def _bulk(
    context: RuleContext, name: str, map: Type, coords: Type, tile: Type, ranged: bool = False
) -> Type:
    """`ranged`: a range of the box's rows is moved."""
    async_tiles(context, name, tile)
    if not isinstance(map, MapType) or not isinstance(tile, SharedType):
        return Nothing()
    if map.ranged != ranged:
        mismatch(f"{name} takes what {'row_map' if ranged else 'tensor_map'} makes")
    if isinstance(coords, ListType) and len(coords.items) != map.rank:
        mismatch(
            f"{name}: {len(coords.items)} coordinates for a map of rank {map.rank} "
            "(innermost first)"
        )
    if map.dtype != tile.dtype:
        mismatch(f"{name}: the map holds {map.dtype} and the shared tile {tile.dtype}")
    if len(map.box) == 2:
        rows, cols = map.box
        if rows is not None and rows != tile.rows:
            mismatch(f"{name}: a box of {rows} rows and a shared tile of {tile.rows}")
        if cols is not None and (cols > tile.cols or tile.cols % cols):
            mismatch(f"{name}: boxes of {cols} columns do not tile {tile.cols} columns")
    return Nothing()


def _tma_load(context: RuleContext, dst: Type, map: Type, coords: Type, bar: Type) -> Type:
    return _bulk(context, "tma_load", map, coords, dst)


def _tma_load_rows(
    context: RuleContext, dst: Type, map: Type, coords: Type, bar: Type, begin: Type, end: Type
) -> Type:
    return _bulk(context, "tma_load_rows", map, coords, dst, ranged=True)


def _tma_store(context: RuleContext, map: Type, coords: Type, src: Type) -> Type:
    return _bulk(context, "tma_store", map, coords, src)


def _registers(context: RuleContext, n: Type) -> Type:
    count = _value(n)
    if count is not None and (count % 8 or not 24 <= count <= 256):
        mismatch(
            f"setmaxnreg takes 24 to 256 registers in steps of 8, not {count}",
            "registers_over_file",
        )
    return Nothing()


def _count(context: RuleContext, bar: Type, n: Type) -> Type:
    count = _value(n)
    if count is not None and not 1 <= count < 1 << 20:
        mismatch(f"an mbarrier counts 1 to {(1 << 20) - 1}, not {count}", "bad_value")
    return Nothing()


OPS = (
    op(
        "mbarrier_init(bar: barrier, count: int)", "pipeline", rule=_count,
        execute="pipeline:mbarrier_init", who=Who.THREAD, effects=(Effect.WRITES_SHARED,),
        needs="mbarrier",
        cost="nothing", lift="mbarrier_init({bar:barrier}, {count})",
        lower="mbarrier_init({bar}, {count})",
        ptx="mbarrier.init.shared::cta.b64 [{bar:barrier}], {count}"
            " -> mbarrier_init({bar}, {count})",
        doc="Sets a barrier up for `count` arrivals per phase. Others may use it after "
            "fence_barrier_init and a sync.",
    ),
    op(
        "fence_barrier_init()", "pipeline", rule=nothing, execute="pipeline:fence_barrier_init",
        who=Who.THREAD, needs="mbarrier_tx",
        cost="nothing", lift="fence_barrier_init()", lower="fence_barrier_init()",
        ptx="fence.mbarrier_init.release.cluster -> fence_barrier_init()",
        doc="Makes barriers that this thread set up visible to the copy engine.",
    ),
    op(
        "arrive(bar: barrier)", "pipeline", rule=nothing, execute="pipeline:arrive",
        who=Who.THREAD, effects=(Effect.SYNCS,), needs="mbarrier",
        cost="nothing", lift="arrive({bar:barrier})", lower="arrive({bar})",
        ptx="mbarrier.arrive.shared::cta.b64 _, [{bar:barrier}] -> arrive({bar})",
        doc="Each thread that executes it arrives once; it releases what the thread did before.",
    ),
    op(
        "arrive_expect(bar: barrier, bytes: int)", "pipeline", rule=_count,
        execute="pipeline:arrive_expect", who=Who.THREAD, effects=(Effect.SYNCS,),
        needs="mbarrier_tx",
        cost="nothing", lift="arrive_expect({bar:barrier}, {bytes})",
        lower="arrive_expect({bar}, {bytes})",
        ptx="mbarrier.arrive.expect_tx.shared::cta.b64 _, [{bar:barrier}], {bytes}"
            " -> arrive_expect({bar}, {bytes})",
        doc="Arrives once and makes the phase wait for `bytes` more bytes of bulk copies.",
    ),
    op(
        "wait(bar: barrier, parity: int)", "pipeline", rule=nothing, execute="pipeline:wait",
        who=Who.PART, effects=(Effect.SYNCS,), needs="mbarrier",
        cost="barrier", lift="wait({bar:barrier}, {parity})", lower="wait({bar}, {parity})",
        traits=(Trait.ORDERS,),
        doc="Waits until the phase of this parity (0 or 1) has completed: it passes while the "
            "current phase has the other parity, so parity 1 passes on a fresh barrier. What was "
            "done before the arrivals, and the bytes of the phase, are visible after it.",
    ),
    op(
        "named_sync(id: int, threads: int)", "pipeline", rule=_named,
        execute="pipeline:named_sync", who=Who.PART, effects=(Effect.SYNCS,),
        cost="barrier", lift="named_sync({id}, {threads})", lower="named_sync({id}, {threads})",
        ptx="bar.sync {id}, {threads} -> named_sync({id}, {threads})",
        traits=(Trait.ORDERS, Trait.NAMED,),
        doc="Arrives at named barrier `id` and waits until `threads` threads have arrived "
            "(bar.sync). Every user of an id gives the same number.",
    ),
    op(
        "named_arrive(id: int, threads: int)", "pipeline", rule=_named,
        execute="pipeline:named_arrive", who=Who.PART, effects=(Effect.SYNCS,),
        cost="nothing", lift="named_arrive({id}, {threads})", lower="named_arrive({id}, {threads})",
        ptx="bar.arrive {id}, {threads} -> named_arrive({id}, {threads})",
        traits=(Trait.NAMED,),
        doc="Arrives at named barrier `id` without waiting (bar.arrive).",
    ),
    op(
        "fence_async()", "pipeline", rule=nothing, execute="pipeline:fence_async", who=Who.PART,
        needs="tma",
        cost="nothing", lift="fence_async()", lower="fence_async()",
        ptx=(
            "fence.proxy.async.shared::cta -> fence_async()",
            "fence.proxy.async -> fence_async()",
        ),
        traits=(Trait.ORDERS,),
        doc="Makes this thread's writes to shared memory visible to the async proxy (asynchronous "
            "matmuls and bulk copies), once a barrier has ordered them.",
    ),
    op(
        "tma_load(dst: shared, map: map, coords: coords, bar: barrier)", "pipeline",
        rule=_tma_load, execute="pipeline:tma_load", who=Who.THREAD, proxy=Proxy.ASYNC,
        pending=Pending.BULK_LOAD, effects=(Effect.WRITES_SHARED, Effect.READS_GLOBAL),
        needs="tma",
        cost="tma_load",
        lift="tma_load({dst:shared}, {map:tensor_map}, { {c...} }, {bar:barrier})"
            " -> tma_load({dst}, {map}, [{c...}], {bar})",
        lower="tma_load({dst}, {map}, [{c...}], {bar}) -> tma_load({dst}, {map}, {{c...}}, {bar})",
        doc="The copy engine fills the shared tile from the element at `coords` on (innermost "
            "coordinate first); what lies outside the tensor is zero. All bytes of the tile count "
            "towards the barrier's phase. A tile wider than the map's box takes several boxes.",
    ),
    op(
        "tma_load_rows(dst: shared, map: map, coords: coords, bar: barrier, begin: int, end: int)",
        "pipeline",
        rule=_tma_load_rows, execute="pipeline:tma_load_rows", who=Who.THREAD, proxy=Proxy.ASYNC,
        pending=Pending.BULK_LOAD, effects=(Effect.WRITES_SHARED, Effect.READS_GLOBAL),
        needs="tma",
        cost="tma_load",
        lift="tma_load_rows({dst:shared}, {map:row_map}, { {c...} }, {bar:barrier}, {begin}, {end})"
            " -> tma_load_rows({dst}, {map}, [{c...}], {bar}, {begin}, {end})",
        lower="tma_load_rows({dst}, {map}, [{c...}], {bar}, {begin}, {end})"
            " -> tma_load_rows({dst}, {map}, {{c...}}, {bar}, {begin}, {end})",
        doc="tma_load of the tensor's rows from `begin` (0 at least) to the one before `end` (at "
            "most as many as there are); the tile's other rows are zeros, whatever the tensor "
            "holds there. As fast as tma_load, but in boxes of eight rows and of one where the "
            "range ends inside the tile and begins there too, or ends before the tensor has as "
            "many rows as a tile. The map is a row_map.",
    ),
    op(
        "tma_store(map: map, coords: coords, src: shared)", "pipeline", rule=_tma_store,
        execute="pipeline:tma_store", who=Who.THREAD, proxy=Proxy.ASYNC,
        pending=Pending.BULK_STORE, effects=(Effect.READS_SHARED, Effect.WRITES_GLOBAL),
        needs="tma",
        cost="tma_store",
        lift="tma_store({map:tensor_map}, { {c...} }, {src:shared})"
            " -> tma_store({map}, [{c...}], {src})",
        lower="tma_store({map}, [{c...}], {src}) -> tma_store({map}, {{c...}}, {src})",
        doc="The copy engine writes the shared tile to the tensor from `coords` on; what lies "
            "outside is dropped.",
    ),
    op(
        "tma_commit()", "pipeline", rule=nothing, execute="pipeline:tma_commit", who=Who.THREAD,
        needs="tma",
        cost="nothing", lift="tma_commit()", lower="tma_commit()",
        ptx="cp.async.bulk.commit_group -> tma_commit()", traits=(Trait.COMMITS,),
        doc="Closes the group of bulk stores started since the last commit.",
    ),
    op(
        "tma_wait(n: int)", "pipeline", rule=nothing, execute="pipeline:tma_wait", who=Who.THREAD,
        effects=(Effect.SYNCS,), needs="tma",
        cost="nothing", lift="tma_wait<{n}>() -> tma_wait({n})",
        lower="tma_wait({n}) -> tma_wait<{n}>()",
        ptx="cp.async.bulk.wait_group.read {n} -> tma_wait({n})",
        traits=(Trait.ORDERS,),
        doc="Waits until the sources of all but the n newest groups of bulk stores have been read.",
    ),
    op(
        "prefetch_map(map: map)", "pipeline", rule=nothing, execute="pipeline:prefetch_map",
        who=Who.THREAD, needs="tma",
        cost="nothing", lift="prefetch_map({map:tensor_map})", lower="prefetch_map({map})",
        doc="Fetches a tensor map into the cache.",
    ),
    op(
        "raise_registers(n: int)", "pipeline", rule=_registers,
        execute="allocation:raise_registers", who=Who.UNIT, effects=(Effect.SYNCS,),
        needs="setmaxnreg",
        cost="nothing", lift="raise_registers<{n}>() -> raise_registers({n})",
        lower="raise_registers({n}) -> raise_registers<{n}>()",
        ptx="setmaxnreg.inc.sync.aligned.u32 {n} -> raise_registers({n})",
        doc="The warpgroup waits until its threads can hold n registers each.",
    ),
    op(
        "lower_registers(n: int)", "pipeline", rule=_registers,
        execute="allocation:lower_registers", who=Who.UNIT, effects=(Effect.SYNCS,),
        needs="setmaxnreg",
        cost="nothing", lift="lower_registers<{n}>() -> lower_registers({n})",
        lower="lower_registers({n}) -> lower_registers<{n}>()",
        ptx="setmaxnreg.dec.sync.aligned.u32 {n} -> lower_registers({n})",
        doc="The warpgroup gives back all but n registers per thread.",
    ),
)  # fmt: skip
