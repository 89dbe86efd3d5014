"""What a session adapts besides kernel and spec: arch, specialisation, the spec's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import InputError
from engine.lift.package import KernelPackage


@dataclass(frozen=True, slots=True)
class Options:
    """The arch to build for, the specialisation that is shown and judged, and spec parameters."""

    arch: str
    specialisation: Mapping[str, str]
    spec: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "arch": self.arch,
            "specialisation": dict(self.specialisation),
            "spec": dict(self.spec),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Options:
        return Options(str(data["arch"]), dict(data["specialisation"]), dict(data.get("spec", {})))


def choose_options(
    package: KernelPackage,
    arch: str | None = None,
    specialisation: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Options:
    """The options of a new session, the package's own choice where none is given.

    Raises:
        InputError: an arch or a specialisation that the kernel refuses, with its reason.
    """
    chosen = arch or package.archs[0]
    if chosen in package.refusals:
        raise InputError(f"{package.name} is not built for {chosen}: {package.refusals[chosen]}")
    if chosen not in package.archs:
        raise InputError(
            f"{package.name} is not declared for {chosen}",
            fix=f"--arch one of: {', '.join(package.archs)}",
        )
    legal = package.specialisations
    wanted = {name: values[-1] for name, values in legal.items()}
    for name, value in (specialisation or {}).items():
        if name not in legal or value not in legal[name]:
            have = "; ".join(f"{n}: {', '.join(v)}" for n, v in legal.items())
            raise InputError(f"{package.name} has no {name} = {value}", fix=f"choose from {have}")
        wanted[name] = value
    return Options(chosen, wanted, spec or {})
