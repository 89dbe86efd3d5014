"""What a session adapts besides kernel and spec: arch, specialisation, the spec's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.errors import InputError
from engine.lift.package import KernelPackage


@dataclass(frozen=True, slots=True)
class Options:
    """The arch to build for, the specialisation that is shown and judged, and spec parameters.

    With `only` that specialisation alone is built, else all that the kernel declares beside it.
    """

    arch: str
    specialisation: Mapping[str, str]
    spec: Mapping[str, Any]
    only: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "arch": self.arch,
            "specialisation": dict(self.specialisation),
            "spec": dict(self.spec),
        } | ({"only": True} if self.only else {})

    def building(self, package: KernelPackage) -> KernelPackage:
        """The package with the specialisations that a session with these options builds."""
        made = package.building(self.specialisation)
        if not self.only:
            return made
        return replace(made, specialisations=(self.specialisation,))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Options:
        return Options(
            str(data["arch"]),
            dict(data["specialisation"]),
            dict(data.get("spec", {})),
            data.get("only") is True,
        )


def choose_options(
    package: KernelPackage,
    arch: str | None = None,
    specialisation: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    only: bool = False,
) -> Options:
    """The options of a new session, the package's own choice where none is given.

    Raises:
        InputError: an arch or a specialisation that the kernel refuses, with its reason.
    """
    chosen = arch or package.archs[0]
    package.check_arch(chosen)
    if not package.specialisations:
        raise InputError(
            f"{package.file} is a bare source: adapt needs a package with a reference",
            fix="put kernel.toml and a reference spec beside it (see docs/kernels)",
        )
    wanted = dict(usual_specialisation(package)) | dict(specialisation or {})
    return Options(chosen, dict(package.specialisation(wanted)), spec or {}, only)


def usual_specialisation(package: KernelPackage) -> Mapping[str, str]:
    """The one shown where none is named: bfloat16 at head size 128 where there is one."""
    usual = {"T": "bf16", "D": "128"}
    legal = package.specialisations
    return next((s for s in legal if dict(s) == usual), legal[-1])
