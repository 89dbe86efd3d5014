"""A text under the specialisation that a module is for."""

from __future__ import annotations

from engine.cuir.nodes import Module, Name, Num, Str
from engine.cuir.printer import print_expr
from engine.errors import LowerError
from engine.lift.cpp.provenance import Lifted
from engine.lift.files.lifter import lift_source


def specialisation_of(module: Module) -> tuple[str, dict[str, str]]:
    """The arch and the template arguments that a module is for, as the lifter takes them."""
    values: dict[str, str] = {}
    for name, value in module.spec:
        match value:
            case Name(id):
                values[name] = id
            case Str(text):
                values[name] = text
            case Num(bool() as truth):
                values[name] = "true" if truth else "false"
            case Num(number):
                values[name] = str(number)
            case _:
                raise LowerError(f"specialisation: {name}={print_expr(value)} is no plain value")
    arch = values.pop("arch", None)
    if arch is None:
        raise LowerError("the module names no arch", fix="write specialisation(arch='sm_80', ...)")
    return arch, values


def lift_for(source: bytes, module: Module, *, entry: str = "launch") -> Lifted:
    """`source` under the specialisation of `module`."""
    arch, values = specialisation_of(module)
    return lift_source(source, values, arch, file="lowered.cu", entry=entry)
