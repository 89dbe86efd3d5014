"""Random masks through the rules, the lowerer and nvcc on both kernels, as G2 and G3 have them.

    python benchmarks/masks.py [--masks N] [--json FILE]

Writes benchmarks/results/masks.json, and goes on where an earlier run of the same sources stopped.
Each mask goes through the checks that run nothing. nvcc then compiles all of them for bf16 and 128
columns, `BATCH` in one unit and without optimising: a call that no primitive takes fails there. One
of `BATCH` goes through ptxas as G3 has it, and may spill nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from engine.build.folder.units import COMPILE_FLAGS, arch_flags  # noqa: E402
from engine.build.tools.toolchain import find_toolchain  # noqa: E402
from engine.errors import CuBridgeError  # noqa: E402
from engine.lift.cpp.provenance import Lifted  # noqa: E402
from tests.engine.lower.fixtures import ARCHS, lifted  # noqa: E402
from tests.engine.lower.random_masks import lowered, random_mask, recipe_of  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "masks.json"
KERNELS = ("flash_fwd_sm80", "flash_fwd_sm90")
BATCH = 20
_INSTANCE = "template cudaError_t launch<cubridge::bf16, {}>(const Args&, cudaStream_t);"


@cache
def kernel_of(name: str) -> Lifted:
    return lifted(name)


def sources() -> str:
    """What a record depends on: the rules, the lowerer and the headers."""
    digest = hashlib.sha256()
    for folder in ("engine/transfer", "engine/lower", "engine/cuir", "kernels/include"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".cuh", ".toml"):
                digest.update(path.read_bytes())
    digest.update((ROOT / "tests" / "engine" / "lower" / "random_masks.py").read_bytes())
    return digest.hexdigest()[:16]


def compile_batch(kernel: str, texts: dict[int, bytes], folder: Path) -> str:
    """What nvcc says against a unit of all these texts; empty where it compiles."""
    root = kernel.removeprefix("flash_fwd_")
    lines = [f'#include "cubridge/{root}.cuh"']
    for seed, text in texts.items():
        (folder / f"{seed}.cu").write_bytes(text)
        lines += [f"namespace m{seed} {{", f'#include "{seed}.cu"', _INSTANCE.format(128), "}"]
    (folder / "batch.cu").write_text("\n".join(lines) + "\n")
    arch = ARCHS[kernel]
    flags = [f"-arch={arch.replace('sm_', 'compute_')}", *arch_flags(arch)[1:], "-G", "-ptx"]
    return nvcc([*flags, "-o", "batch.ptx", "batch.cu"], folder)[1]


def spills(kernel: str, text: bytes, folder: Path, columns: int = 128) -> str:
    """What ptxas says of spills, or nvcc of errors; empty without either."""
    (folder / "one.cu").write_bytes(text + f"\n{_INSTANCE.format(columns)}\n".encode())
    optimised = [f for f in COMPILE_FLAGS if f != "-lineinfo"]
    flags = [*arch_flags(ARCHS[kernel]), *optimised, "-cubin"]
    said, wrong = nvcc([*flags, "-o", "one.cubin", "one.cu"], folder)
    found = [b for b in re.findall(r"(\d+) bytes spill stores", said) if b != "0"]
    return wrong or (f"spills {', '.join(found)} bytes" if found else "")


def nvcc(arguments: list[str], folder: Path) -> tuple[str, str]:
    """All that nvcc says, and its first error."""
    command = [str(find_toolchain().nvcc.path), "-std=c++17", "--expt-relaxed-constexpr"]
    include = f"-I{ROOT / 'kernels' / 'include'}"
    done = subprocess.run(
        [*command, include, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    errors = [line for line in said.splitlines() if "error" in line]
    return said, "" if done.returncode == 0 else (errors or [said[-300:]])[0]


def batch(first: int) -> dict[str, Any]:
    """`BATCH` masks from the seed `first` on, on both kernels."""
    count: Counter[str] = Counter()
    failed: list[str] = []
    refused: list[str] = []
    for kernel in KERNELS:
        texts: dict[int, bytes] = {}
        for seed in range(first, first + BATCH):
            mask = random_mask(seed)
            recipe = recipe_of(mask)
            if recipe is None:
                count["of one value"] += 1
                continue
            try:
                texts[seed] = lowered(kernel_of(kernel), recipe)[0]
            except CuBridgeError as error:
                refused.append(f"{kernel} {seed}: {error.message}")
            except Exception as error:
                failed.append(f"{kernel} {seed}: {mask.text}: {type(error).__name__} {error}")
        with tempfile.TemporaryDirectory(prefix="cubridge-masks-") as name:
            wrong = compile_batch(kernel, texts, Path(name))
            failed += [f"{kernel} {first}..: {wrong}"] if wrong else []
            count["compiled"] += 0 if wrong else len(texts)
            if texts:
                wrong = spills(kernel, next(iter(texts.values())), Path(name))
                failed += [f"{kernel} {next(iter(texts))}: {wrong}"] if wrong else []
                count["through ptxas"] += 1
    return {"count": dict(count), "refused": refused, "failed": failed}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--masks", type=int, default=1000)
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    now = sources()
    record: dict[str, Any] = {"sources": now, "masks": 0, "seconds": 0.0, "count": {}}
    record |= {"refused": [], "failed": []}
    if arguments.json.exists():
        earlier = json.loads(arguments.json.read_text())
        record = earlier if earlier["sources"] == now else record
    while record["masks"] < arguments.masks:
        begin = time.monotonic()
        done = batch(record["masks"])
        record["count"] = dict(Counter(record["count"]) + Counter(done["count"]))
        record["refused"] += done["refused"]
        record["failed"] += done["failed"]
        record["masks"] += BATCH
        record["seconds"] = round(record["seconds"] + time.monotonic() - begin, 1)
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")
        print(record["masks"], record["count"], done["failed"], flush=True)


if __name__ == "__main__":
    main()
