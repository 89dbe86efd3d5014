"""Conformance cases of instructions that memory gives a meaning: loads, stores, copies, matmuls.

Each is an entry of its own that reads halves from `source` and leaves words in `target`, with a
tensor map of either where it copies boxes. Those that other threads give a meaning are written by
hand in `kernels/conformance/ptx`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.ptx.launch import Launch, run
from engine.ptx.memory import GLOBAL, HALF, WINDOW, Tensor
from engine.ptx.syntax import Instruction, Kernel, width
from engine.ptx.tensor_maps import SIZE, TensorMap, encode
from engine.ptx.text.parser import parse_module

Array = np.ndarray[Any, Any]

THREADS = 128
SHARED = 64 << 10
WORDS = 8192  # of source and target
BF16 = 9  # CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
# A tensor of 2 x 2 x 4 x 16 x 64 halves, its boxes 16 rows of one swizzle's width.
SIZES = (64, 16, 4, 2, 2)


@dataclass(frozen=True, slots=True)
class MemoryCase:
    """One entry.

    Args:
        opcodes: what it proves.
        map: dimensions of the tensor map it is given, and bytes of its swizzle; None: no map.
        of: `source` or `target`, what the map is of.
    """

    name: str
    opcodes: tuple[str, ...]
    ptx: str
    map: tuple[int, int] | None = None
    of: str = "source"

    def tensor_map(self, address: int) -> TensorMap:
        assert self.map is not None
        rank, swizzle = self.map
        strides = tuple(2 * int(np.prod(SIZES[:k])) for k in range(rank))
        box = ((swizzle or 32) // 2, 16, *[1] * (rank - 2))
        return TensorMap(address, 2, SIZES[:rank], strides, box[:rank], swizzle)


def words() -> Array:
    """What every entry reads: bfloat16 numbers around 0."""
    values = np.random.default_rng(1).standard_normal(2 * WORDS).astype(np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    return halves.view(np.uint32)


def memory_cases(kernels: Iterable[Kernel]) -> dict[str, MemoryCase]:
    """A case for each load, store, matmul of a warpgroup and tensor copy of these kernels."""
    out: dict[str, MemoryCase] = {}
    for kernel in kernels:
        for at in kernel.code:
            if at.opcode in out:
                continue
            made = memory_case(at, f"memory_{re.sub(r'[^a-zA-Z0-9]', '_', at.opcode)}")
            if made is not None:
                out[at.opcode] = made
    return out


def memory_case(at: Instruction, name: str) -> MemoryCase | None:
    if at.name in ("ld", "st") and _space(at) in ("global", "shared"):
        return _access(at, name)
    if at.name == "wgmma" and at.has("mma_async"):
        return _matmul(at, name)
    if at.name == "cp" and at.has("tensor") and not at.has("prefetch"):
        return _tensor_copy(at, name)
    return None


def _space(at: Instruction) -> str:
    found = [m.split("::")[0] for m in at.modifiers if m.split("::")[0] in ("global", "shared")]
    return found[0] if found else ""


_FILL = """\
	mov.u32 %i, %t;
fill:
	mul.wide.u32 %x, %i, 4;
	add.s64 %x, %x, %in;
	ld.global.b32 %w, [%x];
	shl.b32 %a, %i, 2;
	add.u32 %a, %a, %s;
	st.shared.b32 [%a], %w;
	add.u32 %i, %i, 128;
	setp.lt.u32 %p, %i, 8192;
	@%p bra fill;
	fence.proxy.async;
	bar.sync 0;
"""
_DRAIN = """\
	bar.sync 0;
	mov.u32 %i, %t;
drain:
	shl.b32 %a, %i, 2;
	add.u32 %a, %a, %s;
	ld.shared.b32 %w, [%a];
	mul.wide.u32 %x, %i, 4;
	add.s64 %x, %x, %out;
	st.global.b32 [%x], %w;
	add.u32 %i, %i, 128;
	setp.lt.u32 %p, %i, 8192;
	@%p bra drain;
