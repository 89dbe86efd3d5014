"""Checks a kernel without a GPU: compiles it, records its launches, executes every thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.build.folder.scratch import scratch
from engine.build.machine_code.ptxas import function_name
from engine.build.tools.toolchain import Toolchain, find_toolchain
from engine.child.client import Child
from engine.errors import InputError
from engine.files import read_text
from engine.foreign.cases import LONGEST, Case, cases_of, complete, draw, refuse_too_large, unlike
from engine.foreign.compile import Compiled, Flags, compile_kernel
from engine.foreign.explain import explain, led, together
from engine.foreign.includes import reached, read_included
from engine.foreign.launcher import Launcher, read_launcher
from engine.foreign.numbers.never_run import NeverRun, never_run
from engine.foreign.numbers.precision import unit_roundoff
from engine.foreign.numbers.where import Place, Places, Where, told_places
from engine.foreign.reach import Launches, kernel_words, preprocessed, reached_functions
from engine.foreign.record import Executed, Process, execute, launched
from engine.foreign.reference import (
    Difference,
    Reference,
    compare,
    other_layout,
    read_reference,
    want,
)
from engine.ptx.findings import Finding
from engine.ptx.syntax import Module

VALUES = ("random", "marked")  # what a case that a person names is run with
ELEMENTS = ("bf16", "f16", "f32")  # of tensors whose type the caller chooses


@dataclass(frozen=True, slots=True)
class Checked:
    """One case: its sizes, the launches that were executed, and what its outputs were worth.

    Args:
        differences: what differs from the reference; None where nothing was compared.
        errors: the largest error of each output that was compared.
        skipped: why the reference gave nothing to compare with.
        not_launched: kernels that the launcher reaches and that no case launches, with their lines.
        nvcc: what compiling took before all cases, in seconds of the clock and of all processors.
        why: of the first case that differs: which of its numbers are the reference's, and the first
            that are not; of the first with a fault, that nobody named its head size.
        module: what was executed.
    """

    case: Case
    launches: tuple[Executed, ...]
    differences: tuple[Difference, ...] | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""
    not_launched: tuple[str, ...] = ()
    nvcc: tuple[float, float] = (0.0, 0.0)
    why: tuple[str, ...] = ()
    module: Module | None = None

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
        sizes: the cases to run, as `cases_of` takes them; empty: the usual ones.
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


def launcher_of(asked: Asked, text: str, reference: Reference | None, dtype: str = "") -> Launcher:
    """The launcher of a source whose text this is; `dtype` in the place of the kernel's own."""
    shapes, scalars, types = (
        (reference.shapes, reference.scalars, reference.types) if reference else ({}, {}, {})
    )
    named = {name for sizes in asked.sizes for name in sizes}
    return read_launcher(text, str(asked.source), asked.launcher, {**shapes, **asked.shapes},
                         dtype or asked.dtype, scalars, types, named)  # fmt: skip


