"""Count each scalar function's instructions in the machine code that nvcc makes of it alone.

    python benchmarks/scalar_costs.py [--arch sm_90a]

What engine/cost/functions.toml says is this count on the usual path: where a function has a slow
path (BSSY, CALL), read off by hand which instructions lie before it. Needs nvcc and cuobjdump.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASE = "identity"
FUNCTIONS = {
    BASE: "x + c", "/": "x / c", "/ constant": "x / 50.0f",
    **{f: f"{f}(x)" for f in (
        "exp2_approx", "log2_approx", "rcp_approx", "tanh_approx", "exp2", "exp", "log", "log2",
        "tanh", "sqrt", "rsqrt", "sigmoid", "sigmoid_approx", "erf", "sin", "cos", "floor", "ceil",
        "abs")},
    "rcp": "1.0f / x", "min": "min(x, c)", "max": "max(x, c)", "fma": "fma(x, c, d)",
}  # fmt: skip
SPECIAL = {"MUFU", "FRND", "F2I"}
FP32 = {"FFMA", "FMUL", "FADD", "FFMA32I", "FMUL32I", "FADD32I"}
FRAME = {"LDC", "ULDC", "S2R", "LDG", "STG", "EXIT", "NOP", "BRA", "MOV", "HFMA2"}


def source() -> str:
    """One kernel per function, each on one value from memory."""
    out = ['#include "cubridge/scalar.cuh"', "using namespace cubridge;"]
    for number, text in enumerate(FUNCTIONS.values()):
        out.append(
            f'extern "C" __global__ void f{number}(float* p, float c, float d) '
            f"{{ float x = p[threadIdx.x]; p[threadIdx.x] = {text}; }}"
        )
    return "\n".join(out) + "\n"


def counts(sass: str) -> dict[str, Counter[str]]:
    """Instructions by function, in classes; slow paths included and marked as `branches`."""
    found: dict[str, Counter[str]] = {}
    now: Counter[str] = Counter()
    names = list(FUNCTIONS)
    for line in sass.splitlines():
        if head := re.search(r"Function : f(\d+)", line):
            now = found.setdefault(names[int(head[1])], Counter())
        elif op := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?([A-Z0-9]+)", line):
            now[kind_of(op[1])] += 1
    return found


def kind_of(op: str) -> str:
    if op in SPECIAL:
        return "mufu"
    if op in FP32:
        return "fp32"
    if op in ("BSSY", "CALL"):
        return "branches"
    return "frame" if op in FRAME else "alu"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arch", default="sm_90a")
    options = parser.parse_args()
    nvcc, dump = shutil.which("nvcc"), shutil.which("cuobjdump")
    if nvcc is None or dump is None:
        print("nvcc and cuobjdump are needed on PATH: ./dev setup --cuda", file=sys.stderr)
        return 3
    digits = re.sub(r"\D", "", options.arch)
    with tempfile.TemporaryDirectory() as folder:
        text, cubin = Path(folder) / "f.cu", Path(folder) / "f.cubin"
        text.write_text(source())
        subprocess.run(
            [nvcc, "-std=c++17", "-O3", f"-arch={options.arch}", f"-DCUBRIDGE_ARCH={digits}0",
             f"-I{ROOT / 'kernels' / 'include'}", "-cubin", "-o", str(cubin), str(text)],
            check=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        done = subprocess.run(
            [dump, "-sass", str(cubin)], check=True, capture_output=True, text=True
        )
    found = counts(done.stdout)
    base = found[BASE]
    print(f"{'':<16}{'mufu':>6}{'fp32':>6}{'alu':>6}{'branches':>10}")
    for name, each in found.items():
        if name == BASE:
            continue
        # The frame's own address arithmetic is the base's; its one addition is not the function's.
        row = [each["mufu"], each["fp32"], each["alu"] - base["alu"], each["branches"]]
        print(f"{name:<16}{row[0]:>6}{row[1]:>6}{row[2]:>6}{row[3]:>10}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
