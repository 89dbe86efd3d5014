"""Matrix multiplications, synchronous and asynchronous."""

from __future__ import annotations

from engine.cuir.ops.registers import in_registers
from engine.cuir.ops.spec import (
    Effect,
    OpSpec,
    Pending,
    Proxy,
    RuleContext,
    Trait,
    TypeRule,
    Who,
    async_tiles,
    mismatch,
    no_primitive,
    nothing,
    op,
)
from engine.cuir.types import Nothing, Scalar, SharedType, TileType, Type


def _product(context: RuleContext, name: str, acc: Type, a: Type, b: Type, family: str) -> Type:
    """The rule of every matmul: acc[M, N] with a[M, K] and b[K, N] of one 2-byte element type."""
    if not isinstance(acc, TileType):
        return Nothing()
    if acc.layout.role != "acc" or acc.layout.family.name != family or acc.dtype != "f32":
        mismatch(f"{name} accumulates into an f32 {family}_acc tile, not {acc}", "layout_mismatch")
    in_registers(context, name, acc)
    rows, inner, dtype = acc.layout.rows, None, None
    if isinstance(a, TileType):
        wanted = acc.layout.family.a
        if a.layout.kind != wanted:
            mismatch(
                f"{name}: the left operand in registers must have layout {wanted}, not "
                f"{a.layout.kind}; convert(tile, T, a_operand) comes between two matmuls",
                "layout_mismatch",
            )
        if a.layout.rows != rows or a.layout.warps != acc.layout.warps:
            mismatch(
                f"{name}: left operand {a.layout} does not fit accumulator {acc.layout}",
                "layout_mismatch",
            )
        inner, dtype = a.layout.cols, a.dtype
    elif isinstance(a, SharedType):
        if a.rows != rows:
            mismatch(f"{name}: left operand has {a.rows} rows and the accumulator {rows}")
        inner, dtype = a.cols, a.dtype
    if dtype not in ("f16", "bf16", None):
        mismatch(f"{name} multiplies f16 or bf16, not {dtype}")
    if isinstance(b, SharedType):
        k, n = (b.cols, b.rows) if b.transposed else (b.rows, b.cols)
        if n != acc.layout.cols:
            mismatch(f"{name}: right operand has {n} columns and the accumulator {acc.layout.cols}")
        if inner is not None and k != inner:
            mismatch(f"{name}: left operand has {inner} columns and right operand {k} rows")
        if dtype is not None and b.dtype != dtype:
            mismatch(f"{name}: operands of {dtype} and {b.dtype}")
    return Nothing()


def _gemm(context: RuleContext, acc: Type, a: Type, b: Type) -> Type:
    return _product(context, "gemm", acc, a, b, "mma")


def _gemm_async(context: RuleContext, acc: Type, a: Type, b: Type) -> Type:
    return _async_product(context, "gemm_async", acc, a, b)


def _gemm_async_init(context: RuleContext, acc: Type, a: Type, b: Type) -> Type:
    return _async_product(context, "gemm_async_init", acc, a, b)


def _async_product(context: RuleContext, name: str, acc: Type, a: Type, b: Type) -> Type:
    async_tiles(context, name, a, b)
    if isinstance(a, SharedType) and isinstance(b, SharedType) and not b.transposed:
        no_primitive(
            context,
            f"{name}: beside a left operand in shared memory the right one is a transpose; only a "
            "left operand in registers goes with rows as they lie",
        )
    return _product(context, name, acc, a, b, "wgmma")


def _wait(context: RuleContext, n: Type) -> Type:
    if isinstance(n, Scalar) and n.value is not None and not 0 <= n.value <= 7:
        mismatch("mma_wait leaves 0 to 7 groups in flight", "bad_value")
    return Nothing()


def _async_matmul(name: str, rule: TypeRule, doc: str) -> OpSpec:
    return op(
        f"{name}(acc: reg, a: left, b: matrix)", "matmul", rule=rule, execute=f"matmul:{name}",
        lift=f"{name}({{acc:tile}}, {{a}}, {{b:shared}})", lower=f"{name}({{acc}}, {{a}}, {{b}})",
        cost="gemm_async", doc=doc, who=Who.UNIT, proxy=Proxy.ASYNC, pending=Pending.MMA,
        effects=(Effect.READS_SHARED, Effect.WRITES_REGISTERS), needs="wgmma",
    )  # fmt: skip


OPS = (
    op(
        "gemm(acc: reg, a: left, b: matrix)", "matmul", rule=_gemm, execute="matmul:gemm",
        who=Who.PART, proxy=Proxy.GENERIC, needs="mma_sync",
        effects=(Effect.READS_SHARED, Effect.WRITES_REGISTERS),
        cost="gemm", lift="gemm({acc:tile}, {a}, {b:shared})", lower="gemm({acc}, {a}, {b})",
        doc="acc += a @ b, done when the op is done. `a` is a shared tile or a register tile in "
            "the operand layout, `b` a shared tile or its transpose.",
    ),
    op(
        "mma_fence()", "matmul", rule=nothing, execute="matmul:mma_fence", who=Who.UNIT,
        needs="wgmma",
        cost="nothing", lift="mma_fence()", lower="mma_fence()",
        ptx="wgmma.fence.sync.aligned -> mma_fence()",
        doc="Orders this unit's writes to registers before the asynchronous matmuls that follow: "
            "needed before the first one and after registers it uses were written.",
    ),
    _async_matmul(
        "gemm_async", _gemm_async,
        "Starts acc += a @ b. Shared operands, register operands and the accumulator are held "
            "until mma_wait ends the group that mma_commit closed. Where `a` is a shared tile, `b` "
            "is a transpose.",
    ),
    _async_matmul(
        "gemm_async_init", _gemm_async_init, "Starts acc = a @ b, whatever acc held.",
    ),
    op(
        "mma_commit()", "matmul", rule=nothing, execute="matmul:mma_commit", who=Who.UNIT,
        needs="wgmma",
        cost="nothing", lift="mma_commit()", lower="mma_commit()",
        ptx="wgmma.commit_group.sync.aligned -> mma_commit()", traits=(Trait.COMMITS,),
        doc="Closes the group of asynchronous matmuls since the last commit.",
    ),
    op(
        "mma_wait(n: int)", "matmul", rule=_wait, execute="matmul:mma_wait", who=Who.UNIT,
        effects=(Effect.SYNCS,), needs="wgmma",
        cost="nothing", lift="mma_wait<{n}>() -> mma_wait({n})",
        lower="mma_wait({n}) -> mma_wait<{n}>()",
        ptx="wgmma.wait_group.sync.aligned {n} -> mma_wait({n})",
        traits=(Trait.ORDERS,),
        doc="Waits until at most the n newest groups are in flight.",
    ),
)  # fmt: skip
