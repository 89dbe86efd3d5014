"""Conformance of the Hopper primitives: each alone, on a GPU, against its op's meaning.

    python3 kernels/conformance/sm90.py --out kernels/conformance/results/sm90.json

Runs by itself on a machine with a Hopper GPU (Python, torch, nvcc); `--list` prints what the checks
try and runs nothing. A record is keyed by the hashes of the headers that it was measured on
(record.py). What is compared is exact wherever the op is (copies, masks, maxima, layouts); matmuls
are compared on integers small enough that every sum is exact in f32.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import record
from sm90_meanings import MEANINGS, Case

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"
ROOT = "cubridge/sm90.cuh"

BOXES = [
    (64, 64), (64, 128), (64, 192), (64, 256), (80, 64), (80, 128), (80, 192), (80, 256),
    (96, 192), (112, 128), (112, 192), (128, 64), (128, 128), (128, 192), (160, 128), (176, 128),
]  # fmt: skip
KEYS = (64, 80, 96, 112, 128, 160, 176)
SCORE_MATMULS = [(n, d) for d in (64, 128, 192, 256) for n in KEYS
                 if (64 + n) * d * 2 <= 220 * 1024]  # fmt: skip
VALUE_MATMULS = [(dv, n) for dv in (64, 128, 192, 256) for n in KEYS]
# The first columns of wider tiles, with key tiles as flash_fwd_sm90 has them there.
WIDTHS = [d for d in range(16, 256, 16) if d % 64]
PARTS = [
    (n, d) for d in WIDTHS for n in (64, 80, 112, 128)
    if n <= 80 or (d < 192 and n == (112 if d > 96 else 128))
]  # fmt: skip
PANELS = [(64, 64), (64, 128), (128, 128), (64, 192), (192, 192), (64, 256), (128, 256)]
TURNED = [(64, 64), (128, 128), (64, 48), (112, 80), (80, 144)]
TILES = [(n, 0) for n in range(16, 257, 16)]
DENSE_TILES = [(n, 0) for n in (64, 80, 96, 112, 128, 176, 192, 256)]
DENSE_ELEMENTS = ("bf16", "f16", "float", "int", "bool")
MATMUL = ("mma_fence", "gemm_async_init", "gemm_async", "mma_commit", "mma_wait", "fence_async")
# What the check of each function of sm90.cu compares the result of; on which accumulator.
PRIMITIVES: dict[str, tuple[str, tuple[str, ...]]] = {
    "load": ("", (
        "run", "tensor_map", "shared", "mbarriers", "mbarrier_init", "fence_barrier_init", "sync",
        "elect", "prefetch_map", "arrive_expect", "tma_load", "wait",
    )),
    "store_box": ("", (
        "tensor_map", "shared", "fence_async", "tma_store", "tma_commit", "tma_wait",
    )),
    "load_rows": ("", ("row_map", "tma_load_rows")),
    "ring": ("", (
        "shared_stages", "mbarriers", "mbarrier_init", "fence_barrier_init", "warpgroup_id",
        "elect", "lower_registers", "raise_registers", "wait", "arrive_expect", "arrive",
        "tma_load", "named_arrive", "named_sync",
    )),
    "gemm_shared": ("WgmmaAcc", ("shared", "columns", "transpose", "fill", *MATMUL)),
    "gemm_registers": ("WgmmaAcc", ("shared", "columns", "to_operand", *MATMUL)),
    "gemm_turned": ("WgmmaAcc", ("shared", "columns", "transpose", "to_operand", *MATMUL)),
    "gemm_loaded": ("WgmmaAcc", ("shared", "load_operand", "transpose", *MATMUL)),
    "panels_of": ("WgmmaAcc", ("shared", "load_shared", "store_shared", "sync")),
    "tile": ("WgmmaAcc", (
        "at", "zeros", "load_rows", "load_cols", "map", "keep", "row_max", "row_sum", "row_reduce",
        "store_rows", "store",
    )),
    "dense": ("WgmmaAcc", ("at", "fill", "load_tile", "load_output", "map", "keep")),
    "bits": ("WgmmaAcc", ("at", "put_bits", "load_bits", "keep_bits")),
    "claims": ("", ("claim", "shared_words", "post", "fetch")),
    "host": ("", ("sm_count", "shared_limit", "ceil_div")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """A function of sm90.cu at one shape and element type: `entry` is the C function's name."""

    function: str
    element: str
    shape: tuple[int, int]

    @property
    def group(self) -> str:
        """Checks of one group are built and run together."""
        return f"{self.function}_{self.element}"

    @property
    def entry(self) -> str:
        return f"{self.function}_{self.element}_{self.shape[0]}_{self.shape[1]}"

    def case(self) -> dict[str, Any]:
        """What it tries, as a record names it."""
        layout, primitives = PRIMITIVES[self.function]
        return {
            "case": self.entry, "primitives": list(primitives), "layout": layout,
            "element": self.element, "shape": list(self.shape),
        }  # fmt: skip


