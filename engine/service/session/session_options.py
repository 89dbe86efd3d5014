"""What a session adapts besides kernel and spec: arch, specialisation, the spec's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import InputError, SpecError
from engine.lift.files.kernel_package import KernelPackage, load_package
from engine.resources import kernel_path, list_kernels
from engine.spec.python.spec_file import TensorParameter, read_source


@dataclass(frozen=True, slots=True)
class Options:
    """The arch to build for, the specialisation that is shown and judged, and spec parameters.

    With `only` that specialisation alone is built, else all that the kernel declares beside it: of
    its head size where the spec's annotations fix that (`fixed`).
    """

    arch: str
    specialisation: Mapping[str, str]
    spec: Mapping[str, Any]
    only: bool = False
    fixed: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "arch": self.arch,
            "specialisation": dict(self.specialisation),
            "spec": dict(self.spec),
        } | {name: True for name in ("only", "fixed") if getattr(self, name)}

    def building(self, package: KernelPackage) -> KernelPackage:
        """The package with the specialisations that a session with these options builds."""
        made = package.building(self.specialisation)
        if self.only:
            return replace(made, specialisations=(self.specialisation,))
        if self.fixed:
            size = self.specialisation["D"]
            return replace(
                made, specialisations=tuple(s for s in made.specialisations if s["D"] == size)
            )
        return made

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Options:
        return Options(
            str(data["arch"]),
            dict(data["specialisation"]),
            dict(data.get("spec", {})),
            data.get("only") is True,
            data.get("fixed") is True,
        )


def choose_options(
    package: KernelPackage,
    arch: str | None = None,
    specialisation: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    only: bool = False,
    asked: Path | None = None,
) -> Options:
    """The options of a new session, the package's own choice where none is given.

    The head size is that of the spec `asked` where its annotations give it as a number.

    Raises:
        InputError: an arch or a specialisation that the kernel refuses, with its reason, or another
            head size than the spec's.
    """
    chosen = arch or package.archs[0]
    package.check_arch(chosen)
    if not package.specialisations:
        raise InputError(
            f"{package.file} is a bare source: adapt needs a package with a reference",
            fix="`cubridge import FILE.cu --reference SPEC --sizes ...` writes one of it "
            "(docs/wild.md)",
        )
    size = None if asked is None else fixed_head_size(asked)
    named = dict(specialisation or {})
    usual = dict(usual_specialisation(package))
    if size is None or "D" not in usual:
        return Options(chosen, dict(package.specialisation(usual | named)), spec or {}, only)
    if named.get("D", size) != size:
        raise InputError(
            f"the spec's annotations fix {size} columns of queries, not {named['D']}",
            fix="leave the head size out, or give the dimension a name in the spec",
        )
    try:
        wanted = package.specialisation(usual | named | {"D": size})
    except InputError as error:
        raise InputError(
            f"the spec's annotations fix {size} columns of queries, and {error.message}",
            where=error.where, fix=_kernels_of(usual | named | {"D": size}),
        ) from None  # fmt: skip
    return Options(chosen, dict(wanted), spec or {}, only, fixed=True)


def _kernels_of(wanted: Mapping[str, str]) -> str:
    """What to do where a kernel is not built for the columns that a spec's numbers fix."""
    others = []
    for name in list_kernels():
        package = load_package(kernel_path(name))
        try:
            package.specialisation(wanted)
        except InputError:
            continue
        others.append(f"{name} for {' or '.join(package.archs)}")
    found = " or ".join(others)
    return f"take {found}, which has them" if found else "take a kernel that is built for them"


def fixed_head_size(spec: Path) -> str | None:
    """The columns of the queries where the spec's annotation gives them as a number."""
    return next(iter(_fixed_columns(spec).values()), None)


def refuse_other_columns(spec: Path, sizes: tuple[int, int] | None) -> None:
    """Raises InputError where annotations fix other numbers of columns than `sizes`, the kernel's
    of its queries and of its values."""
    if sizes is None:
        return
    found = zip(_fixed_columns(spec).items(), (sizes[0], *sizes), strict=False)
    for (name, fixed), columns in found:
        if fixed is not None and int(fixed) != columns:
            raise InputError(
                f"the spec's annotation fixes {fixed} columns of {name}, and this specialisation "
                f"of the kernel has {columns}",
                fix="take a kernel that is built for these sizes, or name the dimension instead",
            )


def _fixed_columns(spec: Path) -> dict[str, str | None]:
    """The last dimension of q, k and v by their names, where it is a number.

    Empty for a spec that cannot be read: whoever runs it says so. Where q or k comes in parts of
    different numbers of columns, that of all parts, by the first one's name.
    """
    try:
        source = read_source(spec, {})
    except SpecError:
        return {}
    rows = [t for t in source.tensors if t.dtype == "T" and len(t.dims) > 2]
    if source.kind != "eager":
        return {}
    by_letter = [[t for t in rows if t.name[0].lower() == letter] for letter in "qkv"]
    if max(map(len, by_letter[:2])) > 1 and all(by_letter):
        return _of_parts(by_letter)
    rows = rows[:3]
    return {t.name: t.dims[-1] if t.dims[-1].isdecimal() else None for t in rows}


def _of_parts(by_letter: Sequence[Sequence[TensorParameter]]) -> dict[str, str | None]:
    """The columns of q, k and v, each given by one or several tensors; empty where these may be
    something else, such as the queries of two attentions. The recipe says what they are."""
    widths = [[t.dims[-1] for t in tensors] for tensors in by_letter]
    numbers = all(w.isdecimal() for of in widths for w in of)
    if not numbers or len(widths[2]) > 1 or any(len(set(of)) < len(of) for of in widths):
        return {}
    sums = [sum(map(int, of)) for of in widths]
    names = [tensors[0].name for tensors in by_letter]
    return {n: str(s) for n, s in zip(names, sums, strict=True)} if sums[0] == sums[1] else {}


def usual_specialisation(package: KernelPackage) -> Mapping[str, str]:
    """The one shown where none is named: bfloat16 at head size 128 where there is one."""
    usual = {"T": "bf16", "D": "128"}
    legal = package.specialisations
    return next((s for s in legal if dict(s) == usual), legal[-1])
