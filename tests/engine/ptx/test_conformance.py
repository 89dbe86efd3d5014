"""The record of what a GPU was seen to do, and which instructions it proves."""

from __future__ import annotations

from benchmarks.ptx_cases import memory_cases, register_cases
from engine.ptx.records import AGREES, CASES, case_hash, form, read_record, unproven
from engine.ptx.text.parser import parse_module

TEXT = (CASES / "instructions.ptx").read_text()


def test_the_record_is_of_the_cases_as_they_are() -> None:
    kernels = list(parse_module(TEXT, "instructions.ptx").kernels.values())
    kept = {c.case: c for c in read_record().cases if c.verdict == AGREES}
    made = register_cases.cases(kernels)
    assert made.keys() <= kept.keys()
    for opcode, case in made.items():
        text = case.ptx.replace(case.name, "case")
        assert kept[opcode].hash == case_hash(text, register_cases.inputs(case)), opcode
    for opcode, box in memory_cases.memory_cases(kernels).items():
        if opcode in kept:
            assert kept[opcode].hash == case_hash(box.ptx, memory_cases.words()), opcode


def test_an_opcode_without_a_record_is_named() -> None:
    code = parse_module(TEXT, "instructions.ptx").kernels["instructions"].code
    known = [at for at in code if at.opcode in ("add.s32", "ld.shared.v4.f32")]
    assert len(known) == 2 and not unproven(known)
    other = parse_module(TEXT.replace("add.s32 ", "add.sat.s32 "), "i").kernels["instructions"].code
    assert [at.opcode for at in unproven(other)][:1] == ["add.sat.s32"]


def test_caches_and_orders_change_no_value() -> None:
    assert form("ld.global.nc.L2::128B.v4.f32") == form("ld.global.v4.u32")
    assert form("ld.global.s8") != form("ld.global.u8")
    assert form("ldmatrix.sync.aligned.x4.m8n8.shared.b16") == form(
        "ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16"
    )
