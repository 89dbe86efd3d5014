"""The lines that no case came to, of instructions written by hand."""

from __future__ import annotations

import pytest

from engine.foreign.numbers.never_run import NeverRun, never_run
from engine.foreign.numbers.where import Place
from engine.ptx.syntax import Immediate, Instruction, Kernel, Location, Module, Register, Vector

A, B = Register("%a"), Register("%b")
CALL = Location("a.cu", 9)


def instruction(
    number: int, source: Location | None, opcode: str = "add.s32", *operands: object
) -> Instruction:
    name, *modifiers = opcode.split(".")
    return Instruction(name, tuple(modifiers), operands, None, number, source)  # type: ignore[arg-type]


def left(code: list[Instruction], ran: set[int]) -> NeverRun:
    kernel = Kernel("k", (), {}, (), tuple(code), {})
    module = Module("sm_80", {"k": kernel}, ())
    return never_run(
        module,
        [("k", frozenset(ran))],
        lambda at: Place(str(at.source.chain()[-1] if at.source else at)),
    )


def test_lines_are_told_in_order_and_copies_of_one_that_ran_are_not() -> None:
    code = [
        instruction(n, Location("d/a.cu", line)) for n, line in enumerate((4, 5, 12, 3, 4, 13, 14))
    ]
    assert left(code, {0}).lines == "a.cu:3, 5, 12 to 14"
    assert left(code, {0}).making == ""
    assert left(code, set(range(7))) == NeverRun() and not NeverRun().remark
    assert left([instruction(0, None)], set()) == NeverRun()


def test_of_several_launches_one_that_comes_there_is_enough() -> None:
    code = [instruction(n, Location("a.cu", n + 1)) for n in range(3)]
    kernel = Kernel("k", (), {}, (), tuple(code), {})
    done = [("k", frozenset(r)) for r in ({0}, {0, 2})]
    found = never_run(Module("sm_80", {"k": kernel}, ()), done, lambda at: Place(str(at.source)))
    assert found.remark == "; never run: a.cu:2"


def test_a_call_that_never_ran_is_told_by_its_line_where_it_makes_something() -> None:
    """Another call of the same function ran, and so did the rest of the line."""
    for opcode, told in (("mma.sync.aligned.m16n8k16.f32", "a.cu:9"), ("add.s32", "")):
        other = Location("b.h", 2, Location("a.cu", 8))
        code = [instruction(0, CALL), instruction(1, other, opcode),
                instruction(2, Location("b.h", 2, CALL), opcode)]  # fmt: skip
        assert left(code, {0, 1}) == NeverRun(told, told)


@pytest.mark.parametrize(
    ("opcode", "operands", "makes"),
    [
        ("ex2.approx.ftz.f32", (A, B), True),
        ("fma.rn.f32", (A, B, B, A), True),
        ("mul.rn.bf16x2", (A, B, B), True),
        ("mul.lo.s32", (A, B, B), False),
        ("add.f32", (A, B, B), False),
        ("st.global.f32", (A, B), True),
        ("st.shared.f32", (A, B), False),
        ("st.global.v2.u64", (A, Vector((Register("%zero"), Register("%zero")))), False),
        ("st.global.u32", (A, Immediate(0)), False),
        ("red.global.add.f32", (A, B), True),
        ("atom.global.add.u32", (A, A, B), False),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", (A, B), True),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier", (A, B), False),
        ("cp.async.cg.shared.global", (A, B), False),
    ],
)  # fmt: skip
def test_what_may_make_scores_weights_or_outputs(
    opcode: str, operands: tuple[object, ...], makes: bool
) -> None:
    first = Location("a.cu", 1)
    code = [instruction(0, first, "mov.u64", Register("%zero"), Immediate(0)),
            instruction(1, first, "ld.param.u64", A), instruction(2, first, "ld.global.f32", B),
            instruction(3, Location("a.cu", 7), opcode, *operands)]  # fmt: skip
    assert left(code, {0, 1, 2}) == NeverRun("a.cu:7", "a.cu:7" if makes else "")
