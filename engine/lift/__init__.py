"""From an expert's CUDA text to CuIR: structure by tree-sitter, meaning by a catalogue.

`lift` is the entrance; `load_package` reads what it lifts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from engine.errors import LiftError
from engine.lift.cpp.provenance import Lifted, OpaqueOp, Range, Span
from engine.lift.files.kernel_package import KernelPackage, load_package, specialisation_key
from engine.lift.files.lifter import lift_source, template_parameters

__all__ = [
    "KernelPackage", "Lifted", "OpaqueOp", "Range", "Span", "lift", "lift_source", "load_package",
    "specialisation_key",
]  # fmt: skip

_GUESSES = {
    "type": ("bf16", "f16", "f32"),
    "i32": ("128", "64", "96", "256", "32"),
    "i64": ("128", "64"),
    "bool": ("false", "true"),
}


def lift(
    package_or_source: KernelPackage | bytes | Path | str,
    specialisation: Mapping[str, str] | str | None = None,
    arch: str | None = None,
) -> Lifted:
    """One specialisation of a kernel as CuIR, with where every op came from.

    Takes a package, the bytes of a source, a path, or a bundled kernel's name. `specialisation`
    binds the launch template's parameters (`{"T": "bf16", "D": "128"}`) or is a package's key
    (`bf16_128`); without it, the package's first legal one, and for a bare source the first guess
    that its assertions allow. `arch` defaults to the package's first. Raises `LiftError` or
    `InputError` with file, line and fix.
    """
    if isinstance(package_or_source, (Path, str)):
        package_or_source = load_package(package_or_source)
    if isinstance(package_or_source, KernelPackage):
        package = package_or_source
        source, file, entry = package.source, package.file, package.entry
        arch = arch if arch is not None else _first_arch(package)
        package.check_arch(arch)
        if specialisation is None and package.specialisations:
            specialisation = package.specialisations[0]
        if specialisation is not None:
            specialisation = package.specialisation(specialisation)
    else:
        source, file, entry = package_or_source, "kernel.cu", "launch"
        arch = arch if arch is not None else "sm_80"
    if isinstance(specialisation, str):
        raise LiftError(
            f"{specialisation} names a specialisation of a package, and this is a bare source",
            fix="bind the launch template's parameters by name, as in T=bf16, D=128",
        )
    if specialisation is not None:
        return lift_source(source, specialisation, arch, file=file, entry=entry)
    first: LiftError | None = None
    for guess in _guesses(source, entry, file):
        try:
            return lift_source(source, guess, arch, file=file, entry=entry)
        except LiftError as error:
            first = first or error
    assert first is not None
    raise first


def _first_arch(package: KernelPackage) -> str:
    return "sm_80" if not package.specialisations else package.archs[0]


def _guesses(source: bytes, entry: str, file: str) -> Iterator[dict[str, str]]:
    """Bindings to try for a bare source: all at their first guess, then one changed at a time."""
    kinds = template_parameters(source, entry, file)
    first = {name: _GUESSES[kind][0] for name, kind in kinds.items()}
    yield first
    for name, kind in kinds.items():
        for value in _GUESSES[kind][1:]:
            yield {**first, name: value}
