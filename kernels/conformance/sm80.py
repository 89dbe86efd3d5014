"""Conformance of the sm_80 primitives: each one alone, on a GPU, against a plain statement of it.

Every shape, layout, element type and alignment that the kernels use has a case; inputs are small
integers where the result must be exact. Needs torch, nvcc and one GPU:

    python3 kernels/conformance/sm80.py --out kernels/conformance/results/sm80.json

`--list` prints what the cases try and runs nothing. Exit code 0: all cases pass; 1: some fail;
3: no GPU, torch or nvcc here.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    import torch
except ImportError:
    print("conformance needs PyTorch with CUDA", file=sys.stderr)
    sys.exit(3)

import record
from sm80_compared import Test, call
from sm80_lines import lines
from sm80_loads import claims, dense_tiles, lists, loads, vectors
from sm80_scalars import scalar_functions
from sm80_tiles import copies, copies_of_rows, maps, matmuls, reductions, stores

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"
ROOT = "cubridge/sm80.cuh"
UNITS = 12  # translation units, compiled as many at once as there are cores


def all_tests() -> list[Test]:
    parts = (
        copies, copies_of_rows, matmuls, stores, vectors, dense_tiles, maps, reductions, loads,
        lines, lists, claims, scalar_functions,
    )  # fmt: skip
    return [test for part_ in parts for test in part_()]


# --- building and running -------------------------------------------------------------------------


def build(tests: list[Test], folder: Path, arch: str) -> dict[str, ctypes._CFuncPtr]:
    """Compile all kernels, a few translation units at once; symbol -> function."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("conformance needs nvcc on PATH", file=sys.stderr)
        sys.exit(3)

    def unit(number: int) -> Path:
        lines = ['#include "sm80.cu"']
        for test in tests[number::UNITS]:
            body = f"start<{test.kernel}>(*c, {test.threads}, {test.shared}, {test.blocks})"
            lines.append(f'extern "C" int {test.symbol}(const Case* c) {{ return {body}; }}')
        source, library = folder / f"unit{number}.cu", folder / f"unit{number}.so"
        source.write_text("\n".join(lines) + "\n")
        command = [
            nvcc, "-std=c++17", "-O3", "--expt-relaxed-constexpr", f"-DCUBRIDGE_ARCH={arch}0",
            "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-I", str(INCLUDE), "-I", str(HERE),
            "-shared", "-Xcompiler", "-fPIC", "-o", str(library), str(source),
        ]  # fmt: skip
        subprocess.run(command, check=True)
        return library

    with ThreadPoolExecutor(min(UNITS, os.cpu_count() or 1)) as pool:
        libraries = [ctypes.CDLL(str(path)) for path in pool.map(unit, range(UNITS))]
    functions = {}
    for number, library in enumerate(libraries):
        for test in tests[number::UNITS]:
            function = getattr(library, test.symbol)
            function.argtypes = [ctypes.c_void_p]
            functions[test.symbol] = function
    return functions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where to write the record")
    parser.add_argument("--only", default="", help="run the kernels whose text contains this")
    parser.add_argument("--list", action="store_true", help="print the cases as JSON, run nothing")
    options = parser.parse_args()
    if options.only and options.out:
        parser.error("a record is of all cases: leave out --only or --out")
    if options.list:
        print(json.dumps([test.case() for test in all_tests()]))
        return 0
    if not torch.cuda.is_available():
        print("conformance needs a CUDA GPU", file=sys.stderr)
        return 3
    torch.manual_seed(20240611)
    tests = [test for test in all_tests() if options.only in test.kernel]
    arch = "".join(str(x) for x in torch.cuda.get_device_capability())
    results = []
    with tempfile.TemporaryDirectory(prefix="cubridge-conformance-") as folder:
        functions = build(tests, Path(folder), arch)
        for test in tests:
            try:
                wrong = test.check(call(functions[test.symbol]))
            except RuntimeError as error:
                wrong = str(error)
            verdict = "pass" if wrong is None else "fail"
            results.append({**test.case(), "verdict": verdict, "reason": wrong or ""})
            if wrong:
                print(f"FAIL {test.kernel} on {test.threads} threads: {wrong}")
    failed = [r for r in results if r["verdict"] != "pass"]
    device = torch.cuda.get_device_name()
    if options.out:
        made = record.make(
            "sm80", record.headers_of(ROOT), results, device=device, arch=f"sm_{arch}",
            torch=torch.__version__, nvcc=record.nvcc_version(),
        )  # fmt: skip
        record.write(options.out, made)
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed on {device}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
