"""Conformance of single instructions: the same PTX on a GPU and here, on the same inputs.

A case is made from an instruction as a kernel has it: an entry that loads each register it reads
from memory, executes it, and stores each register it writes. Instructions that only the memory or
other threads give a meaning (loads, barriers, copies, wgmma) have entries of their own in
`kernels/conformance/ptx`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.ptx.launch import Launch, run
from engine.ptx.memory import GLOBAL, HALF, WINDOW, Tensor
from engine.ptx.syntax import (
    Immediate,
    Instruction,
    Kernel,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Vector,
    width,
)
from engine.ptx.text.parser import parse_module

Array = np.ndarray[Any, Any]

THREADS, BLOCKS = 128, 8
SLOT = 16  # bytes of each register in memory

# Families whose result follows from their registers (of this warp) alone.
REGISTERS_ONLY = {
    "add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max", "neg", "abs", "copysign", "and",
    "or", "xor", "not", "shl", "shr", "shf", "bfe", "bfi", "prmt", "lop3", "popc", "clz", "brev",
    "ex2", "lg2", "rcp", "sqrt", "rsqrt", "sin", "cos", "tanh", "cvt", "setp", "selp", "mov",
    "shfl", "vote", "redux", "mma", "elect", "activemask", "dp4a", "dp2a", "set", "match", "bfind",
}  # fmt: skip
_WARP = {"shfl", "vote", "redux", "mma", "elect", "activemask", "match"}

# Bits of the largest error in units of the result's last place (PTX ISA, each instruction's table).
APPROXIMATE = {"ex2": 2, "lg2": 2, "rcp": 1, "rsqrt": 2, "sqrt": 2, "sin": 0, "cos": 0, "tanh": 0,
               "div": 2}  # fmt: skip
ABSOLUTE = {"sin": 2.0**-20.5, "cos": 2.0**-20.5, "tanh": 2.0**-10.9, "lg2": 2.0**-21.9}


@dataclass(frozen=True, slots=True)
class Case:
    """One instruction: its entry's PTX, what it reads, and where results stand.

    Args:
        reads: register and declared type of each input, in the order of their slots.
        writes: likewise of each result.
    """

    opcode: str
    at: Instruction
    name: str
    ptx: str
    reads: tuple[tuple[str, str], ...]
    writes: tuple[tuple[str, str], ...]
    fixed: Mapping[str, int] = field(default_factory=dict)


def cases(kernels: Iterable[Kernel]) -> dict[str, Case]:
    """A case for each opcode of these kernels that registers alone give a meaning."""
    out: dict[str, Case] = {}
    for kernel in kernels:
        for at in kernel.code:
            if at.name in REGISTERS_ONLY and at.opcode not in out:
                made = _case(at, kernel, f"case_{len(out)}")
                if made is not None:
                    out[at.opcode] = made
    return out


def _registers(operand: Operand) -> list[Register]:
    match operand:
        case Register():
            return [operand]
        case Vector(items):
            return [r for o in items for r in _registers(o)]
        case Pair(first, second):
            return _registers(first) + _registers(second)
    return []


def _text(operand: Operand, names: Mapping[str, str]) -> str:
    match operand:
        case Register(name, negated):
            return ("!" if negated else "") + names[name]
        case Vector(items):
            return "{" + ", ".join(_text(o, names) for o in items) + "}"
        case Pair(first, second):
            return f"{_text(first, names)}|{_text(second, names)}"
        case Sink():
            return "_"
        case Immediate(value, 4):
            return f"0f{value:08X}"
        case Immediate(value, 8):
            return f"0d{value:016X}"
        case Immediate(value):
            return str(value)
        case Special(name):
            return name
    raise ValueError(operand)


def _case(at: Instruction, kernel: Kernel, name: str) -> Case | None:
    types = kernel.registers
    try:
        written = list(dict.fromkeys(r.name for r in _registers(at.operands[0])))
        read = list(dict.fromkeys(r.name for o in at.operands[1:] for r in _registers(o)))
        names = {r: f"%v{k}" for k, r in enumerate(dict.fromkeys([*written, *read]))}
        text = ", ".join(_text(o, names) for o in at.operands)
    except (ValueError, KeyError):
        return None
    if any(types[r] == "b128" for r in names):
        return None
    fixed: dict[str, int] = {}
    if at.name in _WARP and at.name not in ("mma", "activemask"):
        mask = at.operands[-1]
        fixed |= {r.name: 0xFFFFFFFF for r in _registers(mask)}
        if at.name == "shfl":
            fixed |= {r.name: 31 for r in _registers(at.operands[3])}
            fixed |= {r.name: 3 for r in _registers(at.operands[2]) if at.has("idx")}
    lines = [
        f".visible .entry {name}(.param .u64 source, .param .u64 target)", "{",
        "\t.reg .b64 %in, %out, %at;", "\t.reg .b32 %t, %n;", "\t.reg .pred %q;",
        *(f"\t.reg .{types[r]} {v};" for r, v in names.items()),
        "\tmov.u32 %t, %ctaid.x;", "\tmov.u32 %n, %tid.x;", f"\tmad.lo.s32 %t, %t, {THREADS}, %n;",
        "\tld.param.u64 %in, [source];", "\tld.param.u64 %out, [target];",
        f"\tmul.wide.u32 %at, %t, {SLOT * max(len(read), 1)};", "\tadd.s64 %in, %in, %at;",
        f"\tmul.wide.u32 %at, %t, {SLOT * max(len(written), 1)};", "\tadd.s64 %out, %out, %at;",
    ]  # fmt: skip
    for k, r in enumerate(read):
        if types[r] == "pred":
            lines += [f"\tld.global.u32 %n, [%in+{SLOT * k}];", f"\tsetp.ne.u32 {names[r]}, %n, 0;"]
        else:
            bits = 8 * width(types[r])
            lines.append(f"\tld.global.b{bits} {names[r]}, [%in+{SLOT * k}];")
    lines.append(f"\t{at.opcode} {text};")
    for k, r in enumerate(written):
        if types[r] == "pred":
            lines += [
                f"\tselp.u32 %n, 1, 0, {names[r]};",
                f"\tst.global.u32 [%out+{SLOT * k}], %n;",
            ]
        else:
            bits = 8 * width(types[r])
            lines.append(f"\tst.global.b{bits} [%out+{SLOT * k}], {names[r]};")
    lines += ["\tret;", "}", ""]
    return Case(at.opcode, at, name, "\n".join(lines), tuple((r, types[r]) for r in read),
                tuple((r, types[r]) for r in written), fixed)  # fmt: skip


def module_text(made: Iterable[Case]) -> str:
    """One PTX module of all cases."""
    return ".version 8.6\n.target sm_90a\n.address_size 64\n\n" + "\n".join(c.ptx for c in made)


_SPECIAL = np.array([
    0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001,
    0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F7FFFFF, 0x4B000001, 0xCB000001, 0x40490FDB,
], np.uint32)  # fmt: skip


def inputs(case: Case) -> Array:
    """The input bytes of all threads: numbers around 1, then bits of all kinds, then the ends."""
    random = np.random.default_rng(sum(case.opcode.encode()))
    count = THREADS * BLOCKS
    out = np.zeros((count, max(len(case.reads), 1), SLOT), np.uint8)
    halves = any(m in ("bf16x2", "f16x2", "bf16", "f16") for m in case.at.modifiers)
    eight = any(m in ("e4m3", "e5m2") for m in case.at.modifiers)
    for k, (name, type) in enumerate(case.reads):
        words = random.integers(0, 1 << 32, (count, 4), np.uint64).astype(np.uint32)
        near = random.standard_normal((count, 4)).astype(np.float32)
        if halves or case.at.name == "mma":
            pair = random.standard_normal((count, 8)).astype(np.float32).view(np.uint32) >> 16
            words[: count // 2] = (pair[:, ::2] | pair[:, 1::2] << 16)[: count // 2]
        else:
            words[: count // 4] = near.view(np.uint32)[: count // 4]
            words[count // 4 : count // 2] = random.integers(0, 70, (count // 4, 4))
            words[-256:] = random.choice(_SPECIAL, (256, 4))
        if case.at.name in ("bfe", "bfi") and k >= len(case.reads) - 2:
            words &= 255  # the ISA restricts places and lengths to a byte
        if case.at.name in ("sin", "cos"):
            # The ISA bounds the error in [-pi, pi].
            words = (near % np.float32(3)).view(np.uint32)
        if case.at.name == "mma":
            words[count // 2 :] = words[: count // 2]
            if type == "f32":
                words = near.view(np.uint32)
        if case.at.name == "mma" and eight:
            words &= 0xBFBFBFBF  # below 2 in size, as f32 is near 1
            words = near.view(np.uint32) if type == "f32" else words
        if case.at.name == "match":
            words %= 5
        if type == "pred":
            words &= 1
        if name in case.fixed:
            words[:] = case.fixed[name]
        out[:, k] = words.view(np.uint8)
    return out


def expected(made: Mapping[str, Case], given: Mapping[str, Array]) -> dict[str, Array]:
    """What this machine computes for each case."""
    module = parse_module(module_text(made.values()), "conformance")
    out: dict[str, Array] = {}
    for opcode, case in made.items():
        result = np.zeros((THREADS * BLOCKS, max(len(case.writes), 1), SLOT), np.uint8)
        tensors = [Tensor("source", given[opcode]), Tensor("target", result)]
        block = b"".join(
            (GLOBAL + (k << WINDOW) + HALF).to_bytes(8, "little") for k in range(len(tensors))
        )
        run(module, Launch(case.name, (BLOCKS, 1, 1), (THREADS, 1, 1), 0, block), tensors)
        out[opcode] = result
    return out


def differences(case: Case, here: Array, there: Array) -> str:
    """How a GPU's results differ from ours; nothing where they agree within the ISA's bound."""
    modifiers = case.at.modifiers
    for k, (_, type) in enumerate(case.writes):
        size = 4 if type == "pred" else width(type)
        a, b = (x[:, k, :size].copy().view(np.dtype(f"u{size}"))[:, 0] for x in (here, there))
        bad = a != b
        real = next((m for m in modifiers if m in ("f32", "f64", "f16", "bf16")), "")
        if size == 4 and real == "f32" and type != "pred":
            x, y = a.view(np.float32), b.view(np.float32)
            bad &= ~(np.isnan(x) & np.isnan(y))
            bad &= ~_close(case, x, y)
        elif size == 8 and real == "f64":
            x, y = a.view(np.float64), b.view(np.float64)
            bad &= ~(np.isnan(x) & np.isnan(y))
        elif size == 4 and ("bf16x2" in modifiers or "f16x2" in modifiers):
            nan = 0x7F80 if "bf16x2" in modifiers else 0x7C00
            u, v = (z.view(np.uint16).reshape(-1, 2).astype(int) for z in (a, b))
            both = ((u & 0x7FFF) > nan) & ((v & 0x7FFF) > nan)
            bad = ((u != v) & ~both).any(1)
        if bad.any():
            t = int(bad.argmax())
            return f"{int(bad.sum())} of {len(bad)}: thread {t} gives {a[t]:#x}, a GPU {b[t]:#x}"
    return ""


def _close(case: Case, x: Array, y: Array) -> Array:
    name, modifiers = case.at.name, case.at.modifiers
    if name == "mma":
        # The order in which products are added is not fixed; nor, of 8-bit floats, to how many
        # bits sums of up to 32 products below 4 are kept: 14 of them are asked for.
        eight = any(m in ("e4m3", "e5m2") for m in modifiers)
        near: Array = np.abs(x - y) <= (2.0**-7 if eight else 2.0**-17)
        return near
    if "approx" not in modifiers and "full" not in modifiers:
        return np.zeros(len(x), np.bool_)
    with np.errstate(all="ignore"):
        ulp = np.spacing(np.maximum(np.abs(x), np.float32(2.0**-126)))
        bound = APPROXIMATE[name] * ulp
        if name in ABSOLUTE:
            bound = np.maximum(bound, ABSOLUTE[name])
        near = np.abs(x.astype(np.float64) - y) <= bound
        tiny = (np.abs(x) < 2.0**-126) & (np.abs(y) < 2.0**-126)
        return near | tiny
