"""Faults in the source never lift to the same module."""

from __future__ import annotations

import pytest

from engine.cuir.canonical import canonical
from engine.errors import LiftError
from engine.lift import lift_source, load_package
from tests.engine.lift.mutations import Mutation, sample
from tests.engine.lift.sources import BINDING, kernel_bytes

KERNELS = {"flash_fwd_sm80": "sm_80", "flash_fwd_sm90": "sm_90a"}
FAULTS = [
    pytest.param(name, fault, id=f"{name}-{fault.kind}-{fault.line}-{at}")
    for name in KERNELS
    for at, fault in enumerate(sample(kernel_bytes(name), 120, seed=2505))
]
# A fault in a branch that one head size does not take shows in another.
ORIGINAL = {
    (name, binding["D"]): (
        binding,
        canonical(lift_source(kernel_bytes(name), binding, arch).module),
    )
    for name, arch in KERNELS.items()
    for binding in sorted(load_package(name).specialisations, key=lambda b: b != BINDING)
    if binding["T"] == BINDING["T"]
}


def is_seen(name: str, source: bytes) -> bool:
    """Whether some specialisation of the faulty source lifts to another module, or not at all."""
    for (kernel, _), (binding, original) in ORIGINAL.items():
        if kernel != name:
            continue
        try:
            if canonical(lift_source(source, binding, KERNELS[name]).module) != original:
                return True
        except LiftError as error:
            assert error.where is not None and error.where.line is not None and error.fix
            return True
    return False


@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_a_fault_changes_the_lift(name: str, fault: Mutation):
    assert is_seen(name, fault.source), str(fault)


# What the issue asks for by name, each at a known place.
NAMED = {
    "bound": (b"step < tiles", b"step <= tiles"),
    "first step": (b"int step = 0", b"int step = 1"),
    "key bound": (b"j < args.Nk", b"j <= args.Nk"),
    "full tile": (b"(n + 1) * BN <= args.Nk", b"n * BN <= args.Nk"),
    "row stride": (b"% q_tiles * BM", b"% q_tiles * BN"),
    "head stride": (b"/ q_tiles % args.Hq", b"/ q_tiles % args.Hkv"),
    "group size": (b"h / (args.Hq / args.Hkv)", b"h % (args.Hq / args.Hkv)"),
    "batch and head": (b"Q.tile(b, h, q0)", b"Q.tile(h, b, q0)"),
    "query head of keys": (b"K.tile(b, h_kv, next * BN)", b"K.tile(b, h, next * BN)"),
    "dimensions": (b"args.k, args.B, args.Hkv, args.Nk", b"args.k, args.B, args.Nk, args.Hkv"),
    "stage count": (b"constexpr int STAGES = 2", b"constexpr int STAGES = 3"),
    "stage offset": (b"(BM + STAGES * BN) * D", b"(BM + BN) * D"),
    "stage index": (b"sV[step % STAGES]", b"sV[(step + 1) % STAGES]"),
    "wait depth": (b"wait_async<STAGES - 2>", b"wait_async<STAGES - 1>"),
    "last wait": (b"wait_async<0>();", b""),
    "scale": (b"args.scale * LOG2E", b"args.scale"),
    "scale sign": (b"(prev - now) * scale_log2", b"(now - prev) * scale_log2"),
    "lse scale": (b"top * args.scale + log", b"top + log"),
    "lse base": (b"log(sum)", b"log2(sum)"),
    "operands": (b"gemm(o, p, sV", b"gemm(p, o, sV"),
    "transposition": (b"transpose(sK[step % STAGES])", b"sK[step % STAGES]"),
    "rescale": (b"    o = map(o, alpha, [&](float x, float a) { return x * a; });\n", b""),
    "sum before max": (b"l = row_sum(s, l)", b"l = row_sum(s, m)"),
    "missing reduce": (b"  l = row_reduce(l);\n", b""),
    "empty rows": (b"sum == 0.0f ? 0.0f : rcp", b"sum == 1.0f ? 0.0f : rcp"),
    "type of P": (b"to_operand<T>(s)", b"to_operand<f16>(s)"),
    "type of LSE": (b"gmem<float>", b"gmem<T>"),
    "tile of the loop": (b"MmaAcc<BM, BN, WARPS>", b"MmaAcc<BN, BM, WARPS>"),
    "threads": (b"__launch_bounds__(WARPS * 32)", b"__launch_bounds__(WARPS * 64)"),
    "threads of the launch": (b"dim3(blocks), WARPS * 32", b"dim3(blocks), WARPS * 16"),
    "grid": (b"* args.Hq * args.B;", b"* args.Hkv * args.B;"),
    "tile arguments": (b"tile_count<BM, BN>(args, b", b"tile_count<BN, BM>(args, b"),
    "field order": (b"q, k, v, o, lse;", b"k, q, v, o, lse;"),
    "field type": (b"  float scale;", b"  int scale;"),
    "narrowing": (b"const float scale_log2", b"const int scale_log2"),
    "lambda of ints": (b"[&](float x, float r)", b"[&](int x, float r)"),
    "lambda of floats": (b"[&](int i, int j)", b"[&](float i, float j)"),
    "coordinates": (b"at(q0, n * BN)", b"at(q0, n)"),
    "branch of the mask": (b"if (!tile_full", b"if (tile_full"),
    "result type": (b"__device__ bool tile_full", b"__device__ int tile_full"),
    "template kind": (b"<typename T, int D, int BM", b"<typename T, bool D, int BM"),
    "element type of a load": (b"gmem<T>(args.v", b"gmem<f16>(args.v"),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_a_named_fault_changes_the_lift(name: str):
    source = kernel_bytes("flash_fwd_sm80")
    old, new = NAMED[name]
    assert old in source, "the kernel no longer says this: choose the fault's place anew"
    faulty = source.replace(old, new)
    assert is_seen("flash_fwd_sm80", faulty)


def test_a_missing_sync_is_a_missing_op():
    source = kernel_bytes("flash_fwd_sm80")
    count = source.count(b"sync();")
    for at in range(count):
        parts = source.split(b"sync();")
        faulty = b"sync();".join(parts[: at + 1]) + b"sync();".join([b"", *parts[at + 1 :]])[7:]
        assert is_seen("flash_fwd_sm80", faulty)
