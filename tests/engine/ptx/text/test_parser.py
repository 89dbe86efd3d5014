"""The parser on small texts: operands, floats, guards, labels, and where lines were inlined."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from engine.ptx.findings import Finding
from engine.ptx.syntax import Address, Immediate, Instruction, Pair, Register, Sink, Vector
from engine.ptx.text.parser import parse_module

TEXT = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u32 b)
{{
	.reg .pred %p<4>;
	.reg .b32 %r<8>;
	.reg .f32 %f<8>;
	.reg .b64 %d<4>;
{}
	ret;
}}
"""


def code(body: str) -> tuple[Instruction, ...]:
    return parse_module(TEXT.format(body), "k.ptx").kernels["k"].code


def test_operands_of_every_form() -> None:
    (at, *_) = code("\t@!%p1 ld.global.v2.u32 {%r1, _}, [%d1+-8];")
    assert at.guard == Register("%p1", negated=True)
    assert at.opcode == "ld.global.v2.u32" and at.type == "u32"
    assert at.operands == (Vector((Register("%r1"), Sink())), Address(Register("%d1"), -8))
    (at, *_) = code("\tsetp.lt.or.s32 %p0|%p2, %r1, -5, !%p1;")
    assert at.operands[0] == Pair(Register("%p0"), Register("%p2"))
    assert at.operands[2] == Immediate(-5) and at.operands[3] == Register("%p1", negated=True)


def test_parameters_lie_where_the_isa_puts_them() -> None:
    kernel = parse_module(TEXT.format(""), "k").kernels["k"]
    assert [(p.name, p.offset, p.size) for p in kernel.parameters] == [("a", 0, 8), ("b", 8, 4)]


def test_a_label_stands_before_the_next_instruction() -> None:
    text = "\tmov.u32 %r0, 1;\nhere:\n\tadd.s32 %r0, %r0, 1;\n\tbra here;"
    assert parse_module(TEXT.format(text), "k").kernels["k"].labels["here"] == 1


@given(st.floats(width=32))
def test_floats_are_kept_as_their_bits(value: float) -> None:
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    (at, *_) = code(f"\tmov.f32 %f0, 0f{bits:08X};")
    assert at.operands[1] == Immediate(bits, 4)


@given(st.integers(-(2**31), 2**31 - 1))
def test_whole_numbers(value: int) -> None:
    (at, *_) = code(f"\tmov.u32 %r0, {value};")
    assert at.operands[1] == Immediate(value)


INLINED = """	.loc 1 20 3
	add.s32 %r0, %r0, 1;
	.loc 2 7 1, function_name $L__info_string0, inlined_at 1 30 5
	st.shared.u32 [%r1], %r0;
"""


def test_a_finding_is_told_at_the_persons_own_line() -> None:
    files = '\t.file 1 "/home/me/kernel.cu"\n\t.file 2 "/opt/cutlass/copy.h"\n'
    code = parse_module(TEXT.format(INLINED) + files, "k").kernels["k"].code
    assert str(code[0].source) == "/home/me/kernel.cu:20"
    inner = code[1].source
    assert inner is not None
    assert [str(at) for at in inner.chain()] == ["/opt/cutlass/copy.h:7", "/home/me/kernel.cu:30"]
    assert str(inner.within("/home/me")) == "/home/me/kernel.cu:30"
    told = str(Finding("race", code[0], "words", (0,), (3,)))
    assert told == "/home/me/kernel.cu:20: race: words (block 0, thread 3)"


def test_a_file_has_the_name_that_the_person_gave_it() -> None:
    """nvcc writes bytes beyond ASCII as octal numbers."""
    text = '\t.file 1 "a b/n\\303\\244me \\"1\\".cu"\n'
    text += ".visible .entry k()\n{\n\t.loc 1 7 1\n\tret;\n}\n"
    (at,) = parse_module(text).kernels["k"].code
    assert str(at.source) == 'a b/n\u00e4me "1".cu:7'
