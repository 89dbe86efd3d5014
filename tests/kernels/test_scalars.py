"""Whole-number functions of the kernel text against Python's, by the compiler itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engine.build.tools.toolchain import compiler_environ, find_toolchain
from engine.errors import MissingTool
from engine.resources import include_dir

DIVIDENDS = (0, 1, -1, 2, -2, 3, -3, 511, 512, 513, -511, -512, -513, 2**31 - 1, -(2**31))
DIVISORS = (1, 2, 4, 3, 5, 512, 2**30, -2, -4, 7, -7)


def test_quotients_and_remainders_are_pythons(tmp_path: Path) -> None:
    """The divisors of masks are constants, and a shift must round as the division did."""
    try:
        toolchain = find_toolchain()
        toolchain.require_arch("sm_80")
    except MissingTool as missing:
        pytest.skip(missing.message)
    checks = [
        f"static_assert({fn}(int({a}LL), {b}) == int({wanted}LL));"
        for a in DIVIDENDS
        for b in DIVISORS
        for fn, wanted in (("floor_div", a // b), ("floor_mod", a % b))
    ]
    head = '#include "cubridge/scalar.cuh"\nusing namespace cubridge;\n'
    unit = tmp_path / "unit.cu"
    command = [
        str(toolchain.nvcc.path), "-std=c++17", "-DCUBRIDGE_ARCH=800", f"-I{include_dir()}",
        "-gencode", "arch=compute_80,code=sm_80", "-cubin", "-o", str(tmp_path / "unit.cubin"),
        str(unit),
    ]  # fmt: skip

    def compiled(text: str) -> subprocess.CompletedProcess[str]:
        unit.write_text(text)
        return subprocess.run(
            command, capture_output=True, text=True, env=compiler_environ(), check=False
        )

    done = compiled(head + "\n".join(checks) + "\n")
    assert done.returncode == 0, done.stderr
    assert compiled(head + "static_assert(floor_div(-1, 2) == 0);\n").returncode != 0
