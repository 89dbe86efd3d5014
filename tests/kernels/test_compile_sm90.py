"""The Hopper kernel compiles as a fast one must: on tensor cores, nothing spilled or serialised."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

import pytest

from engine.build.tools.toolchain import Toolchain, compiler_environ, find_toolchain
from engine.errors import MissingTool
from engine.resources import include_dir, kernels_dir

UNIT = """#include "{kernel}"
template cudaError_t launch<cubridge::bf16, {head}>(const Args&, cudaStream_t);
"""

# Head size: how often each matrix instruction stands in the machine code. One step of K = 16 each:
# D / 16 steps of the score matmul, none for what fills the last panel, and BN / 16 of the matmul
# with V (twice where it overlaps the next tile's softmax: the last one stands after the loop).
MATMULS = {
    16: {"64x128x16": 1, "64x16x16": 2 * 128 // 16},
    64: {"64x128x16": 64 // 16, "64x64x16": 2 * 128 // 16},
    80: {"64x128x16": 80 // 16, "64x80x16": 128 // 16},
    128: {"64x112x16": 128 // 16, "64x128x16": 112 // 16},
    160: {"64x112x16": 160 // 16, "64x160x16": 2 * 112 // 16},
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """One bf16 specialisation: what ptxas said, and its machine code (None without cuobjdump)."""

    head: int
    log: str
    sass: str | None

    def code(self) -> str:
        if self.sass is None:
            pytest.skip("there is no cuobjdump on this machine to read machine code with")
        return self.sass


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    try:
        found = find_toolchain()
        found.require_arch("sm_90a")
    except MissingTool as missing:
        pytest.skip(missing.message)
    return found


@pytest.fixture(scope="module", params=sorted(MATMULS))
def compiled(
    request: pytest.FixtureRequest, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Compiled:
    folder = tmp_path_factory.mktemp("sm90")
    unit, cubin = folder / "unit.cu", folder / "unit.cubin"
    kernel = kernels_dir() / "flash_fwd_sm90" / "kernel.cu"
    unit.write_text(UNIT.format(kernel=kernel, head=request.param))
    done = subprocess.run(
        [
            str(toolchain.nvcc.path), "-std=c++17", "-O3", "--expt-relaxed-constexpr",
            "-Xptxas", "-v", "-DCUBRIDGE_ARCH=900", f"-I{include_dir()}",
            "-gencode", "arch=compute_90a,code=sm_90a", "-cubin", "-o", str(cubin), str(unit),
        ],
        capture_output=True, text=True, env=compiler_environ(), timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sass = None
    if toolchain.cuobjdump is not None:
        dump = [str(toolchain.cuobjdump.path), "-sass", str(cubin)]
        sass = subprocess.run(dump, capture_output=True, text=True, timeout=120, check=True).stdout
    return Compiled(request.param, done.stdout + done.stderr, sass)


def test_nothing_spills(compiled: Compiled) -> None:
    found = re.findall(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", compiled.log
    )
    assert found, compiled.log
    assert all(numbers == ("0", "0", "0") for numbers in found), compiled.log


def test_ptxas_neither_serialises_wgmma_nor_ignores_setmaxnreg(compiled: Compiled) -> None:
    # C7508: setmaxnreg ignored; C7510 and its neighbours: wgmma serialised; C7519: fence injected.
    assert not re.findall(r"\(C75\d\d\)", compiled.log), compiled.log


def test_matmuls_run_on_wgmma_and_local_memory_is_unused(compiled: Compiled) -> None:
    sass = compiled.code()
    for shape, count in MATMULS[compiled.head].items():
        assert len(re.findall(rf"HGMMA\.{shape}\.F32\.BF16", sass)) == count, shape
    assert "UTMALDG.4D" in sass
    assert "USETMAXREG" in sass
    assert not re.findall(r"\b(?:LDL|STL)\b", sass)


def test_softmax_runs_under_the_matmul_with_values(compiled: Compiled) -> None:
    """With overlap every exponential of the main loop stands between the wait for the scores (one
    group may still be in flight) and the wait for the matmul with V (none may)."""
    if 64 < compiled.head <= 128:
        pytest.skip("three warpgroups run beside each other here, without overlap within one")
    sass = compiled.code()
    start = sass.index("WARPGROUP.DEPBAR.LE gsb0, 0x1")
    first_wait = sass.index("WARPGROUP.DEPBAR.LE gsb0, 0x0", start)  # the other arm: the first tile
    end = sass.index("WARPGROUP.DEPBAR.LE gsb0, 0x0", first_wait + 1)
    keys = int(next(iter(MATMULS[compiled.head])).split("x")[1])  # of a tile: the scores' columns
    assert sass[start:end].count("MUFU.EX2") >= keys // 2
