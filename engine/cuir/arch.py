"""Arch facts, read from arch.toml: limits, instructions, barrier kinds."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.cuir.nodes import Module, Name, Str
from engine.errors import CuirError, InputError

WARP_THREADS = 32
WARPGROUP_THREADS = 128
TABLE = Path(__file__).with_name("arch.toml")


@dataclass(frozen=True, slots=True)
class Arch:
    """What one arch offers. Sizes in bytes, registers in 32-bit registers."""

    name: str
    shared_block: int
    shared_sm: int
    registers_sm: int
    registers_thread: int
    warps_sm: int
    threads_block: int
    async_tile: int
    named_barriers: int
    barriers: frozenset[str]
    instructions: frozenset[str]

    def has(self, instruction: str | None) -> bool:
        return instruction is None or instruction in self.instructions

    def registers_at_launch(self, threads: int, min_blocks: int = 1) -> int:
        """Registers per thread that ptxas may use under `__launch_bounds__(threads, min_blocks)`.

        The file is dealt in steps of eight registers per thread (CUDA occupancy rules).
        """
        return min(self.registers_thread, self.registers_sm // (threads * min_blocks) // 8 * 8)


@cache
def archs() -> Mapping[str, Arch]:
    """Every arch of the table, by name."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    sets = {"barriers", "instructions"}
    made = {}
    for name, row in table.items():
        facts: dict[str, Any] = {
            f.name: frozenset(row[f.name]) if f.name in sets else row[f.name]
            for f in fields(Arch)
            if f.name != "name"
        }
        made[name] = Arch(name, **facts)
    return MappingProxyType(made)


def arch(name: str) -> Arch:
    """The facts of `name`. Raises `InputError` for an arch that is not in the table."""
    found = archs().get(name)
    if found is None:
        raise InputError(f"unknown arch {name!r}", fix=f"one of {', '.join(archs())}")
    return found


def arch_name(module: Module) -> str:
    """The arch that a module is specialised for; empty where it names none."""
    value = dict(module.spec).get("arch")
    return value.id if isinstance(value, Name) else value.value if isinstance(value, Str) else ""


def arch_of(module: Module) -> Arch:
    """The facts of the arch that a module is specialised for.

    Raises:
        InputError: the module names none, or one that is not in the table.
    """
    name = arch_name(module)
    if not name:
        raise CuirError("the module names no arch", fix="specialisation(arch='sm_80', ...)")
    return arch(name)