def checks() -> Iterator[Check]:
    for element in ("bf16", "f16"):
        for function, shapes in (
            ("load", BOXES),
            ("store_box", BOXES),
            ("load_rows", BOXES),
            ("ring", BOXES[:2]),
            ("gemm_shared", [*SCORE_MATMULS, *PARTS]),
            ("gemm_registers", [*VALUE_MATMULS, *((d, n) for n, d in PARTS)]),
            ("gemm_turned", TURNED),
            ("gemm_loaded", SCORE_MATMULS),
            ("panels_of", PANELS),
            ("tile", TILES),
        ):
            for shape in shapes:
                yield Check(function, element, shape)
    for element in DENSE_ELEMENTS:
        for shape in DENSE_TILES:
            yield Check("dense", element, shape)
    for columns in (64, 80, 112, 128):
        yield Check("bits", "bf16", (columns, 0))
    for blocks in (1, 132, 400):
        yield Check("claims", "int", (blocks, 0))
    yield Check("host", "int", (0, 0))


def unit(wanted: list[Check]) -> str:
    lines = [f'#include "{HERE / "sm90.cu"}"']
    for check in wanted:
        first, second = check.shape
        call = f"{check.function}<{check.element}, {first}, {second}>(*c)"
        lines.append(f'extern "C" int {check.entry}(const Case* c) {{ return {call}; }}')
    return "\n".join(lines) + "\n"


def build(folder: Path, wanted: list[Check]) -> dict[str, Path]:
    """A library for each group of checks, compiled as many at once as there are cores."""
    groups: dict[str, list[Check]] = {}
    for check in wanted:
        groups.setdefault(check.group, []).append(check)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        built = pool.map(lambda name: build_one(folder, name, groups[name]), groups)
        return dict(zip(groups, built, strict=True))


def build_one(folder: Path, name: str, wanted: list[Check]) -> Path:
    source, library = folder / f"{name}.cu", folder / f"{name}.so"
    source.write_text(unit(wanted))
    command = [
        "nvcc", "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-gencode",
        "arch=compute_90a,code=sm_90a", "-DCUBRIDGE_ARCH=900", f"-I{INCLUDE}", "-shared",
        "-Xcompiler", "-fPIC", "-o", str(library), str(source),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return library


def run_checks(library: Path, wanted: list[Check]) -> list[dict[str, Any]]:
    """Every check in this process. An error of the device ends it: what follows is `not_run`."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    functions = ctypes.CDLL(str(library))
    results = []
    broken = ""
    for check in wanted:
        entry = getattr(functions, check.entry)

        def call(case: Case, entry: Any = entry) -> None:
            torch.cuda.synchronize()
            status = entry(ctypes.byref(case))
            if status != 0:
                raise RuntimeError(f"CUDA error {status}")

        dtype = {
            "bf16": torch.bfloat16, "f16": torch.float16, "float": torch.float32,
            "int": torch.int32, "bool": torch.bool,
        }[check.element]  # fmt: skip
        problem = broken
        if not broken:
            try:
                problem = MEANINGS[check.function](call, *check.shape, dtype)
            except RuntimeError as error:
                problem = broken = f"{check.entry}: {error}".splitlines()[0]
        verdict = "not_run" if broken and check.entry not in problem else "fail"
        verdict = verdict if problem else "pass"
        results.append({**check.case(), "verdict": verdict, "reason": problem})
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="where to write the record")
    parser.add_argument("--list", action="store_true", help="print the cases as JSON, run nothing")
    parser.add_argument("--build-only", action="store_true", help="compile, run nothing")
    parser.add_argument("--child", nargs=2, metavar=("LIBRARY", "GROUP"),
                        help="run one group of checks (the parent process does)")  # fmt: skip
    options = parser.parse_args()
    wanted = list(checks())
    if options.list:
        print(json.dumps([check.case() for check in wanted]))
        return 0
    if options.child:
        library, group = options.child
        mine = [check for check in wanted if check.group == group]
        print(json.dumps(run_checks(Path(library), mine)))
        return 0
    folder = Path(tempfile.mkdtemp(prefix="conformance_sm90_"))
    libraries = build(folder, wanted)
    if options.build_only:
        print(f"built {len(wanted)} checks")
        return 0

    import torch

    # A process for each group: an error of the device spoils the process it happens in.
    children = {
        group: subprocess.Popen(
            [sys.executable, __file__, "--child", str(library), group],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for group, library in libraries.items()
    }  # fmt: skip
    results: list[dict[str, Any]] = []
    for group, child in children.items():
        try:
            out = child.communicate(timeout=60)[0]
            results += json.loads(out)
        except (subprocess.TimeoutExpired, json.JSONDecodeError):
            child.kill()
            reason = child.communicate()[1].strip().splitlines()[-1:] or ["no answer in 60 s"]
            results += [
                {**check.case(), "verdict": "fail", "reason": reason[0]}
                for check in wanted if check.group == group
            ]  # fmt: skip
    for result in results:
        if result["verdict"] == "fail":
            print(f"{result['case']}: {result['reason']}")
    passed = sum(r["verdict"] == "pass" for r in results)
    print(f"{passed} of {len(results)} pass on {torch.cuda.get_device_name()}")
    if options.out:
        made = record.make(
            "sm90", record.headers_of(ROOT), results, device=torch.cuda.get_device_name(),
            arch="sm_90a", torch=torch.__version__, nvcc=record.nvcc_version(),
        )  # fmt: skip
        record.write(options.out, made)
    return 0 if passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
