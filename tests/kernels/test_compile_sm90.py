"""The Hopper kernel compiles as a fast one must: on tensor cores, nothing spilled or serialised."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from engine.build.toolchain import Toolchain, compiler_environ, find_toolchain
from engine.errors import MissingTool
from engine.resources import include_dir, kernels_dir

UNIT = """#include "{kernel}"
template cudaError_t launch<cubridge::bf16, 128>(const Args&, cudaStream_t);
"""


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    try:
        found = find_toolchain()
        found.require_arch("sm_90a")
    except MissingTool as missing:
        pytest.skip(missing.message)
    return found


@pytest.fixture(scope="module")
def cubin(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The bf16, D 128 specialisation and what ptxas said about it."""
    folder = tmp_path_factory.mktemp("sm90")
    unit = folder / "unit.cu"
    unit.write_text(UNIT.format(kernel=kernels_dir() / "flash_fwd_sm90" / "kernel.cu"))
    output = folder / "unit.cubin"
    done = subprocess.run(
        [
            str(toolchain.nvcc.path), "-std=c++17", "-O3", "--expt-relaxed-constexpr",
            "-Xptxas", "-v", "-DCUBRIDGE_ARCH=900", f"-I{include_dir()}",
            "-gencode", "arch=compute_90a,code=sm_90a", "-cubin", "-o", str(output), str(unit),
        ],
        capture_output=True, text=True, env=compiler_environ(), timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return output, done.stdout + done.stderr


def test_nothing_spills(cubin: tuple[Path, str]) -> None:
    log = cubin[1]
    found = re.findall(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log
    )
    assert found, log
    assert all(numbers == ("0", "0", "0") for numbers in found), log


def test_ptxas_neither_serialises_wgmma_nor_ignores_setmaxnreg(cubin: tuple[Path, str]) -> None:
    # C7508: setmaxnreg ignored; C7510 and its neighbours: wgmma serialised; C7519: fence injected.
    assert not re.findall(r"\(C75\d\d\)", cubin[1]), cubin[1]


def test_matmuls_run_on_wgmma_and_local_memory_is_unused(
    toolchain: Toolchain, cubin: tuple[Path, str]
) -> None:
    if toolchain.cuobjdump is None:
        pytest.skip("there is no cuobjdump on this machine to read machine code with")
    done = subprocess.run(
        [str(toolchain.cuobjdump.path), "-sass", str(cubin[0])],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    sass = done.stdout
    # D / 16 steps for each of the two score matmuls, BN / 16 for each of the two with V.
    assert len(re.findall(r"HGMMA\.64x176x16\.F32\.BF16", sass)) == 2 * 128 // 16
    assert len(re.findall(r"HGMMA\.64x128x16\.F32\.BF16", sass)) == 2 * 176 // 16
    assert "UTMALDG.4D" in sass
    assert "USETMAXREG" in sass
    assert not re.findall(r"\b(?:LDL|STL)\b", sass)


def test_softmax_runs_under_the_matmul_with_values(
    toolchain: Toolchain, cubin: tuple[Path, str]
) -> None:
    """In the main loop every exponential stands between the wait for the scores (one group may
    still fly) and the wait for the matmul with V (none)."""
    if toolchain.cuobjdump is None:
        pytest.skip("there is no cuobjdump on this machine to read machine code with")
    done = subprocess.run(
        [str(toolchain.cuobjdump.path), "-sass", str(cubin[0])],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    sass = done.stdout
    start = sass.index("WARPGROUP.DEPBAR.LE gsb0, 0x1")
    end = sass.index("WARPGROUP.DEPBAR.LE gsb0, 0x0", start)
    assert sass[start:end].count("MUFU.EX2") >= 176 // 2
