"""How many blocks of a kernel are resident on one multiprocessor at the same time.

The rules are those of NVIDIA's occupancy calculator for compute capability 7.0 and later: registers
are dealt to warps in steps of 256, warps to four partitions with a quarter of the register file
each, shared memory in steps of 128 bytes with 1 KiB per block kept by the system from 8.0 on.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.arch import WARP_THREADS, Arch

_REGISTER_STEP = 256
_PARTITIONS = 4
_SHARED_STEP = 128
_SYSTEM_SHARED = 1024

# Resident blocks per multiprocessor (CUDA programming guide, compute capabilities table).
_MOST_BLOCKS = {"sm_75": 16, "sm_86": 16, "sm_89": 24, "sm_120": 24}
_MOST_BLOCKS_ELSE = 32


@dataclass(frozen=True, slots=True)
class Residency:
    """Blocks per multiprocessor, and what allows no more: registers, shared, warps or blocks.

    0 blocks mean that the kernel cannot be launched at all.
    """

    blocks: int
    limit: str


def resident_blocks(arch: Arch, threads: int, registers: int, shared: int) -> Residency:
    """Blocks of `threads` threads with `registers` each and `shared` bytes (static + dynamic)."""
    if threads <= 0 or registers < 0 or shared < 0:
        raise ValueError("threads must be positive, registers and shared memory not negative")
    warps = -(-threads // WARP_THREADS)
    limits = {"warps": arch.warps_sm // warps, "blocks": _most_blocks(arch)}
    if threads > arch.threads_block:
        limits["warps"] = 0
    per_warp = _up(max(registers, 1) * WARP_THREADS, _REGISTER_STEP)
    fitting = arch.registers_sm // _PARTITIONS // per_warp * _PARTITIONS
    limits["registers"] = fitting // warps if registers <= arch.registers_thread else 0
    system = 0 if arch.name == "sm_75" else _SYSTEM_SHARED
    per_block = _up(shared + system, _SHARED_STEP)
    limits["shared"] = arch.shared_sm // per_block if per_block else limits["blocks"]
    if shared > arch.shared_block:
        limits["shared"] = 0
    name = min(limits, key=lambda key: limits[key])
    return Residency(limits[name], name)


def _most_blocks(arch: Arch) -> int:
    return _MOST_BLOCKS.get(arch.name, _MOST_BLOCKS_ELSE)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