"""


def _entry(name: str, body: str, declared: str = "", mapped: bool = False) -> str:
    parameters = ".param .u64 source, .param .u64 target"
    if mapped:
        parameters = f".param .align 64 .b8 map[{SIZE}], {parameters}"
    return f"""\
.visible .entry {name}({parameters})
{{
	.reg .b64 %in, %out, %x, %m;
	.reg .b32 %t, %i, %w, %a, %s;
	.reg .pred %p;
	{declared}
	ld.param.u64 %in, [source];
	ld.param.u64 %out, [target];
	mov.u32 %t, %tid.x;
	mov.u32 %s, bytes;
{body}	ret;
}}
"""


def _access(at: Instruction, name: str) -> MemoryCase:
    """A load of each thread's own 32 bytes, or a store of them."""
    count = next((int(m[1]) for m in at.modifiers if m in ("v2", "v4", "v8")), 1)
    size, bits = width(at.type), 8 * width(at.type)
    kind = at.type if at.type[0] == "f" else f"b{bits}"
    declared = f".reg .{'b16' if size == 1 else kind} %v<{count}>;"
    values = ", ".join(f"%v{k}" for k in range(count))
    group = f"{{{values}}}" if count > 1 else values
    body = "\tmul.wide.u32 %x, %t, 32;\n\tadd.s64 %in, %in, %x;\n\tadd.s64 %out, %out, %x;\n"
    shared = _space(at) == "shared"
    if shared:
        body = _FILL + body + "\tmul.lo.u32 %a, %t, 32;\n\tadd.u32 %a, %a, %s;\n"
    if at.name == "ld":
        body += f"\t{at.opcode} {group}, [{'%a' if shared else '%in'}];\n"
        body += "".join(f"\tst.global.b{bits} [%out+{k * size}], %v{k};\n" for k in range(count))
    else:
        body += "".join(f"\tld.global.b{bits} %v{k}, [%in+{k * size}];\n" for k in range(count))
        body += f"\t{at.opcode} [{'%a' if shared else '%out'}], {group};\n"
        if shared:
            body += "\tld.param.u64 %out, [target];\n" + _DRAIN
    return MemoryCase(name, (at.opcode,), _entry(name, body, declared))


def _matmul(at: Instruction, name: str) -> MemoryCase:
    """K-major operands in shared memory, swizzled by 128 bytes, added to numbers of the thread."""
    n = int(re.findall(r"n(\d+)k", at.opcode)[0])
    count = n // 2
    d = ", ".join(f"%d{k}" for k in range(count))
    body = _FILL + "".join(f"\tcvt.rn.f32.u32 %d{k}, %t;\n" for k in range(count))
    body += f"""\
	shr.u32 %a, %s, 4;
	cvt.u64.u32 %x, %a;
	mov.u64 %m, 0x4000004000010000;
	or.b64 %m, %m, %x;
	setp.eq.u32 %p, 0, 0;
	wgmma.fence.sync.aligned;
	{at.opcode} {{{d}}}, %m, %m, %p, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	mul.wide.u32 %x, %t, 256;
	add.s64 %out, %out, %x;
"""
    kept = min(count, 64)
    body += "".join(f"\tst.global.f32 [%out+{4 * k}], %d{k};\n" for k in range(kept))
    return MemoryCase(name, (at.opcode,), _entry(name, body, f".reg .f32 %d<{count}>;"))


# What stands around the copies and takes part in the result.
_AROUND_LOAD = ("mbarrier.init.shared::cta.b64", "mbarrier.arrive.expect_tx.shared::cta.b64",
                "mbarrier.try_wait.parity.shared::cta.b64", "fence.mbarrier_init.release.cluster",
                "fence.proxy.async.shared::cta", "bar.warp.sync",
                "mapa.shared::cluster.u32")  # fmt: skip
