"""The launcher's constants that the size of a workspace depends on."""

from __future__ import annotations

from engine.cuir.nodes import Module
from engine.cuir.static.host_constants import host_constants
from engine.errors import TransferError
from engine.lift import KernelPackage, lift_source, specialisation_key
from engine.transfer.binding import Binding


def launch_constants(module: Module, binding: Binding) -> dict[str, int]:
    """The constants that the workspace's dims name, for the arch and types of `module`.

    Empty without a workspace. Raises `TransferError` for one that is not known at compile time.
    """
    space = binding.workspace
    if space is None:
        return {}
    found = host_constants(module)
    own = {d for t in binding.tensors for d in t.source_dims}
    missing = sorted(space.constants() - set(found) - own)
    if missing:
        raise TransferError(
            f"the workspace {space.field} needs {', '.join(missing)}, which the launcher does not "
            "give a whole number at compile time"
        )
    return {name: found[name] for name in sorted(space.constants()) if name in found}


def constants_by_arch(
    source: bytes, package: KernelPackage, binding: Binding
) -> dict[str, dict[str, dict[str, int]]]:
    """The constants of a kernel's lowered source, by arch and by specialisation key; empty without
    a workspace. Raises `TransferError`, `LiftError`."""
    if binding.workspace is None:
        return {}
    return {
        arch: {
            specialisation_key(one): launch_constants(
                lift_source(source, one, arch, entry=package.entry).module, binding
            )
            for one in package.specialisations
        }
        for arch in package.archs
    }
