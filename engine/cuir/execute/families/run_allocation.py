"""Register reallocation: warpgroups give registers back, others take them."""

from __future__ import annotations

from typing import Any

from engine.cuir.execute.families.run_movement import blocked
from engine.cuir.execute.state.values import RegTile


def lower_registers(part: Any, out: Any, n: int) -> None:
    part.machine.collective(part)
    unit = part.unit
    if n > unit.registers:
        part.program.report(
            "registers_over_file",
            part.path,
            f"lowers to {n} from {unit.registers} registers",
            part.index,
        )
    elif n < unit.registers:
        most = max((_registers(part, v) for v in part.frames[-1].env.values()
                    if isinstance(v, RegTile)), default=0)  # fmt: skip
        if most > n:
            part.program.report(
                "registers_over_file",
                part.path,
                f"keeps {n} registers and holds a tile of {most}",
                part.index,
            )
        part.machine.register_pool += (unit.registers - n) * part.machine.unit_threads
        unit.registers = n


def _registers(part: Any, tile: RegTile) -> int:
    """Registers of each thread that hold the tile."""
    bits = {"f32": 32, "i32": 32, "bits": 1}.get(tile.type.dtype, 16)
    return int(tile.data.numel() * part.parts * bits // (32 * part.machine.unit_threads))


def raise_registers(part: Any, out: Any, n: int) -> Any:
    machine, unit = part.machine, part.unit
    machine.collective(part)
    if n < unit.registers:
        part.program.report(
            "registers_over_file",
            part.path,
            f"raises to {n} from {unit.registers} registers",
            part.index,
        )
        return None

    def missing() -> int:
        return int((n - unit.registers) * machine.unit_threads - machine.register_pool)

    def finish() -> None:
        machine.register_pool -= (n - unit.registers) * machine.unit_threads
        unit.registers = n

    return blocked(
        lambda: missing() <= 0, finish,
        f"waits for {n} registers per thread", ("registers", n, missing),
    )  # fmt: skip
