"""Calls of a module's own functions: the text at each call computes what the function does."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from engine.errors import InputError
from engine.ptx.launch import Launch, Outcome, run
from engine.ptx.memory import GLOBAL, HALF, Tensor
from engine.ptx.text.parser import parse_module

# twice(x) = x <= 3 ? x : x + x; pair(p, k) = {p.a * k, twice(p.b)} through a buffer of its own.
TEXT = """.version 9.0
.target sm_90a
.address_size 64
.func  (.param .b32 func_retval0) twice(
	.param .b32 twice_param_0
)
{
	.reg .pred %p<2>;
	.reg .b32 %r<4>;
	.loc 1 3 1
	ld.param.u32 %r1, [twice_param_0];
	mov.u32 %r2, %r1;
	setp.gt.s32 %p1, %r1, 3;
	@!%p1 bra $L__BB0_1;
	add.s32 %r2, %r1, %r1;
$L__BB0_1:
	st.param.b32 [func_retval0+0], %r2;
	ret;
}
.func  (.param .align 4 .b8 func_retval0[8]) pair(
	.param .align 4 .b8 pair_param_0[8],
	.param .b32 pair_param_1
)
{
	.local .align 4 .b8 __local_depot1[4];
	.reg .b64 %SPL;
	.reg .pred %p<2>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<3>;
	mov.u64 %SPL, __local_depot1;
	mov.b64 %rd1, pair_param_0;
	ld.param.u32 %r1, [%rd1];
	ld.param.u32 %r2, [pair_param_0+4];
	ld.param.u32 %r3, [pair_param_1];
	mul.lo.s32 %r4, %r1, %r3;
	st.local.u32 [%SPL], %r4;
	{ // callseq 0, 0
	.reg .b32 temp_param_reg;
	.param .b32 param0;
	st.param.b32 [param0+0], %r2;
	.param .b32 retval0;
	call.uni (retval0), twice, ( param0 );
	ld.param.b32 %r5, [retval0+0];
	} // callseq 0
	ld.local.u32 %r6, [%SPL];
	st.param.b32 [func_retval0+0], %r6;
	st.param.b32 [func_retval0+4], %r5;
	ret;
}
.visible .entry k(.param .u64 out)
{
	.reg .pred %p<2>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	setp.lt.u32 %p1, %r1, 16;
	mov.u32 %r3, %r1;
	mov.u32 %r4, %r1;
	.loc 1 20 1
	CALLS
	add.s32 %r5, %r3, %r4;
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r5;
	ret;
}
	.file 1 "/home/me/kernel.cu"
"""
PAIR = """{
	.param .align 4 .b8 param0[8];
	st.param.b32 [param0+0], %r3;
	st.param.b32 [param0+4], %r4;
	.param .b32 param1;
	st.param.b32 [param1+0], NUMBER;
	.param .align 4 .b8 retval0[8];
	GUARDcall.uni (retval0), pair, (param0, param1);
	GUARDld.param.b32 %r3, [retval0+0];
	GUARDld.param.b32 %r4, [retval0+4];
	}
"""


def called(number: int, guard: str = "") -> str:
    return PAIR.replace("NUMBER", str(number)).replace("GUARD", guard)


def ran(calls: str) -> tuple[Outcome, list[int]]:
    """What 32 threads wrote."""
    module = parse_module(TEXT.replace("CALLS", calls), "k.ptx")
    out = np.zeros(32, np.int32)
    at = struct.pack("<Q", GLOBAL + HALF)
    launch = Launch("k", (1, 1, 1), (32, 1, 1), 0, at)
    return run(module, launch, [Tensor.output("o", out)]), out.tolist()


def twice(x: int) -> int:
    return x if x <= 3 else x + x


def test_each_call_has_registers_labels_and_memory_of_its_own() -> None:
    outcome, out = ran(called(5) + called(7))
    assert not outcome.findings
    assert out == [t * 35 + twice(twice(t)) for t in range(32)]


def test_a_guarded_call_is_made_by_the_lanes_whose_guard_holds() -> None:
    outcome, out = ran(called(5, "@%p1 "))
    assert not outcome.findings
    assert out == [t * 5 + twice(t) if t < 16 else 2 * t for t in range(32)]


def test_a_functions_line_says_where_it_was_called() -> None:
    code = parse_module(TEXT.replace("CALLS", called(5)), "k.ptx").kernels["k"].code
    inner = next(at.source for at in code if at.name == "setp" and str(at.source).endswith(":3"))
    assert inner is not None
    assert str(inner.chain()[-1]) == "/home/me/kernel.cu:20"


def test_a_function_that_calls_itself_is_refused() -> None:
    text = TEXT.replace("CALLS", called(5)).replace("twice, ( param0 )", "pair, (param0, param0)")
    with pytest.raises(InputError, match="pair calls itself"):
        parse_module(text, "k.ptx")


def test_a_function_that_nothing_calls_costs_nothing() -> None:
    text = TEXT.replace("CALLS", "").replace("add.s32 %r2, %r1, %r1;", "no PTX at all, [;")
    assert len(parse_module(text, "k.ptx").kernels["k"].code) == 10
