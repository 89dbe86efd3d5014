"""Conformance of single PTX instructions: what a GPU makes of them, against the machine.

    python benchmarks/ptx_conformance.py pack DIR       what a GPU has not run yet, with a runner
    python3 DIR/run.py                                  on the GPU; leaves DIR/out
    python benchmarks/ptx_conformance.py record DIR     compares DIR/out and keeps the verdicts
    python benchmarks/ptx_conformance.py uncovered PTX  opcodes of a kernel without case or verdict

The runner needs torch and the driver alone. A verdict is kept by the hash of a case's PTX (or of
its source, for kernels in CUDA) and its inputs, so that a changed case is run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.ptx_cases import memory_cases, register_cases
from engine.ptx.launch import Launch, run
from engine.ptx.memory import GLOBAL, HALF, WINDOW, Tensor
from engine.ptx.records import (
    AGREES,
    CASES,
    RECORD,
    Record,
    Verdict,
    case_hash,
    form,
    kernel_opcodes,
    read_record,
    unproven,
    write_record,
)  # fmt: skip
from engine.ptx.syntax import Instruction
from engine.ptx.text.parser import parse_module

Array = np.ndarray[Any, Any]

# kernels/conformance/ptx/*.cu, and the dynamic shared memory of each, in bytes.
HAND_SHARED = {"memory": 32 << 10, "threads": 0, "wmma": 0, "wmma_shared": 0, "shared_atomics": 0,
               "handed_on": 0, "atomic_kinds": 0, "local": 0}  # fmt: skip
HAND = tuple(HAND_SHARED)

RUNNER = '''\
"""Runs the cases beside it on a GPU: python3 run.py"""
import ctypes, json, os, pathlib, subprocess, sys
import numpy as np
import torch

here = pathlib.Path(__file__).parent
cu = ctypes.CDLL("libcuda.so.1")
torch.zeros(1, device="cuda")
name = torch.cuda.get_device_name()

def ok(code, what):
    if code:
        name = ctypes.c_char_p()
        cu.cuGetErrorString(code, ctypes.byref(name))
        raise RuntimeError(f"{what}: {name.value}")

def encode(m, address):
    out = (ctypes.c_byte * 192)()
    at = (ctypes.addressof(out) + 63) & ~63
    rank = len(m["sizes"])
    sizes = (ctypes.c_uint64 * rank)(*m["sizes"])
    strides = (ctypes.c_uint64 * (rank - 1))(*m["strides"][1:])
    box = (ctypes.c_uint32 * rank)(*m["box"])
    ones = (ctypes.c_uint32 * rank)(*[1] * rank)
    swizzle = {0: 0, 32: 1, 64: 2, 128: 3}[m["swizzle"]]
    ok(cu.cuTensorMapEncodeTiled(ctypes.c_void_p(at), m["type"], rank, ctypes.c_void_p(address),
                                 sizes, strides, box, ones, 0, swizzle, 0, 0), "tensor map")
    return out, at

given = np.load(here / "given.npz")
out = pathlib.Path(os.environ.get("OUT", here / "out"))
out.mkdir(exist_ok=True)
results, failed = {}, {}
if (out / "results.npz").exists() and "--on" in sys.argv:
    results = dict(np.load(out / "results.npz"))
    failed = json.loads((out / "device.json").read_text())["failed"]

def keep():
    version = ctypes.c_int()
    cu.cuDriverGetVersion(ctypes.byref(version))
    try:
        driver = subprocess.check_output(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            text=True).split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = ""
    np.savez_compressed(out / "results.npz", **results)
    (out / "device.json").write_text(json.dumps({
        "device": name, "driver": driver, "cuda": version.value, "failed": failed}, indent=1))

for text in json.loads((here / "cases.json").read_text()):
    module = ctypes.c_void_p()
    ptx = (here / text["file"]).read_bytes() + b"\\0"
    ok(cu.cuModuleLoadData(ctypes.byref(module), ptx), text["file"])
    for c in text["cases"]:
        if c["key"] in results or c["key"] in failed:
            continue
        source = torch.from_numpy(given[c["given"]].reshape(-1).view(np.uint8)).cuda()
        target = torch.zeros(c["bytes"], dtype=torch.uint8, device="cuda")
        function = ctypes.c_void_p()
        try:
            ok(cu.cuModuleGetFunction(ctypes.byref(function), module, c["name"].encode()), "entry")
            if c["shared"] > 48 << 10:
                ok(cu.cuFuncSetAttribute(function, 8, c["shared"]), "shared memory")
            values = [ctypes.c_uint64(source.data_ptr()), ctypes.c_uint64(target.data_ptr())]
            pointers = [ctypes.addressof(v) for v in values]
            if c["map"]:
                held, at = encode(c["map"], (source if c["of"] == "source" else target).data_ptr())
                pointers = [at, *pointers]
            array = (ctypes.c_void_p * len(pointers))(*pointers)
            torch.cuda.synchronize()
            ok(cu.cuLaunchKernel(function, c["blocks"], 1, 1, 128, 1, 1, c["shared"], None, array,
                                 None), "launch")
            torch.cuda.synchronize()
            results[c["key"]] = target.cpu().numpy()
        except RuntimeError as error:
            failed[c["key"]] = str(error)
            print(c["key"], error, flush=True)
            keep()
            # A failed launch spoils the context: the rest is run in a new process.
            os.execv(sys.executable, [sys.executable, __file__, "--on"])
keep()
print(len(results), "cases run,", len(failed), "failed")
'''


def hand_ptx(folder: Path) -> dict[str, str]:
    """The PTX of the kernels written in CUDA."""
    out = {}
    for name in HAND:
        target = folder / f"{name}.ptx"
        subprocess.run(["nvcc", "-ptx", "-arch=sm_90a", "-std=c++17", "-o", str(target),
                        str(CASES / f"{name}.cu")], check=True)  # fmt: skip
        out[name] = target.read_text()
    return out


def instructions() -> tuple[dict[str, register_cases.Case], dict[str, memory_cases.MemoryCase]]:
    text = (CASES / "instructions.ptx").read_text()
    kernels = list(parse_module(text, "instructions.ptx").kernels.values())
    return register_cases.cases(kernels), memory_cases.memory_cases(kernels)


def hashes() -> dict[str, str]:
    """The hash of each case as it is now, by its name."""
    registers, memory = instructions()
    out = {o: case_hash(c.ptx.replace(c.name, "case"), register_cases.inputs(c))
           for o, c in registers.items()}  # fmt: skip
    out |= {o: case_hash(c.ptx, memory_cases.words()) for o, c in memory.items()}
    for name in HAND:
        text = (CASES / f"{name}.cu").read_text()
        out[f"{name}.cu"] = case_hash(text, memory_cases.words())
    return out


def pack(folder: Path) -> None:
    """Writes what has no verdict yet."""
    folder.mkdir(parents=True, exist_ok=True)
    now, proven = hashes(), {c.hash for c in read_record().cases if c.verdict == AGREES}
    registers, memory = instructions()
    texts, given = [], {"words": memory_cases.words()}
    wanted = {o: c for o, c in registers.items() if now[o] not in proven}
    if wanted:
        (folder / "registers.ptx").write_text(register_cases.module_text(wanted.values()))
        made = []
        for opcode, case in wanted.items():
            given[case.name] = register_cases.inputs(case)
            size = register_cases.THREADS * register_cases.BLOCKS * register_cases.SLOT
            made.append(_entry(opcode, case.name, case.name, size * max(len(case.writes), 1),
                               register_cases.BLOCKS, 0))  # fmt: skip
        texts.append({"file": "registers.ptx", "cases": made})
    boxes = [c for o, c in memory.items() if now[o] not in proven]
    if boxes:
        (folder / "memory_cases.ptx").write_text(memory_cases.module_text(boxes))
        made = []
        for box in boxes:
            one = _entry(box.opcodes[0], box.name, "words", 4 * memory_cases.WORDS, 1,
                         memory_cases.SHARED)  # fmt: skip
            if box.map is not None:
                m = box.tensor_map(0)
                one |= {"of": box.of, "map": {
                    "type": memory_cases.BF16, "sizes": m.sizes, "strides": m.strides, "box": m.box,
                    "swizzle": m.swizzle}}  # fmt: skip
            made.append(one)
        texts.append({"file": "memory_cases.ptx", "cases": made})
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in hand_ptx(Path(scratch)).items():
            if now[f"{name}.cu"] not in proven:
                (folder / f"{name}.ptx").write_text(text)
                made = [_entry(f"{name}.cu {k}", k, "words", 4 * memory_cases.WORDS,
                               _blocks(k), HAND_SHARED[name])
                        for k in parse_module(text, name).kernels]  # fmt: skip
                texts.append({"file": f"{name}.ptx", "cases": made})
    np.savez_compressed(folder / "given.npz", **given)
    (folder / "cases.json").write_text(json.dumps(texts, indent=1))
    (folder / "run.py").write_text(RUNNER)
    print(f"{sum(len(t['cases']) for t in texts)} cases in {folder}: run python3 {folder}/run.py")


def _blocks(kernel: str) -> int:
    return 2 if kernel in ("atomics", "blocks") else 1


def _entry(key: str, name: str, given: str, size: int, blocks: int, shared: int) -> dict[str, Any]:
    return {"key": key, "name": name, "given": given, "bytes": size, "blocks": blocks,
            "shared": shared, "map": None, "of": ""}  # fmt: skip


def hand_expected(text: str, name: str) -> tuple[dict[str, Array], list[str]]:
    """What the machine leaves of the kernels written in CUDA, and the opcodes that they prove."""
    module = parse_module(text, name)
    out, opcodes = {}, set()
    for k, kernel in module.kernels.items():
        target = np.zeros(memory_cases.WORDS, np.uint32)
        tensors = [Tensor("source", memory_cases.words()), Tensor("target", target)]
        block = b"".join((GLOBAL + (i << WINDOW) + HALF).to_bytes(8, "little") for i in range(2))
        run(module, Launch(k, (_blocks(k), 1, 1), (128, 1, 1), HAND_SHARED[name], block), tensors)
        out[k] = target
        opcodes |= kernel_opcodes(kernel)
    return out, sorted(opcodes)


def record(folder: Path) -> int:
    """Compares what a GPU gave with what the machine gives; the number of cases that differ."""
    out = folder / "out"
    there = np.load(out / "results.npz")
    device = json.loads((out / "device.json").read_text())
    registers, memory = instructions()
    now = hashes()
    mine = {o: c for o, c in registers.items() if o in there}
    here = register_cases.expected(mine, {o: register_cases.inputs(c) for o, c in mine.items()})
    made: list[Verdict] = []
    for opcode, case in mine.items():
        gpu = there[opcode].reshape(here[opcode].shape)
        words = register_cases.differences(case, here[opcode], gpu)
        made.append(Verdict(opcode, (opcode,), now[opcode], words or "agrees"))
    boxes = [c for o, c in memory.items() if o in there]
    values = memory_cases.expected(boxes)
    for box in boxes:
        words = _differs(values[box.name], there[box.opcodes[0]].view(np.uint32),
                         "wgmma" in box.name)  # fmt: skip
        made.append(Verdict(box.opcodes[0], box.opcodes, now[box.opcodes[0]], words or "agrees"))
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in hand_ptx(Path(scratch)).items():
            if f"{name}.cu {next(iter(parse_module(text, name).kernels))}" not in there:
                continue
            results, opcodes = hand_expected(text, name)
            wrong = []
            for k, value in results.items():
                gpu = there[f"{name}.cu {k}"].view(np.uint32)
                if words := _differs(value, gpu, "mma_" in k):
                    wrong.append(f"{k}: {words}")
            key = f"{name}.cu"
            made.append(Verdict(key, tuple(opcodes), now[key], "; ".join(wrong) or "agrees"))
    for opcode, why in device["failed"].items():
        made.append(
            Verdict(opcode, (opcode,), now.get(opcode, ""), f"not run: {why.splitlines()[0]}")
        )
    kept = {c.case: c for c in read_record().cases if c.hash in now.values()}
    kept |= {v.case: v for v in made}
    write_record(Record(device["device"], device["driver"], str(device["cuda"]),
                        tuple(kept[k] for k in sorted(kept))))  # fmt: skip
    bad = [v for v in made if v.verdict != "agrees"]
    for v in bad:
        print(v.case, v.verdict)
    print(f"{len(made)} cases compared, {len(bad)} differ; {len(kept)} in {RECORD}")
    return len(bad)


def uncovered(code: Iterable[Instruction]) -> dict[str, str]:
    """The opcodes of a kernel that no GPU was seen to agree on: whether they have a case at all."""
    registers, memory = instructions()
    opcodes = {*registers, *(o for c in memory.values() for o in c.opcodes)}
    missing = unproven(code)
    if {form(at.opcode) for at in missing} - {form(o) for o in opcodes}:
        with tempfile.TemporaryDirectory() as scratch:
            for name, text in hand_ptx(Path(scratch)).items():
                for kernel in parse_module(text, name).kernels.values():
                    opcodes |= kernel_opcodes(kernel)
    have = {form(o) for o in opcodes}
    return {at.opcode: "not run yet" if form(at.opcode) in have else "no case" for at in missing}


def _differs(here: Array, there: Array, sums: bool) -> str:
    there = there[: len(here)]
    bad = here != there
    if sums:
        # The order in which products are added is not fixed.
        x, y = here.view(np.float32), there.view(np.float32)
        bad &= ~(np.abs(x - y) <= 2.0**-17 * np.maximum(np.abs(x), 1))
    if not bad.any():
        return ""
    k = int(bad.argmax())
    return f"{int(bad.sum())} words: word {k} is {here[k]:#x}, on a GPU {there[k]:#x}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("pack", "record", "uncovered"))
    parser.add_argument("folder", type=Path, metavar="DIR or PTX")
    given = parser.parse_args()
    if given.what == "pack":
        pack(given.folder)
        return 0
    if given.what == "uncovered":
        kernels = parse_module(given.folder.read_text(), str(given.folder)).kernels.values()
        rows = uncovered(at for kernel in kernels for at in kernel.code)
        for opcode, words in rows.items():
            print(f"{opcode}: {words}")
        return 1 if rows else 0
    return 1 if record(given.folder) else 0


if __name__ == "__main__":
    raise SystemExit(main())
