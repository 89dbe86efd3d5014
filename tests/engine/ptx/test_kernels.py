"""Small kernels of five styles: right and clean in any order of warps, and seeded faults found."""

from __future__ import annotations

import pytest

from benchmarks import ptx_conformance, ptx_faults
from tests.engine.ptx import kernels

pytestmark = pytest.mark.skipif(kernels.NVCC is None, reason="no nvcc here")


@pytest.mark.parametrize("name", kernels.NAMES)
def test_a_kernel_equals_its_reference(name: str) -> None:
    for seed in (None, 5):
        made, outcome = kernels.execute(name, kernels.module_of(name), seed)
        assert not outcome.findings
        assert made.error() <= made.bound


def test_a_gpu_was_seen_to_agree_on_each_opcode() -> None:
    modules = [kernels.module_of(name) for name in kernels.NAMES]
    code = [at for module in modules for k in module.kernels.values() for at in k.code]
    assert not ptx_conformance.uncovered(code)


@pytest.mark.parametrize(
    ("name", "operator", "kind"),
    [
        ("mma", "lost bar.sync", "race"),
        ("mma", "loosened wait", "early read"),
        ("decode", "lost bar.sync", "race"),
        ("wmma", "lost bar.warp.sync", "race"),
        ("wgmma", "lost mbarrier wait", "undefined value"),
        ("wgmma", "lost fence.proxy.async", "missing proxy fence"),
        ("wgmma", "lost wgmma.fence", "missing wgmma fence"),
        ("wgmma", "lost wgmma.wait_group", "early read"),
        ("wgmma", "lost arrival", "deadlock"),
        ("wgmma", "loosened wait", "early read"),
    ],
)
def test_a_fault_is_found(name: str, operator: str, kind: str) -> None:
    module = kernels.module_of(name)
    kernel = next(iter(module.kernels.values()))
    said = [ptx_faults.judge(name, module, f, 50_000)
            for f in ptx_faults.faults(kernel, each=3) if f.operator == operator]  # fmt: skip
    assert any(kind in r.said for r in said), said
