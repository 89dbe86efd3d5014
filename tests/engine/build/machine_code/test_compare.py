"""Every kind of loss is found, and nothing else is called one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.build.machine_code.compare import Loss, compare
from engine.build.machine_code.occupancy import Residency
from engine.build.machine_code.ptxas import KernelUse, PtxasWarning, WarningKind
from engine.build.machine_code.result import BuildResult, Kernel, Specialisation

COUNTS = {"HMMA": 128, "LDSM": 48, "MUFU": 44}
KERNEL = Kernel(
    "flash_fwd", KernelUse("_Z9flash_fwdv", 168), 128, 65536, Residency(2, "shared"), COUNTS
)


def built(*kernels: Kernel, **change: Any) -> BuildResult:
    item = Specialisation("bf16_128", True, kernels, (), "sass", "")
    item = replace(item, **{k: v for k, v in change.items() if hasattr(item, k) and k != "ok"})
    rest = {k: v for k, v in change.items() if k in ("ok", "arch", "specialisations")}
    whole = BuildResult(True, "sm_80", "nvcc", "", None, (item,), (), "", 0, 0.0)
    return replace(whole, **rest)


def use(**change: int) -> Kernel:
    return replace(KERNEL, use=replace(KERNEL.use, **change))


def losses(now: BuildResult, was: BuildResult | None = None) -> list[Loss]:
    return [problem.loss for problem in compare(was or built(KERNEL), now)]


def test_the_same_has_no_loss() -> None:
    assert not compare(built(KERNEL), built(KERNEL))


def test_more_registers_and_other_instructions_are_no_loss() -> None:
    more = replace(use(registers=200), instructions={**COUNTS, "HMMA": 64, "FADD": 9})
    assert not losses(built(more))


def test_spills() -> None:
    assert losses(built(use(spill_store_bytes=4))) == [Loss.SPILLS]
    assert losses(built(use(spill_load_bytes=4))) == [Loss.SPILLS]
    spilling = use(spill_load_bytes=8, stack_bytes=8)
    assert not losses(built(spilling), built(spilling))
    assert losses(built(use(spill_load_bytes=12, stack_bytes=8)), built(spilling)) == [Loss.SPILLS]


def test_local_memory() -> None:
    assert losses(built(use(stack_bytes=64))) == [Loss.LOCAL_MEMORY]
    accesses = replace(KERNEL, instructions={**COUNTS, "STL": 1})
    assert losses(built(accesses)) == [Loss.LOCAL_MEMORY]
    assert not losses(built(accesses), built(accesses))


def test_a_matrix_class_lost() -> None:
    gone = replace(KERNEL, instructions={"FFMA": 9000})
    found = compare(built(KERNEL), built(gone))
    assert [p.loss for p in found] == [Loss.MATRIX_CLASS]
    assert "HMMA" in str(found[0])
    other = replace(KERNEL, name="other", instructions={})
    assert losses(built(other)) == [Loss.MATRIX_CLASS]


def test_fewer_resident_blocks() -> None:
    fewer = replace(KERNEL, residency=Residency(1, "registers"))
    assert losses(built(fewer)) == [Loss.RESIDENCY]
    (registers,) = compare(built(KERNEL), built(fewer))
    assert "smaller tile" in registers.fix and "__launch_bounds__(128, 2)" in registers.fix
    (shared,) = compare(built(KERNEL), built(replace(KERNEL, residency=Residency(1, "shared"))))
    assert "smaller tile" in shared.fix and "bounds" not in shared.fix
    assert not losses(built(replace(KERNEL, residency=Residency(3, "warps"))))


def test_warnings_of_ptxas() -> None:
    for kind, loss in [
        (WarningKind.SERIALISED_WGMMA, Loss.SERIALISED),
        (WarningKind.IGNORED_SETMAXNREG, Loss.SETMAXNREG),
    ]:
        warned = built(KERNEL, warnings=(PtxasWarning(kind, "C7500", "text"),))
        assert losses(warned) == [loss]
    assert not losses(built(KERNEL, warnings=(PtxasWarning(WarningKind.OTHER, "", "text"),)))


def test_a_warning_that_the_source_has_too_is_no_loss() -> None:
    """Whatever the function is called, and only as often as the source has it."""
    ours, theirs, other = (
        PtxasWarning(WarningKind.SERIALISED_WGMMA, "C7510", text)
        for text in ("a call in the function 'f'", "a call in the function 'g'", "fragments in 'f'")
    )
    source = built(KERNEL, warnings=(theirs,))
    assert not compare(source, built(KERNEL, warnings=(ours,)))
    for warned in ((ours, ours), (other,), (ours, other)):
        found = compare(source, built(KERNEL, warnings=warned))
        assert [p.loss for p in found] == [Loss.SERIALISED]


def test_a_new_kernel_is_held_to_the_absolute_rules() -> None:
    combine = replace(KERNEL, name="combine", instructions={})
    assert not losses(built(KERNEL, combine))
    spilling = replace(combine, use=replace(KERNEL.use, spill_load_bytes=4))
    assert losses(built(KERNEL, spilling)) == [Loss.SPILLS]


def test_what_does_not_build() -> None:
    assert Loss.BUILD in losses(built(KERNEL, ok=False))
    assert losses(built()) == [Loss.BUILD, Loss.MATRIX_CLASS]


def test_builds_that_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="cannot compare"):
        compare(built(KERNEL), built(KERNEL, arch="sm_90"))
    with pytest.raises(ValueError, match="in common"):
        compare(built(KERNEL), built(KERNEL, specialisations=()))


def test_problems_are_json() -> None:
    (problem,) = compare(built(KERNEL), built(use(stack_bytes=64)))
    assert problem.to_json()["now"] == "64"
    assert str(problem).startswith("bf16_128 flash_fwd: ")
