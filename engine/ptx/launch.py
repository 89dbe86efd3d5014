"""Runs a launch of a kernel: its grid in batches of blocks that execute together."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from engine.errors import InputError
from engine.ptx.arrays import Array, accessed
from engine.ptx.barriers import Barriers
from engine.ptx.decode import decode
from engine.ptx.findings import Finding, Findings
from engine.ptx.isa import (
    arithmetic,
    bits,
    bulk,
    compare,
    control,
    convert,
    copies,
    data,
    functions,
    matrix,
    mbarrier,
    warp,
    wgmma,
    wmma,
)
from engine.ptx.isa.observe import Observer
from engine.ptx.lanes import WARP
from engine.ptx.machine import MOST, Machine
from engine.ptx.mbarriers import MBarriers
from engine.ptx.memory import Memory, Tensor
from engine.ptx.ordering import Between, Clocks, History
from engine.ptx.registers import Registers, Values
from engine.ptx.syntax import Kernel, Module, Variable, width

FAMILIES = (arithmetic.OPS, bits.OPS, functions.OPS, convert.OPS, compare.OPS, data.OPS,
            control.OPS, warp.OPS, matrix.OPS, mbarrier.OPS, bulk.OPS, wgmma.OPS,
            wmma.OPS)  # fmt: skip
PURE = frozenset({"mov", *arithmetic.OPS, *bits.OPS, *functions.OPS, *convert.OPS, *compare.OPS})
MOST_THREADS = 4096  # that execute together: with more, it is numpy's own loops that take the time
# Their number times the bytes of a block's shared memory, of which each warp's accesses are noted,
# an eighth of it in bytes; and where all blocks have to execute together.
MOST_NOTED, MOST_COOPERATIVE = 1 << 28, 1 << 33
MOST_COOPERATIVE_THREADS = 1 << 17


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel call as the launcher made it.

    Args:
        parameters: the kernel's parameter block; addresses of tensors are what `address` gives.
        shared: dynamic shared memory of a block, bytes.
        allowed: of which the launcher asked for so much (cudaFuncSetAttribute); 0: it did not ask;
            None: whether it did is not looked at.
        registers: of a thread, as ptxas gives them; 0: it was not asked.
        cooperative: all blocks are there at once, and may wait for each other.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    parameters: bytes
    allowed: int | None = None
    registers: int = 0
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left: findings, and how much was executed in how many seconds.

    `carried`: by the PTX line of a load, the lines of the stores whose values it read, as far as it
    was looked at. `ran`: the PTX lines of the instructions that some thread came to.
    """

    findings: tuple[Finding, ...]
    instructions: int
    thread_instructions: int
    seconds: float
    carried: Mapping[int, frozenset[int]]
    ran: frozenset[int]


def run(
    module: Module, launch: Launch, tensors: list[Tensor], seed: int | None = None,
    most: int = MOST, observer: Observer | None = None, own: dict[str, Tensor] | None = None,
) -> Outcome:  # fmt: skip
    """Executes every thread of every block; the tensors hold what the kernel left in them.

    Args:
        seed: the order of warps; None: all go together.
        most: instructions of a batch of blocks after which the kernel counts as endless.
        observer: executes the `observe` instructions of a source that has such; values count then,
            and what orders accesses is not looked at.
        own: the module's variables in global and constant memory by name, as launches before left
            them; those that are missing are added.

    Raises:
        InputError: for a kernel that is not there, or what is not executed yet.
    """
    kernel = module.kernels.get(launch.kernel)
    if kernel is None:
        known = ", ".join(module.kernels) or "none"
        raise InputError(f"no kernel {launch.kernel} in the PTX; there are: {known}")
    if kernel.cluster != 1:
        raise InputError(f"{kernel.code[0].source or kernel.name}: a cluster of {kernel.cluster} "
                         "blocks is not executed yet")  # fmt: skip
    began = time.perf_counter()
    findings = Findings(launch.grid, launch.block)
    for words in _refused(module, kernel, launch):
        findings.add("refused launch", kernel.code[0], words)
    if len(findings):
        return Outcome(tuple(findings), 0, 0, 0.0, {}, frozenset())
    total = int(np.prod(launch.grid))
    batch = _together(module, kernel, launch)
    declared = tuple(v for v in (*module.variables, *kernel.variables) if v.space == "shared")
    arrays = accessed(kernel, declared, layout(declared)[0])
    instructions = thread_instructions = 0
    ran = np.zeros(len(kernel.code), np.bool_)
    carried: dict[int, frozenset[int]] = {}
    before: History | None = None
    own = {} if own is None else own
    for v in (*module.variables, *kernel.variables):
        if v.space in ("global", "const"):
            own.setdefault(v.name, Tensor(v.name, np.frombuffer(v.initial, np.uint8).copy()))
    between = Between()
    for first in range(0, total, batch):
        count = min(batch, total - first)
        machine = _machine(module, kernel, launch, tensors, own, first, count, findings,
                           between, arrays, observer is None)  # fmt: skip
        observed = observer.ops if observer else {}
        machine.code = decode(machine, (*FAMILIES, observed), PURE)
        if before is not None:
            machine.memory.history["global"].follow(before)
        before = machine.memory.history["global"]
        machine.run(seed, most)
        machine.bulk.finish()
        _reallocation(machine)
        instructions += machine.executed
        ran |= machine.ran
        thread_instructions += machine.executed_threads
        machine.memory.give_back()
        for line, looks in machine.memory.carried.items():
            written = frozenset(np.concatenate(looks).tolist()) - {0}
            carried[line] = carried.get(line, frozenset()) | written
    seconds = time.perf_counter() - began
    lines = frozenset(at.line for at, came in zip(kernel.code, ran, strict=True) if came)
    return Outcome(tuple(findings), instructions, thread_instructions, seconds, carried, lines)