def check_kernel(
    asked: Asked, said: Callable[[str], None] = lambda text: None, child: Child | None = None,
    more: bool = False,
) -> Iterator[Checked]:  # fmt: skip
    """Executes a kernel as PTX in each case, one after the other in one process, the smallest
    first, and compares what it wrote with its reference. Where no case launches a kernel that the
    launcher reaches, cases that do are added, if some are found.

    Args:
        child: the torch child that runs the reference; None: one of its own.
        more: whether a case is added that tells apart what all others have alike (`unlike`).

    Raises:
        InputError: the source does not compile, its launcher is not understood or fails, or it has
            an instruction that is not executed yet, with the line.
        SpecError: the reference declares no attention.
        MissingTool: there is no nvcc.
    """
    with _prepared(asked, said, child, more) as at:
        nvcc = at.compiled.seconds, at.compiled.processor
        explained, process = False, Process()
        why: tuple[str, ...]
        assumed = _assumed(asked, at.entries[""])
        for case in at.cases:
            entry, sizes = at.entries[case.dtype], complete(at.entries[case.dtype], case.sizes)
            if at.reference is None or at.child is None:
                inputs = draw(entry, sizes)
                _, made = execute(at.compiled, entry, sizes, inputs, {}, asked.flags.arch,
                                  at.folder, memory_only=True, process=process)  # fmt: skip
                wrong, why = any(x.findings for x in made), ()
                if wrong:
                    why, assumed = assumed, ()
                yield Checked(case, tuple(made), not_launched=at.not_launched, nvcc=nvcc,
                              why=why, module=at.compiled.module)  # fmt: skip
                continue
            if not at.reference.allows(sizes):
                raise InputError(f"{at.reference.path.name} is not defined for {case}")
            code = [at.compiled.module.kernels[n] for n in at.launches.launched(case)]
            element = next((p.dtype for p in entry.tensors if p.means == "q"), "f32")
            wanted = want(at.reference, entry, sizes, case.values, case.seed, at.child, at.folder,
                          unit_roundoff(code, element))  # fmt: skip
            if isinstance(wanted, str):
                yield Checked(case, (), None, {}, wanted, at.not_launched, nvcc)
                continue
            outputs, made = execute(
                at.compiled, entry, {**sizes, **wanted.sizes}, wanted.inputs, at.reference.scalars,
                asked.flags.arch, at.folder, process=process,
            )  # fmt: skip
            differences, errors = compare(wanted, entry, outputs)
            why, wrong = (), any(x.findings for x in made)
            if differences and not explained and not wrong:
                explained = True  # other cases differ by the same fault, or by the next one
                said(f"{case}: following its numbers")
                again = want(at.reference, entry, sizes, case.values, case.seed, at.child,
                             at.folder, numbers=True)  # fmt: skip
                if not isinstance(again, str):
                    turned = other_layout(again, entry, outputs)
                    why = (turned,) if turned else explain(
                        at.compiled, entry, again, at.reference.scalars, asked.flags.arch,
                        at.folder, made, differences, outputs,
                        Places(at.compiled.module, asked.source),
                    ).lines  # fmt: skip
            if differences or wrong:
                why, assumed = (*why, *assumed), ()
            yield Checked(case, tuple(made), tuple(differences), errors, "", at.not_launched, nvcc,
                          why, at.compiled.module)  # fmt: skip


def _assumed(asked: Asked, launcher: Launcher) -> tuple[str, ...]:
    """What is said of a kernel with faults whose head size nobody has named."""
    if "D" in launcher.sizes or any("D" in given for given in asked.sizes):
        return ()
    return (f"D is taken to be {asked.head_dim}, as {launcher.name} does not take it: --head-dim "
            "says another",)  # fmt: skip


