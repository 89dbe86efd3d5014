"""Every f32 that a kernel computes or loads, written down as it is executed, without compiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.ptx.isa.observe import THREAD_BITS, Observer
from engine.ptx.syntax import (
    Immediate,
    Instruction,
    Kernel,
    Module,
    Register,
    registers,
)

Array = np.ndarray[Any, Any]
_NOT_MADE = {"mov", "st", "red", "bra", "ret", "bar", "observe"}  # or nothing new


@dataclass(frozen=True, slots=True)
class Part:
    """What one instruction left in one register.

    Args:
        values: in float64, without what is undefined, made by `threads`; `last`: what each thread
            made last.
    """

    kernel: str
    at: Instruction
    register: str
    values: Array
    threads: Array
    last: Array


@dataclass(frozen=True, slots=True)
class Step:
    """The instructions of one operation at one place of the source."""

    parts: tuple[Part, ...]

    @property
    def at(self) -> Instruction:
        return self.parts[0].at


Site = tuple[str, Instruction, str]  # a kernel, an instruction of it, a register


def watched(module: Module) -> tuple[Module, dict[int, Site]]:
    """The module with an observation of each f32 after the instruction that makes it, and the
    instruction and register of each. What a wgmma makes is looked at before what first reads it."""
    kernels: dict[str, Kernel] = {}
    sites: dict[int, Site] = {}
    for name, kernel in module.kernels.items():
        code: list[Instruction] = []
        starts: list[int] = []
        late: dict[str, Instruction] = {}
        for at in kernel.code:
            starts.append(len(code))
            made = [r for r in _made(at) if kernel.registers[r] == "f32"]
            if at.name == "wgmma":
                late |= dict.fromkeys(made, at)
                code.append(at)
                continue
            for r in [r for r in registers(at.operands[1:]) if r in late]:
                if at.name == "mov":  # nvcc renames registers before it waits for them
                    late |= dict.fromkeys(registers(at.operands[:1]), late.pop(r))
                else:
                    code.append(_look(at, (name, late.pop(r), r), sites))
            code.append(at)
            code += [_look(at, (name, at, r), sites) for r in made if r not in late]
        starts.append(len(code))
        labels = {n: starts[k] for n, k in kernel.labels.items()}
        kernels[name] = replace(kernel, code=tuple(code), labels=labels)
    return replace(module, kernels=kernels), sites


def _look(at: Instruction, site: Site, sites: dict[int, Site]) -> Instruction:
    operands = (Register(site[2]), Immediate(len(sites)), Immediate(0), Immediate(1))
    sites[len(sites)] = site
    return replace(at, name="observe", modifiers=("b32",), operands=operands)


def _made(at: Instruction) -> list[str]:
    """The registers that an instruction computes or loads."""
    if at.name in _NOT_MADE or at.has("param") or not at.operands:
        return []
    return list(registers(at.operands[:1]))


def steps(observer: Observer, sites: Mapping[int, Site]) -> list[Step]:
    """What was seen, in the order of the code: one step for all instructions of one operation that
    stand at one line, inlined at the same lines."""
    seen: dict[int, list[tuple[Array, Array]]] = {}
    for (launch, place, _), events in sorted(observer.seen.items()):
        if events.threads:
            known = np.concatenate(events.known)
            bits = np.concatenate(events.bits).astype(np.uint32)[known]
            threads = np.concatenate(events.threads)[known] + (launch << THREAD_BITS)
            seen.setdefault(place, []).append((bits.view(np.float32).astype(np.float64), threads))
    groups: dict[tuple[str, ...], list[Part]] = {}
    for place, runs in sorted(seen.items()):
        kernel, at, register = sites[place]
        values, threads = (np.concatenate([r[n] for r in runs]) for n in (0, 1))
        last = values[len(values) - 1 - np.unique(threads[::-1], return_index=True)[1]]
        key = (at.opcode, *map(str, at.source.chain() if at.source else ()))
        groups.setdefault(key, []).append(Part(kernel, at, register, values, threads, last))
    return [Step(tuple(parts)) for parts in groups.values()]
