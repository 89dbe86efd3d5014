"""G3: the lowered source is the target again, changed only where it may, and compiles as well.

A pass names the primitives that no conformance run has proven with the headers at hand. The last
step needs nvcc; without one that step, and so the gate, is not_run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from engine.build.build import build
from engine.build.host_plan import launches_of
from engine.build.machine_code.compare import compare
from engine.build.machine_code.result import BuildResult
from engine.build.tools.toolchain import Toolchain, find_toolchain
from engine.cuir.canonical import equal, first_difference
from engine.cuir.changes.merge import merge
from engine.cuir.matching import Pairs
from engine.cuir.nodes import Field, Module, Path
from engine.errors import InputError, LiftError, MissingTool
from engine.gates.g3_source.conformance import read_records, told, unproven
from engine.gates.g3_source.speed import SPEED, beside
from engine.lift import KernelPackage, Lifted, lift_source, specialisation_key
from engine.lift.cpp.provenance import Span
from engine.lift.files.meanings import known_meanings, like, unexplained
from engine.lower.lower import Lowered
from engine.lower.spans import allowed_spans, union, verify_spans
from engine.spec.recipes.recipe import Recipe
from engine.transfer.binding import Binding
from engine.types import TOO_SLOW, UNFINISHED, VerdictKind

Lowering = Lowered
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class G3:
    """What G3 found. `compiler` is the identity of the nvcc that was used, or empty."""

    kind: VerdictKind
    reason: str
    details: Mapping[str, Any]
    compiler: str = ""


def judge_lowered(
    package: KernelPackage,
    lifted: Lifted,
    target: Module,
    lowered: bytes,
    arch: str,
    recipe: Recipe | None,
    binding: Binding | None,
    *,
    cancel: threading.Event | None = None,
    progress: Progress = lambda _: None,
) -> G3:
    """Spans, relift of every specialisation, compile, resources, predicted speed: the first thing
    wrong, or a pass. Where the speed alone is wrong, the detail `TOO_SLOW` says so. `recipe` is
    what the spec asks for, where it was read, `binding` what fills the target's fields.

    Raises:
        Interrupted: `cancel` was set.
    """
    if not package.specialisations:
        reason = "the package declares no specialisations, so nothing was lifted again or compiled"
        return G3(VerdictKind.NOT_RUN, reason, {})
    fault = _check_text(package, lifted, target, lowered, arch, progress)
    if fault is not None:
        return fault
    try:
        toolchain = find_toolchain()
        expert, made = _compile(package, lifted, target, lowered, arch, toolchain, cancel, progress)
    except MissingTool as error:
        reason = f"{error.message}; the text is right, the compile step was not run"
        return G3(VerdictKind.NOT_RUN, reason, {"fix": error.fix})
    details: dict[str, Any] = {"build": made.to_json(), "expert": expert.to_json()}
    for built, what in ((made, ""), (expert, "the source that it is compared with: ")):
        if built.killed:
            details[UNFINISHED] = True
            return G3(VerdictKind.NOT_RUN, what + built.reason, details, made.compiler)
    problems = compare(expert, made) if expert.ok else ()
    if not made.ok or problems:
        reason = made.reason if not made.ok else str(problems[0])
        details["problems"] = [p.to_json() for p in problems]
        details |= {"fix": problems[0].fix} if made.ok and problems[0].fix else {}
        return G3(VerdictKind.FAIL, reason, details, made.compiler)
    kinds = ", ".join(s.key for s in made.specialisations)
    reason = f"lifts to the target again; {kinds} compile for {arch} without a loss"
    words, details["conformance"] = _conformance(lowered, package)
    reason += f"; {words}" if words else ""
    progress("G3: predicting the speed")
    speed = beside(lifted.module, target, recipe, binding)
    details[SPEED] = speed.to_json()
    reason += f"; {speed.words}"
    if speed.slow:
        details[TOO_SLOW] = True
        reason = f"predicted below half of the bare kernel's speed; {reason}"
        return G3(VerdictKind.FAIL, reason, details, made.compiler)
    return G3(VerdictKind.PASS, reason, details, made.compiler)


def _check_text(
    package: KernelPackage,
    lifted: Lifted,
    target: Module,
    lowered: bytes,
    arch: str,
    progress: Progress,
) -> G3 | None:
    """What is wrong with the lowered text, for every specialisation that will be built."""
    progress("G3: lifting the lowered source again")
    spans = []
    known = known_meanings(lifted.module)  # the same text, lifted again, means the same
    for binding in package.specialisations:
        key = specialisation_key(binding)
        base, wanted = lifted, target
        if dict(binding) != {k: v for k, v in lifted.specialisation.items() if k != "arch"}:
            base = lift_source(lifted.source, binding, arch, file=package.file, entry=package.entry)
            base = replace(base, module=like(base.module, known))
            # The same edit, made to what this specialisation lifts to.
            merged = merge(lifted.module, base.module, target, _same_source(lifted, base))
            if merged.conflicts:
                reason = f"{key}: the edit does not fit this specialisation of the source"
                return G3(VerdictKind.FAIL, reason, {})
            wanted = merged.module
        try:
            again = lift_source(lowered, binding, arch, file="lowered.cu", entry=package.entry)
        except (LiftError, InputError) as error:
            return G3(VerdictKind.FAIL, f"{key}: the lowered source does not lift: {error}", {})
        module = like(again.module, known)
        unknown = [op for op in again.opaque if op.path in unexplained(module)]
        if unknown:
            op = unknown[0]
            line = op.span.start_line
            reason = f"{key}: line {line} of the lowered source is opaque: {op.reason}"
            return G3(VerdictKind.FAIL, reason, {"line": op.span.start_line})
        if not equal(module, wanted):
            difference = first_difference(module, wanted)
            reason = f"{key}: the lowered source lifts to another program: {difference}"
            return G3(VerdictKind.FAIL, reason, {"difference": str(difference)})
        spans.append(allowed_spans(base, wanted))
    offence = verify_spans(lifted.source, lowered, union(spans))
    if offence is not None:
        return G3(VerdictKind.FAIL, str(offence), {"line": offence.line})
    return None


def _conformance(lowered: bytes, package: KernelPackage) -> tuple[str, dict[str, Any]]:
    """What conformance runs say of the primitives that the source calls: a clause, and the details.

    It changes no verdict: an unproven primitive is judged by G4 with the whole kernel.
    """
    try:
        records = read_records()
    except InputError as error:
        where = FilePath(error.where.file).name if error.where else "a record"
        return f"conformance is not known: {where}: {error.message}", {"fix": error.fix}
    found = unproven(lowered, dict(package.headers), records)
    runs = [{"suite": r.suite, "device": r.device, "arch": r.arch, "date": r.date} for r in records]
    return told(found, records), {"runs": runs, "unproven": [item.to_json() for item in found]}


def _same_source(old: Lifted, new: Lifted) -> Pairs:
    """Which statement of one specialisation is which of another of the same source: those that came
    from the same place of it, in their order."""
    places: dict[Span, list[Path]] = {}
    for path, span in new.provenance.items():
        places.setdefault(span, []).append(path)
    pairs: Pairs = {}
    for path, span in old.provenance.items():
        if there := places.get(span):
            pairs[path] = there.pop(0)
    return pairs


def _compile(
    package: KernelPackage,
    lifted: Lifted,
    target: Module,
    lowered: bytes,
    arch: str,
    toolchain: Toolchain,
    cancel: threading.Event | None,
    progress: Progress,
) -> tuple[BuildResult, BuildResult]:
    """The expert's source and the lowered one, compiled for every specialisation."""
    keys = [specialisation_key(s) for s in package.specialisations]

    def one(source: bytes, fields: tuple[Field, ...], what: str) -> BuildResult:
        launches = {
            specialisation_key(binding): launches_of(
                lift_source(source, binding, arch, entry=package.entry).module
            )
            for binding in package.specialisations
        }
        return build(
            source, package.headers, package.entry, keys, arch, toolchain,
            cancel=cancel, progress=lambda text: progress(f"G3: {what}: {text}"),
            compile_only=True, launches=launches,
            fields=[(f.name, f.type) for f in fields],
        )  # fmt: skip

    progress("G3: compiling the lowered source")
    made = one(lowered, target.fields, "lowered")
    progress("G3: compiling the expert's source, to compare")
    return one(lifted.source, lifted.module.fields, "expert's"), made