def kernels_of_cases(
    asked: Asked, said: Callable[[str], None], child: Child
) -> list[tuple[Case, frozenset[str]]]:
    """The cases that `check_kernel` runs, each once, with the kernels that they launch by name;
    nothing is executed.

    Raises:
        InputError, MissingTool: as `check_kernel` does.
    """
    with _prepared(asked, said, child) as at:
        once = {(tuple(c.sizes.items()), c.dtype): c for c in reversed(at.cases)}
        return [(c, at.launches.of(c)) for c in reversed(once.values())]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A compiled kernel with the cases that it is run in.

    Args:
        entries: the launcher, by the element type of a case.
    """

    reference: Reference | None
    child: Child | None
    entries: Mapping[str, Launcher]
    compiled: Compiled
    folder: Path
    launches: Launches
    cases: Sequence[Case]
    not_launched: tuple[str, ...]


@contextmanager
def _prepared(
    asked: Asked, said: Callable[[str], None], child: Child | None, more: bool = False
) -> Iterator[_Prepared]:
    text = read_text(asked.source, "give a CUDA source with a launcher")
    tools = find_toolchain()
    tools.require_arch(asked.flags.arch)
    with ExitStack() as held:
        folder = held.enter_context(scratch())
        if asked.reference is not None and child is None:
            child = held.enter_context(Child())
        reference = None
        if child is not None and asked.reference is not None:
            said(f"reading {asked.reference.name}")
            reference = read_reference(asked.reference, child, asked.options)
        scalars = reference.scalars if reference else {}
        entries = {d: launcher_of(asked, text, reference, d) for d in ("", *ELEMENTS)}
        entry = entries[""]
        # Marked ones besides: of many keys one more or less is within a half's rounding.
        kinds = VALUES if reference is not None else VALUES[:1]
        cases = cases_of(entry, asked.sizes, kinds, asked.head_dim, reference)
        for case in cases:
            refuse_too_large(entry, case, reference is not None)
        said(f"compiling {asked.source.name} for {asked.flags.arch}")
        compiled = compile_kernel(asked.source, entry, asked.flags, tools, folder)
        launches = Launches(
            entry,
            lambda case: launched(compiled, entries[case.dtype], complete(entry, case.sizes),
                                  scalars, asked.flags.arch, folder),
            reference.allows if reference else lambda sizes: True,
            [d for d in ELEMENTS if entries[d] != entry and any(p.torch for p in entry.tensors)],
        )  # fmt: skip
        longest = max(complete(entry, c.sizes)["Nk"] for c in cases) if reference else LONGEST
        if more and longest < LONGEST:
            said(f"the longest case has {longest} keys, the longest usual one {LONGEST}: a buffer "
                 "that is never used again in it shows no lost wait")  # fmt: skip
        apart = unlike(entry, cases, reference.allows) if more and reference else None
        if apart is not None:
            with suppress(InputError):  # sizes that the launcher does not take
                launches.of(apart)
                said(
                    f"{apart} is run, too: no other case has unlike lengths, or heads that share "
                    "keys; where a kernel takes none, one name for both says so in the reference"
                )
                cases += [replace(apart, values=kind) for kind in kinds]
        added, not_launched = _all_launched(
            asked, compiled.module, launches, cases, said, tools, folder
        )
        cases += [replace(c, values=kind) for c in added for kind in kinds]
        cases.sort(key=lambda c: math.prod(c.sizes.values()))
        yield _Prepared(reference, child, entries, compiled, folder, launches, cases, not_launched)


def _all_launched(
    asked: Asked, module: Module, launches: Launches, cases: Sequence[Case],
    said: Callable[[str], None], tools: Toolchain, folder: Path,
) -> tuple[list[Case], tuple[str, ...]]:  # fmt: skip
    """Cases for kernels that the launcher reaches and none of these launches; and the kernels, in
    words, that no size was found for."""
    left = launches.never(module.kernels, cases)
    if not left:
        return [], ()
    text = preprocessed(asked.source.resolve(), asked.flags, tools, folder)
    near = reached_functions([text], asked.launcher)
    words = {
        name: kernel_words(kernel)
        for name, kernel in module.kernels.items()
        if name in left and function_name(name) in near
    }
    if not words:
        return [], ()
    said(f"looking for sizes that launch {', '.join(words.values())}")
    texts = [read_included(f) for f in reached(asked.source, asked.flags.includes)]
    more = launches.showing(set(words), cases, texts)
    return more, tuple(words[n] for n in words if n in launches.never(words, more))


def led_by(checked: Checked, finding: Finding, where: Where) -> Iterator[str]:
    """The lines that led to a finding, a sentence for each kind of them."""
    if checked.module is not None:
        carried = together(x.carried for x in checked.launches)
        for words, way in led(finding, checked.module, carried):
            if said := told_places(way, where):
                yield f"{words} {said}"


def places(checked: Checked, source: Path) -> Where:
    """Where the instructions stand that a case executed."""
    return Places(checked.module or Module("", {}, ()), source)


def never_run_in(cases: Iterable[Checked], source: Path) -> NeverRun:
    """The lines that none of the cases came to; none are told where nothing was executed."""
    ran = [c for c in cases if c.module is not None]
    if not ran or ran[0].module is None:
        return NeverRun()
    launches = ((x.kernel, x.ran) for c in ran for x in c.launches)
    return never_run(ran[0].module, launches, places(ran[0], source))


def shorter(findings: Iterable[Finding], where: Where) -> list[Finding]:
    """Of several findings of one kind at one place of the source the first."""
    kept: dict[tuple[str, Place], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.kind, where(finding.at)), finding)
    return list(kept.values())
