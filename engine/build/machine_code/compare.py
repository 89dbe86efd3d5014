"""G3's judgement of machine code: what the lowered kernel lost against the expert's."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from engine.build.machine_code.occupancy import Residency
from engine.build.machine_code.ptxas import PtxasWarning, WarningKind
from engine.build.machine_code.result import BuildResult, Kernel, Specialisation
from engine.build.machine_code.sass import LOCAL_CLASSES, MATRIX_CLASSES
from engine.types.plain import object_of


class Loss(StrEnum):
    """The kinds of loss that fail G3."""

    BUILD = "does not build"
    SPILLS = "spills"
    LOCAL_MEMORY = "local memory"
    MATRIX_CLASS = "matrix instruction lost"
    RESIDENCY = "fewer resident blocks"
    SERIALISED = "serialised wgmma"
    SETMAXNREG = "ignored setmaxnreg"


@dataclass(frozen=True, slots=True)
class Problem:
    """One loss, in which kernel of which specialisation: what the source had, and what is now.
    `fix`: what a person can change in the source, where something there is known to help."""

    loss: Loss
    specialisation: str
    kernel: str
    message: str
    was: str = ""
    now: str = ""
    fix: str = ""

    def __str__(self) -> str:
        place = " ".join(filter(None, (self.specialisation, self.kernel)))
        return f"{place}: {self.message}" if place else self.message

    def to_json(self) -> dict[str, Any]:
        return object_of(self)


def compare(expert: BuildResult, lowered: BuildResult) -> tuple[Problem, ...]:
    """Every loss of `lowered` against `expert`, specialisation by specialisation.

    Kernels are matched by their plain name; one that the expert's source has not is held to the
    absolute rules only (no spills, no local memory).

    Raises:
        ValueError: the builds are for different archs, or lack a common specialisation.
    """
    if expert.arch != lowered.arch:
        raise ValueError(f"cannot compare {expert.arch} with {lowered.arch}")
    problems: list[Problem] = []
    compared = 0
    if not lowered.ok:
        problems.append(Problem(Loss.BUILD, "", "", lowered.reason))
    for now in lowered.specialisations:
        was = expert.specialisation(now.key)
        if not now.ok or was is None or not was.ok:
            continue
        compared += 1
        problems += _specialisation(was, now)
    if not compared and lowered.ok:
        raise ValueError("the builds have no specialisation in common that compiled in both")
    return tuple(problems)


def _specialisation(was: Specialisation, now: Specialisation) -> list[Problem]:
    problems: list[Problem] = []
    kinds = {
        WarningKind.SERIALISED_WGMMA: Loss.SERIALISED,
        WarningKind.IGNORED_SETMAXNREG: Loss.SETMAXNREG,
    }
    before = Counter(map(_without_names, was.warnings))
    for warning in now.warnings:
        before[_without_names(warning)] -= 1
        if warning.kind in kinds and before[_without_names(warning)] < 0:
            problems.append(Problem(kinds[warning.kind], now.key, "", warning.text))
    if not now.kernels:
        problems.append(Problem(Loss.BUILD, now.key, "", "no kernel is left in the machine code"))
    same_tool = was.counted_in == now.counted_in
    for kernel in now.kernels:
        problems += _kernel(now.key, was.kernel(kernel.name), kernel, same_tool)
    for kernel in was.kernels:
        if now.kernel(kernel.name) is None and _matrix(kernel):
            lost = ", ".join(sorted(_matrix(kernel)))
            problems.append(
                Problem(
                    Loss.MATRIX_CLASS,
                    now.key,
                    kernel.name,
                    f"the kernel is gone, its {lost} too",
                    lost,
                )
            )
    return problems


def _without_names(warning: PtxasWarning) -> str:
    """What a warning says, of whichever function: of a source that has it too nothing is lost."""
    return re.sub(r"'[^']*'", "", warning.text)


def _kernel(key: str, was: Kernel | None, now: Kernel, same_tool: bool) -> list[Problem]:
    problems: list[Problem] = []

    def lost(loss: Loss, message: str, before: object, after: object, fix: str = "") -> None:
        problems.append(Problem(loss, key, now.name, message, str(before), str(after), fix))

    before = was.use if was else None
    stores, loads = now.use.spill_store_bytes, now.use.spill_load_bytes
    was_stores = before.spill_store_bytes if before else 0
    was_loads = before.spill_load_bytes if before else 0
    if stores > was_stores or loads > was_loads:
        lost(
            Loss.SPILLS,
            f"spills: {stores} bytes stored, {loads} loaded "
            f"(the source: {was_stores} and {was_loads})",
            was_stores + was_loads, stores + loads, _SMALLER,
        )  # fmt: skip
    stack, was_stack = now.use.stack_bytes, before.stack_bytes if before else 0
    local, was_local = _local(now), _local(was) if was else 0
    if stack > was_stack:
        lost(
            Loss.LOCAL_MEMORY, f"uses {stack} bytes of local memory (the source: {was_stack})",
            was_stack, stack, _SMALLER,
        )  # fmt: skip
    elif same_tool and local > was_local and not was_local:
        lost(
            Loss.LOCAL_MEMORY, f"has {local} accesses to local memory (the source: none)",
            was_local, local, _SMALLER,
        )  # fmt: skip
    if was is None:
        return problems
    gone = _matrix(was) - _matrix(now)
    if gone:
        names = ", ".join(sorted(gone))
        lost(Loss.MATRIX_CLASS, f"has no {names} any more", names, ", ".join(sorted(_matrix(now))))
    if was.residency and now.residency and now.residency.blocks < was.residency.blocks:
        lost(
            Loss.RESIDENCY,
            f"{now.residency.blocks} resident blocks per multiprocessor, limited by "
            f"{now.residency.limit} (the source: {was.residency.blocks})",
            was.residency.blocks, now.residency.blocks, _fitting(was.residency, now),
        )  # fmt: skip
    return problems


_SMALLER = "take a smaller tile in the source and begin again: it leaves registers"


def _fitting(was: Residency, now: Kernel) -> str:
    """What lets as many blocks be resident as the source has."""
    if now.residency is None or now.residency.limit != "registers":
        return "take a smaller tile in the source and begin again"
    bounds = f"__launch_bounds__({now.threads or 'THREADS'}, {was.blocks})"
    return (f"take a smaller tile in the source, or {bounds} there, which holds registers down "
            "(they may spill), and begin again")  # fmt: skip


def _matrix(kernel: Kernel) -> set[str]:
    return {name for name in kernel.instructions if name in MATRIX_CLASSES}


def _local(kernel: Kernel) -> int:
    return sum(kernel.instructions.get(name, 0) for name in LOCAL_CLASSES)
