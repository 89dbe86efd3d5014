"""How long the PTX machine takes for a block of 64 rows over eight tiles of 64 keys at D 128.

    python benchmarks/ptx_speed.py [NAME ...]

A plain fp32 kernel (ptx_speed.cu), and two small kernels with tensor cores of
tests/engine/ptx/kernels, which have D 64 and so get sixteen tiles: as many products. All checks are
on. Seconds are of one processor, in benchmarks/results/ptx_speed.json.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.ptx.launch import Launch, run
from engine.ptx.memory import Tensor
from engine.ptx.tensor_maps import TensorMap, encode
from engine.ptx.text.parser import parse_module
from tests.engine.ptx.kernels import FOLDER, address

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "ptx_speed.json"
BOUNDS = {"plain": 10.0, "mma": 2.0, "wgmma": 2.0}  # seconds
ROWS = 64


def measure(name: str) -> dict[str, Any]:
    """One kernel's time, size and error."""
    source = ROOT / "benchmarks" / "ptx_speed.cu" if name == "plain" else FOLDER / f"{name}.cu"
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "kernel.ptx"
        subprocess.run(["nvcc", "-ptx", "-arch=sm_90a", "-std=c++17", "-o", str(target),
                        str(source)], check=True)  # fmt: skip
        module = parse_module(target.read_text(), name)
    d, keys = (128, 512) if name == "plain" else (64, 1024)
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((n, d)).astype(np.float32) for n in (ROWS, keys, keys))
    if name != "plain":  # bf16 by its upper half
        q, k, v = ((x.view(np.uint32) & 0xFFFF0000).view(np.float32) for x in (q, k, v))
    given = [(x.view(np.uint32) >> 16).astype(np.uint16) if name != "plain" else x
             for x in (q, k, v)]  # fmt: skip
    out = np.zeros((ROWS, d), np.uint16 if name == "wgmma" else np.float32)
    places = [address(n) for n in range(4)]
    pointers = b"".join(place.to_bytes(8, "little") for place in places)
    if name == "plain":
        how = (64, (ROWS + 2 * 64) * d * 4 + ROWS * 64 * 4, struct.pack("<if", keys, 0.1))
    elif name == "mma":
        how = (128, 0, struct.pack("<iiiif", ROWS, keys, 1, 1, 0.1))
    else:
        rows = (ROWS, keys, keys, ROWS)
        pointers = b"".join(
            encode(TensorMap(place, 2, (d, n), (2, 2 * d), (d, 64), 128), 9)
            for place, n in zip(places, rows, strict=True)
        )
        how = (256, 5 * 8192, struct.pack("<if", keys // 64, 0.1))
    threads, shared, numbers = how
    entry = next(iter(module.kernels))
    launch = Launch(entry, (1, 1, 1), (threads, 1, 1), shared, pointers + numbers)
    tensors = [Tensor(n, x) for n, x in zip("qkv", given, strict=True)]
    began = time.process_time()
    done = run(module, launch, [*tensors, Tensor.output("o", out)])
    took = time.process_time() - began
    s = q.astype(np.float64) @ k.T * 0.1
    p = np.exp2(s - s.max(-1, keepdims=True))
    got = out if name != "wgmma" else (out.astype(np.uint32) << 16).view(np.float32)
    error = np.abs(got - p @ v / p.sum(-1, keepdims=True)).max()
    return {
        "processor_s": round(took, 2), "instructions": done.instructions,
        "thread_instructions": done.thread_instructions, "error": float(error),
        "findings": [str(f) for f in done.findings],
    }  # fmt: skip


def main() -> int:
    good = True
    for name in sys.argv[1:] or BOUNDS:
        row = measure(name)
        held = row["processor_s"] <= BOUNDS[name] and not row["findings"] and row["error"] < 0.02
        good = good and held
        print(f"{name}: {row['processor_s']} s of {BOUNDS[name]} s{'' if held else ': too much'}")
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results = dict(sorted((results | {name: row}).items()))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