_AROUND_STORE = ("cp.async.bulk.commit_group", "cp.async.bulk.wait_group.read",
                 "cp.async.bulk.wait_group", "fence.proxy.async")  # fmt: skip
_WAIT = """\
again:
	mbarrier.try_wait.parity.shared::cta.b64 %p, [barrier], 0;
	@!%p bra again;
"""


def _tensor_copy(at: Instruction, name: str) -> MemoryCase:
    """A box that hangs over the tensor's first row, into or out of shared memory."""
    rank = next(int(m[0]) for m in at.modifiers if re.fullmatch(r"\dd", m))
    swizzle = 128 if at.has("tile") else {2: 128, 3: 64, 4: 32, 5: 0}.get(rank, 128)
    corner = ", ".join(["%zero", "%some", *["%one"] * (rank - 2)][:rank])
    declared = ".reg .b32 %zero, %one, %some; .reg .pred %first;"
    body = (
        _FILL
        + """\
	mov.b64 %m, map;
	cvta.param.u64 %m, %m;
	mov.u32 %zero, 0;
	mov.u32 %one, 1;
	mov.s32 %some, -3;
	setp.eq.u32 %first, %t, 0;
"""
    )
    hint = ", %hint" if at.has("L2::cache_hint") else ""
    if hint:
        declared += " .reg .b64 %hint;"
        body += "\tmov.b64 %hint, 0x12F0000000000000;\n"  # evict first, as CUTLASS has it
    if "mbarrier::complete_tx::bytes" in at.modifiers:
        tx = 2 * 16 * ((swizzle or 32) // 2)
        body += f"""\
	mov.u32 %a, barrier;
	@%first mbarrier.init.shared::cta.b64 [%a], 1;
	fence.mbarrier_init.release.cluster;
	fence.proxy.async.shared::cta;
	bar.sync 0;
	bar.warp.sync -1;
	mapa.shared::cluster.u32 %a, %a, 0;
	@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%a], {tx};
	@%first {at.opcode} [%s], [%m, {{{corner}}}], [%a]{hint};
{_WAIT.replace("[barrier]", "[%a]")}{_DRAIN}"""
        return MemoryCase(name, (at.opcode, *_AROUND_LOAD), _entry(name, body, declared, True),
                          (rank, swizzle))  # fmt: skip
    body += f"""\
	mov.s32 %some, 5;
	@%first {at.opcode} [%m, {{{corner}}}], [%s]{hint};
	@%first cp.async.bulk.commit_group;
	@%first cp.async.bulk.wait_group.read 0;
	@%first cp.async.bulk.wait_group 0;
"""
    return MemoryCase(
        name,
        (at.opcode, *_AROUND_STORE),
        _entry(name, body, declared, True),
        (rank, swizzle),
        "target",
    )


HEADER = """\
.version 8.6
.target sm_90a
.address_size 64

.extern .shared .align 1024 .b8 bytes[];
.shared .align 8 .b64 barrier;

"""


def module_text(made: Iterable[MemoryCase]) -> str:
    return HEADER + "\n".join(c.ptx for c in made)


def expected(made: Iterable[MemoryCase]) -> dict[str, Array]:
    """What this machine leaves in `target`, and raises if it finds something wrong."""
    out: dict[str, Array] = {}
    for case in made:
        module = parse_module(module_text([case]), case.name)
        target = np.zeros(WORDS, np.uint32)
        tensors = [Tensor("source", words()), Tensor("target", target)]
        addresses = [GLOBAL + (k << WINDOW) + HALF for k in range(2)]
        block = b"".join(a.to_bytes(8, "little") for a in addresses)
        if case.map is not None:
            block = encode(case.tensor_map(addresses[case.of == "target"]), BF16) + block
        done = run(module, Launch(case.name, (1, 1, 1), (THREADS, 1, 1), SHARED, block), tensors)
        if done.findings:
            raise ValueError(f"{case.name}: {done.findings[0]}")
        out[case.name] = target
    return out
