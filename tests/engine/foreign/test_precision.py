"""How finely kernels compute, and how far off their LSE may be by that."""

from __future__ import annotations

import math

import pytest
import torch

from engine.foreign.numbers.precision import UNIT, unit_roundoff
from engine.ptx.syntax import Instruction, Kernel
from engine.spec.reference.oracle import arithmetic_of_lse, expected
from tests.engine.transfer.recipes import recipe


def kernel_of(*opcodes: str) -> Kernel:
    split = [opcode.split(".") for opcode in opcodes]
    code = tuple(
        Instruction(n, tuple(m), (), None, line, None) for line, (n, *m) in enumerate(split)
    )
    return Kernel("k", (), {}, (), code, {})


@pytest.mark.parametrize(
    ("opcode", "element", "coarsest"),
    [
        ("fma.rn.f32", "f32", "f32"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "bf16", "f32"),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "bf16", "f32"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "f32", "bf16"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "f32", "tf32"),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "f16", "f16"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", "f16", "f32"),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "f16", "f32"),
        ("mul.bf16x2", "bf16", "bf16"),
        ("cvt.rn.bf16x2.f32", "bf16", "f32"),
        ("max.bf16x2", "bf16", "f32"),
    ],
)
def test_the_coarsest_arithmetic_is_read_off_the_instructions(
    opcode: str, element: str, coarsest: str
) -> None:
    assert unit_roundoff([kernel_of("add.f32", opcode)], element) == UNIT[coarsest]


@pytest.mark.parametrize("base", ["e", "2"])
@pytest.mark.parametrize("size", [1.0, 10.0, 100.0])
def test_lse_in_float32_is_within_the_bound_and_little_more_is_not(base: str, size: float) -> None:
    torch.manual_seed(0)
    made = recipe("x * 0.125", lse="2" if base == "2" else None)
    given = {name: torch.randn(2, 2, 40, 64) for name in "qkv"}
    given["q"] *= size
    wide = {name: t.double() for name, t in given.items()}
    said = expected(made, wide)
    assert said.lse is not None
    bound = arithmetic_of_lse(made, wide, UNIT["f32"])
    assert bound.shape == said.lse.shape
    single = torch.logsumexp((given["q"] @ given["k"].transpose(-1, -2)) * 0.125, -1).double()
    error = (single / (math.log(2) if base == "2" else 1) - said.lse).abs()
    assert bool((error <= bound).all())
    # About 1e-5 of the scores, and no more.
    assert float((bound / (1 + said.lse.abs())).max()) < 3e-5
    coarse = torch.logsumexp(
        (given["q"].bfloat16() @ given["k"].bfloat16().transpose(-1, -2)).double() * 0.125, -1
    )
    coarse = (coarse / (math.log(2) if base == "2" else 1) - said.lse).abs()
    assert bool((coarse > bound).any())
    assert bool((coarse <= arithmetic_of_lse(made, wide, UNIT["bf16"])).all())


def test_a_row_without_keys_and_a_kept_key_that_weighs_nothing_widen_no_bound() -> None:
    torch.manual_seed(0)
    given = {name: torch.randn(1, 1, 20, 16).double() for name in "qkv"}
    near = arithmetic_of_lse(recipe("x * 0.25", keep="j <= i - 5"), given, UNIT["f32"])
    far = recipe("x * 0.25 if j <= i - 5 else -1e9", keep="i != 3")
    bound = arithmetic_of_lse(far, given, UNIT["f32"])
    assert bool(near.isfinite().all()) and float(near.max()) < 2e-5
    assert float(bound[0, 0, 5:].max()) < 2e-5 and float(bound[0, 0, 3]) < 2e-5
    assert float(bound[0, 0, 4]) > 1.0  # of which every score is one of those