def _together(module: Module, kernel: Kernel, launch: Launch) -> int:
    """How many blocks execute together.

    Raises:
        InputError: for a cooperative launch (CUDA C++ Programming Guide, "Grid Synchronization")
            of more than can.
    """
    threads, shared = whole_warps(launch), launch.shared + _static(module, kernel)[1]
    if launch.cooperative:
        total = math.prod(launch.grid)
        many, noted = total * threads, total * threads * shared
        if many > MOST_COOPERATIVE_THREADS or noted > MOST_COOPERATIVE:
            raise InputError(
                f"{kernel.name}: a cooperative launch of {total} blocks of {threads} threads with "
                f"{shared} bytes of shared memory: all of them have to execute together, and the "
                "machine has no room for so many",
                fix=f"give smaller sizes: up to {MOST_COOPERATIVE_THREADS} threads in all, and "
                f"{MOST_COOPERATIVE >> 20} MiB of threads times shared bytes",
            )
        return total
    return max(1, min(MOST_THREADS // threads, MOST_NOTED // max(threads * shared, 1)))


def whole_warps(launch: Launch) -> int:
    """Threads of a block, counted in whole warps."""
    return -(-int(np.prod(launch.block)) // WARP) * WARP


def _static(module: Module, kernel: Kernel) -> tuple[dict[str, int], int]:
    """The `layout` of the shared memory that the PTX declares."""
    variables = (*module.variables, *kernel.variables)
    return layout(tuple(v for v in variables if v.space == "shared"))


def layout(variables: tuple[Variable, ...]) -> tuple[dict[str, int], int]:
    """Where each variable of a space lies, the extern ones last; and the bytes before those."""
    places: dict[str, int] = {}
    at = 0
    for variable in sorted(variables, key=lambda v: not v.size):
        at = -(-at // max(variable.align, 1)) * max(variable.align, 1)
        places[variable.name] = at
        at += variable.size
    return places, at


# Bytes of shared memory that a block can have, by architecture, and without asking; the most in
# each dimension; registers of a block, which four warps get at a time, 256 each (CUDA C++
# Programming Guide, "Technical Specifications per Compute Capability").
SHARED_LIMITS = {"sm_80": 163 << 10, "sm_86": 99 << 10, "sm_89": 99 << 10, "sm_90": 227 << 10,
                 "sm_100": 227 << 10, "sm_120": 99 << 10}  # fmt: skip
UNASKED = 48 << 10
GRID, BLOCK, THREADS = ((1 << 31) - 1, 65535, 65535), (1024, 1024, 64), 1024
REGISTERS = 64 << 10


def _refused(module: Module, kernel: Kernel, launch: Launch) -> Iterator[str]:
    """Why the CUDA runtime does not launch this, in words."""
    for what, dims, limits in ("gridDim", launch.grid, GRID), ("blockDim", launch.block, BLOCK):
        for axis, value, most in zip("xyz", dims, limits, strict=True):
            if not 1 <= value <= most:
                yield f"{what}.{axis} is {value}: 1 to {most} are allowed"
    threads = math.prod(launch.block)
    if threads > THREADS:
        yield f"{threads} threads a block, of {THREADS}"
    elif kernel.max_threads and threads > kernel.max_threads:
        yield f"{threads} threads a block, and its launch bounds are {kernel.max_threads}"
    held = -(-threads // 128) * 128 * (-(-launch.registers // 8) * 8)
    if held > REGISTERS:
        yield f"{launch.registers} registers for each of {threads} threads: {held}, of {REGISTERS}"
    limit = SHARED_LIMITS.get(module.target.rstrip("af"), 227 << 10)
    shared = _static(module, kernel)[1] + launch.shared
    if shared > limit:
        yield f"{shared} bytes of shared memory a block, of {limit}"
    elif shared > UNASKED and launch.allowed is not None and launch.shared > launch.allowed:
        asked = f"allows {launch.allowed}" if launch.allowed else "was not called"
        yield f"{launch.shared} bytes of dynamic shared memory, and cudaFuncSetAttribute {asked}"


def _reallocation(machine: Machine) -> None:
    """Whether the registers that warps asked for fit together: one that waits for more hangs."""
    if machine.grew is None:
        return
    threads = machine.threads
    given = min(REGISTERS // threads // 8 * 8, 255)  # at the launch, at most
    held = np.where(machine.held, machine.held, given).reshape(machine.blocks, -1).sum(1) * 32
    if int(held.max()) > max(given * threads, 1):
        words = f"{int(held.max())} registers of a block, which was launched with {given * threads}"
        machine.findings.add("too many resources", machine.grew, words)


def _machine(
    module: Module, kernel: Kernel, launch: Launch, tensors: list[Tensor], own: dict[str, Tensor],
    first: int, count: int, findings: Findings, between: Between,
    arrays: dict[int, Array], ordered: bool,
) -> Machine:  # fmt: skip
    threads = whole_warps(launch)
    clocks = Clocks(count, threads // WARP, first, between)
    variables = (*module.variables, *kernel.variables)
    shared, static = _static(module, kernel)
    local, local_bytes = layout(tuple(v for v in variables if v.space == "local"))
    pieces = [*tensors, *own.values()]
    memory = Memory(
        pieces, count, threads, static + launch.shared, -(-local_bytes // 16) * 16,
        launch.parameters, clocks, findings, _granule(kernel), first,
        {at.line: at for at in kernel.code}, arrays, ordered,
    )  # fmt: skip
    registers = Registers(kernel.registers, count * threads, _special(launch, first, count))
    machine = Machine(kernel, registers, memory, clocks, findings, count, threads,
                      int(np.prod(launch.block)))  # fmt: skip
    machine.symbols = {**shared, **local}
    machine.symbols |= {p.name: p.offset for p in kernel.parameters}
    for k, name in enumerate(own, start=len(tensors)):
        machine.symbols[name] = memory.address(k)
    machine.barriers = Barriers(machine)
    machine.copies = copies.Copies(machine)
    machine.mbarriers = MBarriers(machine)
    machine.bulk = bulk.Bulk(machine)
    machine.matmuls = wgmma.Matmuls(machine)
    return machine


def _granule(kernel: Kernel) -> int:
    """Bytes that are told apart: the smallest item that the kernel stores."""
    sizes = [width(at.type) for at in kernel.code if at.name in ("st", "atom", "red") and at.type]
    return min([4, *(s for s in sizes if s)])


def _special(launch: Launch, first: int, count: int) -> dict[str, Values]:
    """What the hardware's registers hold: [2, threads] each."""
    x, y, _ = launch.block
    threads = whole_warps(launch)
    thread = np.tile(np.arange(threads), count)
    block = np.repeat(np.arange(first, first + count), threads)
    gx, gy, _ = launch.grid
    values = {
        "%tid.x": thread % x, "%tid.y": thread // x % y, "%tid.z": thread // (x * y),
        "%ctaid.x": block % gx, "%ctaid.y": block // gx % gy, "%ctaid.z": block // (gx * gy),
        "%laneid": thread % 32, "%warpid": thread // 32,
    }  # fmt: skip
    lane = thread % 32
    values |= {
        "%lanemask_eq": 1 << lane, "%lanemask_lt": (1 << lane) - 1, "%lanemask_le": (2 << lane) - 1,
        "%lanemask_gt": 0xFFFFFFFF & ~((2 << lane) - 1),
        "%lanemask_ge": 0xFFFFFFFF & ~((1 << lane) - 1),
    }  # fmt: skip
    for k, axis in enumerate("xyz"):
        values[f"%ntid.{axis}"] = np.full(len(thread), launch.block[k])
        values[f"%nctaid.{axis}"] = np.full(len(thread), launch.grid[k])
        values[f"%cluster_ctaid.{axis}"] = np.zeros(len(thread), np.int64)
        values[f"%cluster_nctaid.{axis}"] = np.ones(len(thread), np.int64)
        values[f"%clusterid.{axis}"] = values[f"%ctaid.{axis}"]
        values[f"%nclusterid.{axis}"] = values[f"%nctaid.{axis}"]
    values["%cluster_ctarank"] = np.zeros(len(thread), np.int64)
    values["%cluster_nctarank"] = np.ones(len(thread), np.int64)
    values["%nwarpid"] = np.full(len(thread), threads // WARP)
    values["%dynamic_smem_size"] = np.full(len(thread), launch.shared)
    return {
        name: np.broadcast_to(v.astype(np.uint32), (2, len(thread))) for name, v in values.items()
    }
