"""Products that go into one sum round once with it, as ptxas fuses them."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ptx.launch import Launch, run
from engine.ptx.memory import GLOBAL, HALF, Tensor
from engine.ptx.text.parser import parse_module

TEXT = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 target)
{{
	.reg .pred %p<4>;
	.reg .f32 %f<16>;
	.reg .b32 %r<2>;
	.reg .b64 %d<4>;
	ld.param.u64 %d1, [target];
	mov.u32 %r0, %tid.x;
	mul.wide.u32 %d2, %r0, 4;
	add.s64 %d0, %d1, %d2;
	mov.f32 %f1, 0f{:08X};
	mov.f32 %f2, 0f{:08X};
	mov.f32 %f3, 0f{:08X};
{}
	st.global.f32 [%d0], %f9;
	ret;
}}
"""
MASKED, SCALE = -1e38, 0.18033688  # a finite number for what is masked, and log2(e) / 8


def bits(value: float) -> int:
    return int(struct.unpack("I", struct.pack("f", value))[0])


def module(body: str, *values: float):
    lines = "\n".join(f"\t{line}" for line in body.strip().splitlines())
    return parse_module(TEXT.format(*(bits(v) for v in values or (1.0, 2.0, 3.0)), lines), "k")


def result(body: str, *values: float) -> np.float32:
    target = np.zeros(32, np.uint32)
    address = (GLOBAL + HALF).to_bytes(8, "little")
    done = run(
        module(body, *values),
        Launch("k", (1, 1, 1), (32, 1, 1), 0, address),
        [Tensor.output("target", target)],
    )
    assert not done.findings
    return target.view(np.float32)[0]


def opcodes(body: str) -> list[str]:
    return [at.opcode for at in module(body).kernels["k"].code if at.type == "f32"]


FUSED = {
    "mul.f32 %f4, %f1, %f2;\nadd.f32 %f9, %f4, %f3;": lambda x, y, z: x * y + z,
    "mul.f32 %f4, %f1, %f2;\nadd.f32 %f9, %f3, %f4;": lambda x, y, z: x * y + z,
    "mul.f32 %f4, %f1, %f2;\nsub.f32 %f9, %f4, %f3;": lambda x, y, z: x * y - z,
    "mul.f32 %f4, %f1, %f2;\nsub.f32 %f9, %f3, %f4;": lambda x, y, z: z - x * y,
    "mul.f32 %f4, %f1, %f2;\nsub.f32 %f9, %f4, 0f40400000;": lambda x, y, z: x * y - 3.0,
    "mul.f32 %f4, %f1, 0f40400000;\nsub.f32 %f9, %f3, %f4;": lambda x, y, z: z - x * 3.0,
}


@pytest.mark.parametrize("body", FUSED)
@given(st.tuples(*3 * [st.floats(-1e4, 1e4, width=32)]))
def test_a_fused_sum_rounds_once(body, values):
    wide = FUSED[body](*map(np.float64, values))  # a product of two f32 is exact in it
    found = result(body, *values)
    assert abs(float(found) - wide) <= np.spacing(np.float32(abs(wide))) / 2 + 1e-45


NOT_FUSED = [
    "mul.rn.f32 %f4, %f1, %f2;\nadd.f32 %f9, %f4, %f3;",
    "mul.f32 %f4, %f1, %f2;\nadd.rn.f32 %f9, %f4, %f3;",
    "mul.ftz.f32 %f4, %f1, %f2;\nadd.f32 %f9, %f4, %f3;",
    "mul.f32 %f4, %f1, %f2;\nadd.f32 %f9, %f4, %f3;\nadd.f32 %f9, %f9, %f4;",  # read twice
    "mul.f32 %f4, %f1, %f2;\nmov.f32 %f1, %f3;\nadd.f32 %f9, %f4, %f3;",  # its factor is gone
    "mul.f32 %f1, %f1, %f2;\nadd.f32 %f9, %f1, %f3;",
    "mul.f32 %f4, %f1, %f2;\nbra L;\nL:\nadd.f32 %f9, %f4, %f3;",  # in another block
    "mul.f32 %f4, %f1, %f2;\n@%p1 add.f32 %f9, %f4, %f3;",
    "mul.sat.f32 %f4, %f1, %f2;\nadd.f32 %f9, %f4, %f3;",
]


@pytest.mark.parametrize("body", NOT_FUSED)
def test_what_is_not_fused(body):
    assert not any(code.startswith("fma") for code in opcodes(body))


def test_a_large_number_less_itself_is_what_its_rounding_took_away():
    """A row whose keys are all masked by a number, with a maximum that is scaled by itself."""
    apart = "mul.rn.f32 %f4, %f1, %f2;\nsub.rn.f32 %f9, %f4, %f3;"
    top = float(np.float32(MASKED) * np.float32(SCALE))
    assert result(apart, MASKED, SCALE, top) == 0
    together = result(apart.replace(".rn", ""), MASKED, SCALE, top)
    assert abs(together) > 1e29
