"""What a model is told: the kernel's room, every error at its op, and what became of the speed."""

from __future__ import annotations

from typing import Any

import pytest

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module
from engine.gates.g3_source.speed import Speed
from engine.lift import Lifted, lift
from engine.service.models.llm_findings import MOST_ERRORS, found_words, room_words, speed_words
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import find_kernel
from engine.transfer.llm.prompt import render
from tests.engine.transfer.llm.answers import id_of
from tests.engine.transfer.recipes import lifted

KERNEL: dict[str, Any] = {
    "name": "flash_fwd", "registers": 255, "spill_store_bytes": 40, "spill_load_bytes": 48,
    "resident_blocks": 1, "resident_limit": "registers",
}  # fmt: skip


@pytest.fixture(scope="module")
def source() -> Lifted:
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package, specialisation={"D": "64"})
    return lift(package, options.specialisation, options.arch)


def error(line: int, message: str, column: int | None = None) -> dict[str, Any]:
    return {
        "severity": "error", "message": message, "line": line, "column": column,
        "origin": "cubridge/sm80.cuh:12", "where": f"kernel.cu:{line}",
    }  # fmt: skip


def line_of(source: Lifted, text: str) -> int:
    lines = source.source.decode().split("\n")
    return next(n for n, line in enumerate(lines, start=1) if text in line)


def said(source: Lifted, details: dict[str, Any]) -> str:
    module = source.module
    return found_words(details, source.source, source, module, assign(module))


@pytest.mark.parametrize("column", [None, 5])
def test_every_error_stands_at_its_op_with_the_types_of_what_it_reads(
    source: Lifted, column: int | None
) -> None:
    gemm, total = line_of(source, "gemm(s, sQ,"), line_of(source, "l = row_sum(s, l);")
    errors = [error(gemm, "no instance matches", column), error(total, "no operator", column)]
    warning = error(total, "unused") | {"severity": "warning"}
    text = said(source, {"build": {"diagnostics": [*errors, warning], "specialisations": []}})
    first, second = text.split("\n2. ")
    assert first.startswith("1. no instance matches (in cubridge/sm80.cuh:12)")
    assert "C++: gemm(s, sQ, transpose(sK[" in first
    assert f"op: {id_of(source.module, 'gemm(s, sQ')}, gemm(s, sQ, transpose(sK[" in first
    assert "s is f32 mma_acc[" in first and "sQ is shared " in first and "sK is shared " in first
    assert f"op: {id_of(source.module, 'l = row_sum')}, l = row_sum(s, l)" in second
    assert "l is f32 row_of[" in second and "unused" not in text


def test_an_op_that_the_model_wrote_has_no_id(source: Lifted) -> None:
    details = {"build": {"diagnostics": [error(line_of(source, "l = row_sum"), "x")],
                         "specialisations": []}}  # fmt: skip
    text = found_words(details, source.source, source, source.module, {})
    assert "op: l = row_sum(s, l)" in text


def test_more_errors_than_are_listed_are_counted(source: Lifted) -> None:
    line = line_of(source, "l = row_sum")
    errors = [error(line, f"e{n}") for n in range(MOST_ERRORS + 3)]
    text = said(source, {"build": {"diagnostics": errors, "specialisations": []}})
    assert f"{MOST_ERRORS}. e{MOST_ERRORS - 1}" in text and text.endswith("and 3 more")


def test_a_text_that_does_not_lift_and_a_line_without_an_op_have_their_line_alone(
    source: Lifted,
) -> None:
    line = line_of(source, "l = row_sum")
    text = found_words({"line": line}, source.source, None, source.module, {})
    assert text == "1. here\n   C++: l = row_sum(s, l);"
    assert said(source, {"line": 1}).count("\n") == 1
    assert said(source, {}) == "" and said(source, {"line": 10**6}) == "1. here"


def test_losses_and_registers_stand_beside_the_source_s(source: Lifted) -> None:
    was = KERNEL | {"registers": 168, "spill_store_bytes": 0, "spill_load_bytes": 0}
    problems = [{"specialisation": "bf16_64", "kernel": "flash_fwd", "message": "spills: 40"}]
    builds = {
        name: {"diagnostics": [], "specialisations": [{"key": "bf16_64", "kernels": [kernel]}]}
        for name, kernel in (("build", KERNEL), ("expert", was))
    }
    text = said(source, builds | {"problems": problems})
    assert "* bf16_64 flash_fwd: spills: 40" in text
    assert "255 registers a thread (168), 88 bytes spilled (0), 1 blocks" in text
    assert "limited by registers" in text


@pytest.mark.parametrize(
    ("kernel", "parts"),
    [
        ("flash_fwd_sm80", ("128 threads a block, at most 255 registers", "BM = 128")),
        ("flash_fwd_sm90", ("512 threads a block, at most 128 registers", "BM = 192, BN = 112",
                            "`raise_registers(HIGH)` (160)")),
    ],
)  # fmt: skip
def test_the_room_of_a_kernel(kernel: str, parts: tuple[str, ...]) -> None:
    text = room_words(lifted(kernel, 128))
    for part in parts:
        assert part in text
    assert "DV" not in text and "COLS" not in text  # they follow from the tensors' sizes
    assert text == room_words(lifted(kernel, 128))


def test_a_module_that_is_not_followed_has_no_room() -> None:
    assert room_words(Module((), (), ())) == ""


def test_the_tolerances_that_are_told_are_those_of_g2() -> None:
    pytest.importorskip("torch")
    from engine.gates.runs.output_comparison import EXACT_TOLERANCE, LSE_TOLERANCE

    text = render("system", manual="")
    assert f"within {EXACT_TOLERANCE:g} of its row's largest magnitude" in text
    assert f"LSE by {LSE_TOLERANCE:g}".replace("0.005", "5e-3") in text


def test_the_speed_says_what_it_is_beside() -> None:
    text = speed_words(Speed(2000.0, 900.0, 2, 1.5, "latency", "H100, S 8192"), {})
    assert "2,000 us" in text and "900 us" in text and "0.90 of the base module's speed" in text
    assert "2 attentions" in text and "1.50 pairs" in text and "bound by latency" in text
    assert "behind `and`" not in text


def test_the_speed_names_what_a_mask_reads_in_a_branch() -> None:
    text = speed_words(Speed(380.0, 900.0, late="args.Nq and args.window"), {})
    assert "Its mask reads args.Nq and args.window behind `and`" in text
    assert "a branch for each element" in text and "before the loop over keys" in text
