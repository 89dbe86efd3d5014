"""Checks a kernel without a GPU: compiles it, records its launches, executes every thread."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.build.tools.toolchain import find_toolchain
from engine.child.client import Child
from engine.errors import InputError
from engine.files import read_text
from engine.foreign.cases import Case, complete, draw, usual_cases
from engine.foreign.compile import Flags, compile_kernel
from engine.foreign.launcher import read_launcher
from engine.foreign.record import Executed, execute
from engine.foreign.reference import Difference, compare, read_reference, want
from engine.ptx.findings import Finding
from engine.ptx.syntax import Instruction, Location

VALUES = ("random", "peaked")  # what a case that a person names is run with


@dataclass(frozen=True, slots=True)
class Checked:
    """One case: its sizes, the launches that were executed, and what its outputs were worth.

    Args:
        differences: what differs from the reference; None where nothing was compared.
        errors: the largest error of each output that was compared.
        skipped: why the reference gave nothing to compare with.
        nvcc: what compiling the kernel took before all cases, in seconds of the clock and of all
            processors.
    """

    case: Case
    launches: tuple[Executed, ...]
    differences: tuple[Difference, ...] | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""
    nvcc: tuple[float, float] = (0.0, 0.0)

    @property
    def findings(self) -> Iterator[Finding]:
        for launch in self.launches:
            yield from launch.findings


@dataclass(frozen=True, slots=True)
class Asked:
    """A kernel as a person gives it.

    Args:
        reference: a PyTorch function that says what it computes; None: memory alone is checked.
        shapes: the dimensions of further tensors by name.
        dtype: elements of `void*` and torch tensors.
        sizes: the cases to run; empty: the usual ones.
        options: parameters of the reference that a person set.
    """

    source: Path
    flags: Flags
    launcher: str = "launch"
    reference: Path | None = None
    shapes: Mapping[str, str] = field(default_factory=dict)
    dtype: str = "bf16"
    head_dim: int = 64
    sizes: Sequence[Mapping[str, int]] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def check_kernel(
    asked: Asked, said: Callable[[str], None] = lambda text: None, child: Child | None = None
) -> Iterator[Checked]:
    """Executes a kernel as PTX in each case, and compares what it wrote with its reference.

    Args:
        child: the torch child that runs the reference; None: one of its own.

    Raises:
        InputError: the source does not compile, its launcher is not understood or fails, or it has
            an instruction that is not executed yet, with the line.
        SpecError: the reference declares no attention.
        MissingTool: there is no nvcc.
    """
    text = read_text(asked.source, "give a CUDA source with a launcher")
    tools = find_toolchain()
    tools.require_arch(asked.flags.arch)
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="cubridge-check-")))
        if asked.reference is not None and child is None:
            child = held.enter_context(Child())
        reference = None
        if child is not None and asked.reference is not None:
            said(f"reading {asked.reference.name}")
            reference = read_reference(asked.reference, child, asked.options)
        shapes = {**(reference.shapes if reference else {}), **asked.shapes}
        scalars = reference.scalars if reference else {}
        types = reference.types if reference else {}
        entry = read_launcher(
            text, str(asked.source), asked.launcher, shapes, asked.dtype, scalars, types,
            {name for sizes in asked.sizes for name in sizes},
        )  # fmt: skip
        said(f"compiling {asked.source.name} for {asked.flags.arch}")
        compiled = compile_kernel(asked.source, entry, asked.flags, tools, folder)
        nvcc = compiled.seconds, compiled.processor
        # Peaked values besides: of logits around 0 a cap is a line, within a half's rounding.
        kinds = VALUES if reference is not None else VALUES[:1]
        named = ((dict(s), kind) for s in asked.sizes for kind in kinds)
        cases = [Case(s, n, kind) for n, (s, kind) in enumerate(named)] or usual_cases(
            entry, asked.head_dim, reference
        )
        for case in cases:
            sizes = complete(entry, case.sizes)
            if reference is None or child is None:
                inputs = draw(entry, sizes)
                _, launches = execute(compiled, entry, sizes, inputs, {}, asked.flags.arch, folder,
                                      memory_only=True)  # fmt: skip
                yield Checked(case, tuple(launches), nvcc=nvcc)
                continue
            if not reference.allows(sizes):
                raise InputError(f"{reference.path.name} is not defined for {case}")
            wanted = want(reference, entry, sizes, case.values, case.seed, child, folder)
            if isinstance(wanted, str):
                yield Checked(case, (), skipped=wanted, nvcc=nvcc)
                continue
            outputs, launches = execute(
                compiled, entry, {**sizes, **wanted.sizes}, wanted.inputs, scalars,
                asked.flags.arch, folder,
            )  # fmt: skip
            differences, errors = compare(wanted, entry, outputs)
            yield Checked(case, tuple(launches), tuple(differences), errors, nvcc=nvcc)


def place(instruction: Instruction, source: Path) -> Location | Instruction:
    """The line that an instruction is of, in the person's own source where one is: headers that it
    uses are not. The PTX line where none is known."""
    at = instruction.source
    if at is None:
        return instruction
    own = [p for p in at.chain() if Path(p.file).resolve() == source.resolve()]
    return replace(own[0], file=str(source)) if own else at


def shorter(findings: Sequence[Finding], source: Path) -> list[Finding]:
    """Of several findings of one kind at one line of the source the first."""
    kept: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.kind, str(place(finding.at, source))), finding)
    return list(kept.values())
