"""Conformance of the Hopper primitives: each alone, on a GPU, against its op's meaning.

    python3 kernels/conformance/sm90.py [--out result.json]

Runs by itself on a machine with a Hopper GPU (Python, torch, nvcc). A result is keyed by the hash
of the headers it was measured on. What is compared is exact wherever the op is (copies, masks,
maxima, layouts); matmuls are compared on integers small enough that every sum is exact in f32.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sm90_meanings import MEANINGS, Case

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"

BOXES = [
    (64, 64), (64, 128), (64, 192), (64, 256), (80, 256), (96, 192), (112, 128), (128, 64),
    (128, 128), (128, 192), (160, 128), (176, 128),
]  # fmt: skip
SCORE_MATMULS = [(n, d) for d in (64, 128, 192, 256) for n in (80, 96, 112, 128, 160, 176)
                 if (64 + n) * d * 2 <= 220 * 1024]  # fmt: skip
VALUE_MATMULS = [(dv, n) for dv in (64, 128, 192, 256) for n in (80, 96, 112, 128, 160, 176)]
TILES = [(n, 0) for n in (64, 80, 96, 112, 128, 176, 192, 256)]
DENSE_ELEMENTS = ("bf16", "f16", "float", "int", "bool")


@dataclass(frozen=True, slots=True)
class Check:
    """One primitive at one shape and element type: `entry` is the C function's name."""

    primitive: str
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


def checks() -> Iterator[Check]:
    for element in ("bf16", "f16"):
        for function, primitive, shapes in (
            ("load", "tma_load", BOXES),
            ("store_box", "tma_store", BOXES),
            ("ring", "mbarrier, named barrier, register reallocation", BOXES[:2]),
            ("gemm_shared", "gemm_async(shared, transpose(shared))", SCORE_MATMULS),
            ("gemm_registers", "to_operand, gemm_async(registers, shared)", VALUE_MATMULS),
            (
                "gemm_loaded",
                "load_operand, gemm_async(registers, transpose(shared))",
                SCORE_MATMULS,
            ),
            ("tile", "map, keep, row ops, vectors and store of wgmma_acc", TILES),
        ):
            for shape in shapes:
                yield Check(primitive, function, element, shape)
    for element in DENSE_ELEMENTS:
        for shape in TILES:
            yield Check("load_tile", "dense", element, shape)
    for columns in (64, 80, 112, 128):
        yield Check("put_bits, keep_bits", "bits", "bf16", (columns, 0))


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


def headers(name: str = "sm90.cuh") -> set[str]:
    """The header and all that it includes, by name."""
    text = (INCLUDE / "cubridge" / name).read_text()
    found = {name}
    for other in re.findall(r'#include "([^"]+)"', text):
        found |= headers(other)
    return found


def headers_hash() -> str:
    digest = hashlib.sha256()
    for name in sorted(headers()):
        text = (INCLUDE / "cubridge" / name).read_bytes()
        digest.update(name.encode() + b"\0" + text + b"\0")
    return digest.hexdigest()


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
        results.append({
            "primitive": check.primitive, "entry": check.entry, "element": check.element,
            "shape": list(check.shape), "verdict": verdict if problem else "pass",
            "reason": problem,
        })  # fmt: skip
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--build-only", action="store_true", help="compile, run nothing")
    parser.add_argument("--child", nargs=2, metavar=("LIBRARY", "GROUP"),
                        help="run one group of checks (the parent process does)")  # fmt: skip
    options = parser.parse_args()
    wanted = list(checks())
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
                {"primitive": c.primitive, "entry": c.entry, "element": c.element,
                 "shape": list(c.shape), "verdict": "fail", "reason": reason[0]}
                for c in wanted if c.group == group
            ]  # fmt: skip
    for result in results:
        if result["verdict"] == "fail":
            print(f"{result['entry']}: {result['reason']}")
    passed = sum(r["verdict"] == "pass" for r in results)
    print(f"{passed} of {len(results)} pass on {torch.cuda.get_device_name()}")
    if options.out:
        options.out.write_text(json.dumps({
            "headers": headers_hash(), "device": torch.cuda.get_device_name(),
            "torch": torch.__version__, "results": results,
        }, indent=1))  # fmt: skip
    return 0 if passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
