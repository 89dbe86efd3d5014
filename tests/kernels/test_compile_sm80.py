"""The sm_80 kernel compiles for every arch that it names: nothing spilled, no warning.

Also what edits need: the statements that variants insert fit into the registers that are left.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from engine.build.tools.toolchain import Toolchain, compiler_environ, find_toolchain
from engine.errors import MissingTool
from engine.resources import include_dir, kernels_dir

KERNEL = kernels_dir() / "flash_fwd_sm80"
PACKAGE = tomllib.loads((KERNEL / "kernel.toml").read_text(encoding="utf-8"))
UNIT = """#include "{kernel}"
template cudaError_t launch<{dtype}, {d}>(const Args&, cudaStream_t);
"""


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    try:
        return find_toolchain()
    except MissingTool as missing:
        pytest.skip(missing.message)


def compile_cubin(
    toolchain: Toolchain, arch: str, unit: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    source = folder / "unit.cu"
    source.write_text(unit)
    number = arch.removeprefix("sm_")
    return subprocess.run(
        [
            str(toolchain.nvcc.path), "-std=c++17", "-O3", "--expt-relaxed-constexpr",
            "-Xptxas", "-v", f"-DCUBRIDGE_ARCH={number}0", f"-I{include_dir()}",
            "-gencode", f"arch=compute_{number},code={arch}",
            "-cubin", "-o", str(folder / "unit.cubin"), str(source),
        ],
        capture_output=True, text=True, env=compiler_environ(), timeout=120, check=False,
    )  # fmt: skip


def assert_clean(done: subprocess.CompletedProcess[str], kernels: int) -> None:
    log = done.stdout + done.stderr
    assert done.returncode == 0, log
    assert "warning" not in log.lower(), log
    found = re.findall(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log
    )
    assert len(found) == kernels, log
    assert all(numbers == ("0", "0", "0") for numbers in found), log


@pytest.mark.parametrize("arch", PACKAGE["archs"])
def test_every_arch_compiles_without_spills(
    toolchain: Toolchain, arch: str, tmp_path: Path
) -> None:
    try:
        toolchain.require_arch(arch)
    except MissingTool as missing:
        pytest.skip(missing.message)
    text = UNIT.format(kernel=KERNEL / "kernel.cu", dtype="bf16", d=128)
    text += UNIT.format(kernel="", dtype="f16", d=64).split("\n", 1)[1]
    assert_clean(compile_cubin(toolchain, arch, text, tmp_path), kernels=2)


def test_sm_75_is_refused_with_the_reason(toolchain: Toolchain, tmp_path: Path) -> None:
    unit = UNIT.format(kernel=KERNEL / "kernel.cu", dtype="f16", d=64)
    done = compile_cubin(toolchain, "sm_75", unit, tmp_path)
    assert done.returncode != 0
    assert "sm80.cuh needs sm_80 or newer" in done.stderr
    assert "sm_75" in PACKAGE["refusals"]


MASK = "    if (!tile_full<BM, BN>(args, b, h, q0, n)) {\n"
VIEWS = "  const auto sQ = shared<T, BM, D>(0);\n"
PARTIAL = "[&](int i, int j) { return j < args.Nk; }"
MAXIMUM = "    m = row_max(s, m);\n"
WEIGHT = "s = map(s, m, [&](float x, float top)"
FIELD = "  float scale;"

# What rules insert, as (text of the kernel, what replaces it) pairs.
EDITS = {
    "softcap": [
        (MASK, "    s = map(s, [&](float x) { return 30.0f * tanh(x / 30.0f); });\n" + MASK),
    ],
    "causal window": [
        (VIEWS, "  const int offset = args.Nk - args.Nq;\n" + VIEWS),
        (PARTIAL, "[&](int i, int j) { return j <= i + offset && j > i + offset - 1024"
                  " && j < args.Nk; }"),
    ],
    "alibi": [
        (FIELD, "  TensorArg slopes;\n" + FIELD),
        (VIEWS, "  const auto slope = gmem<float>(args.slopes, args.Hq);\n" + VIEWS),
        (MASK, "    s = map(s, at(q0, n * BN), [&](float x, int i, int j)"
               " { return x * args.scale - slope(h) * abs(i - j); });\n" + MASK),
    ],
    "bias": [
        (FIELD, "  TensorArg bias;\n" + FIELD),
        (VIEWS, "  const auto bias = gmem<T>(args.bias, args.B, args.Hq, args.Nq, args.Nk);\n"
                + VIEWS),
        (MASK, "    s = map(s, at(q0, n * BN), [&](float x, int i, int j)"
               " { return x * args.scale + bias(b, h, i, j); });\n" + MASK),
    ],
    "documents": [
        (FIELD, "  TensorArg docs;\n" + FIELD),
        (VIEWS, "  const auto doc = gmem<int>(args.docs, args.B, args.Nk);\n" + VIEWS),
        (PARTIAL, "[&](int i, int j) { return j <= i && j < args.Nk && doc(b, i) == doc(b, j); }"),
        (MAXIMUM, MAXIMUM + "    const auto m_ok = map(m, [&](float top)"
                            " { return top == -INFINITY ? 0.0f : top; });\n"),
        (WEIGHT, WEIGHT.replace("(s, m,", "(s, m_ok,")),
    ],
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_inserted_statements_fit_into_the_registers(
    toolchain: Toolchain, edit: str, tmp_path: Path
) -> None:
    try:
        toolchain.require_arch("sm_90")
    except MissingTool as missing:
        pytest.skip(missing.message)
    text = (KERNEL / "kernel.cu").read_text(encoding="utf-8")
    for old, new in EDITS[edit]:
        assert old in text, old
        text = text.replace(old, new, 1)
    (tmp_path / "edited.cu").write_text(text)
    unit = UNIT.format(kernel=tmp_path / "edited.cu", dtype="bf16", d=128)
    unit += UNIT.format(kernel="", dtype="f16", d=64).split("\n", 1)[1]
    assert_clean(compile_cubin(toolchain, "sm_90", unit, tmp_path), kernels=2)
