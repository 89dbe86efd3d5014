"""What the rules add to the Hopper kernel, in machine code: masks without branches for elements,
dense tiles whose loads start before the matmul, and no spills."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from engine.build.tools.toolchain import Toolchain, compiler_environ, find_toolchain
from engine.errors import MissingTool
from engine.lift import lift
from engine.lift.files.kernel_package import load_package
from engine.lower.lower import lower
from engine.resources import include_dir, kernels_dir, specs_dir
from engine.spec.read import read_recipe
from engine.transfer.rules import apply, plan

# Reconvergence points of the kernel besides the masks: waits, rows at the ends, stores.
FEW = 20


@cache
def source_of(spec: str) -> bytes:
    """The bf16 kernel of head size 128 as the rules adapt it to a bundled spec."""
    package = load_package(kernels_dir() / "flash_fwd_sm90")
    one = next(s for s in package.specialisations if s == {"T": "bf16", "D": "128"})
    base = lift(package, one, package.archs[0])
    recipe = read_recipe(specs_dir() / f"{spec}.py", {})
    *_, (_, target) = apply(base.module, plan(base.module, recipe).steps)
    return lower(base, target).source


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    try:
        found = find_toolchain()
        found.require_arch("sm_90a")
    except MissingTool as missing:
        pytest.skip(missing.message)
    if found.cuobjdump is None:
        pytest.skip("there is no cuobjdump on this machine to read machine code with")
    return found


def machine_code(toolchain: Toolchain, spec: str, folder: Path) -> list[str]:
    """The attention kernel's instructions in order; nothing may have spilled."""
    unit, cubin = folder / "unit.cu", folder / "unit.cubin"
    instance = b"\ntemplate cudaError_t launch<bf16, 128>(const Args&, cudaStream_t);\n"
    unit.write_bytes(source_of(spec) + instance)
    done = subprocess.run(
        [
            str(toolchain.nvcc.path), "-std=c++17", "-O3", "--expt-relaxed-constexpr",
            "-Xptxas", "-v", "-DCUBRIDGE_ARCH=900", f"-I{include_dir()}",
            "-gencode", "arch=compute_90a,code=sm_90a", "-cubin", "-o", str(cubin), str(unit),
        ],
        capture_output=True, text=True, env=compiler_environ(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not re.findall(r"[1-9]\d* bytes spill", done.stderr), done.stderr
    assert not re.findall(r"\(C75\d\d\)", done.stderr), done.stderr
    assert toolchain.cuobjdump is not None
    dump = [str(toolchain.cuobjdump.path), "-sass", str(cubin)]
    sass = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    attention = next(part for part in sass.split("Function : ") if "HGMMA" in part)
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", attention)


@pytest.mark.parametrize("spec", ["global_sliding_window", "causal_blockwise", "prefix_lm"])
def test_masks_with_alternatives_do_not_branch(
    toolchain: Toolchain, spec: str, tmp_path: Path
) -> None:
    """With a branch for each element the first two had 59 more."""
    assert machine_code(toolchain, spec, tmp_path).count("BSSY") <= FEW


def test_a_dense_tile_is_loaded_before_the_matmul(toolchain: Toolchain, tmp_path: Path) -> None:
    code = machine_code(toolchain, "bias_gqa", tmp_path)
    matmul = next(n for n, op in enumerate(code) if op.startswith("HGMMA"))
    loads = [n for n, op in enumerate(code) if op.startswith("LDG")]
    # Four neighbours to an access: 64 x 80 elements of a warpgroup of 128 threads.
    assert sum(n < matmul for n in loads) >= 64 * 80 // 128 // 4
    between = code[matmul : next(n for n, op in enumerate(code) if op.startswith("MUFU.EX2"))]
    assert not any(op.startswith("LDG") for op in between)
