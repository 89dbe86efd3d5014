"""What a build, the conformance runs and the cost model say, as a person reads it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cubridge_tui.jobs import elapsed
from cubridge_tui.model.built import (
    conformance_lines,
    kernel_words,
    predictions,
    resource_lines,
)
from engine.build.machine_code.occupancy import Residency
from engine.build.machine_code.ptxas import KernelUse
from engine.build.machine_code.result import BuildResult, Kernel, Specialisation
from engine.cost.card import card_of_arch
from engine.cuir.arch import arch_name
from engine.gates.g3_source.conformance import Unproven
from engine.transfer.rules import apply, plan
from tests.engine.transfer.recipes import VARIANTS, lifted


def build(registers: int, spills: int, blocks: int, names: tuple[str, ...] = ("flash_fwd",)) -> Any:
    """What G3 keeps of a build, by the build's own classes."""
    kernels = tuple(
        Kernel(n, KernelUse(f"_Z{n}", registers, 0, spills, spills, 1024, 3), 128, 49152,
               Residency(blocks, "registers"), {}) for n in names
    )  # fmt: skip
    made = Specialisation("bf16_64", True, kernels, (), "sass", "")
    return BuildResult(True, "sm_80", "nvcc 13.0", "d", None, (made,), (), "", 1, 1.0).to_json()


def test_resources_stand_beside_the_experts() -> None:
    details = {"build": build(168, 4, 2, ("flash_fwd", "classes")), "expert": build(160, 0, 3)}
    head, columns, main, other = resource_lines(details)
    assert "sm_80" in head and "nvcc 13.0" in head
    assert columns.split() == [
        "kernel", "registers", "spilled", "B", "blocks/SM", "shared", "bytes",
    ]  # fmt: skip
    assert main.split() == [
        "bf16_64", "flash_fwd", "168", "(160)", "8", "(0)", "2", "(3)", "50,176", "(50,176)",
    ]  # fmt: skip
    assert "(" not in other  # the expert's source has no such kernel
    assert all(len(line) <= 76 for line in resource_lines(details))
    (words,) = kernel_words(details, "flash_fwd")
    assert "168 (160) registers" in words and "8 (0) spilled" in words
    assert kernel_words(details, "launch") == [] and resource_lines({}) == []


def test_unproven_primitives_are_named_with_the_command_that_proves_them() -> None:
    items = [Unproven(n, "no run has these bytes", "python3 run.py") for n in ("keep", "map")]
    runs = [{"suite": "sm80", "device": "NVIDIA H100", "arch": "sm_80", "date": "2026-11-02"}]
    details = {"conformance": {"runs": runs, "unproven": [i.to_json() for i in items]}}
    lines = conformance_lines(details)
    assert "2 primitives not run" in lines[0] and "sm80 on NVIDIA H100" in lines[1]
    assert [line.split(":")[0].strip() for line in lines[2:]] == ["keep", "map", "to prove"]
    assert "every primitive" in conformance_lines({"conformance": {"runs": runs}})[0]
    assert conformance_lines({}) == []


@pytest.mark.parametrize(
    ("kernel", "card"), [("flash_fwd_sm80", "a100"), ("flash_fwd_sm90", "h100")]
)
def test_a_prediction_names_card_method_and_formula(kernel: str, card: str) -> None:
    base = lifted(kernel)
    *_, (_, target) = apply(base, plan(base, VARIANTS["softcap_causal"]).steps)
    found = card_of_arch(arch_name(target))
    assert found is not None and found.name == card
    lines = predictions(target, base, VARIANTS["softcap_causal"], None)
    assert found.title in lines[0] and "not measured" in lines[0] and "50.0%" in lines[0]
    assert "TFLOP/s = 2 (D + Dv) x kept pairs" in lines[1]
    ours, expert = lines[2:]
    assert "as decided" in ours and "1.0" in ours and "the expert's" in expert
    assert re.search(r"2\.0\d pairs visited for each kept", expert)  # all, of a causal mask


def test_a_long_run_says_for_how_long() -> None:
    assert [elapsed(s) for s in (1.9, 2.0, 59.9, 60, 125.5)] == [
        "", "2 s", "59 s", "1 min 00 s", "2 min 05 s",
    ]  # fmt: skip
