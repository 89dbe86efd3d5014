"""Whole kernels: the golden text, and the bundled ones in every specialisation."""

from __future__ import annotations

import time

import pytest

from engine.cuir.execute import Schedule, run_program
from engine.cuir.nodes import walk
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.cuir.static.check import check
from engine.lift import lift, lift_source, load_package, specialisation_key
from engine.resources import list_kernels
from tests.engine.cuir.helpers import exact_error, make_inputs
from tests.engine.lift.sources import BINDING, CONTRACT, DATA, kernel_bytes

BUNDLED = [
    pytest.param(
        name, arch, specialisation_key(binding), id=f"{name}-{arch}-{specialisation_key(binding)}"
    )
    for name in list_kernels()
    for package in [load_package(name)]
    for arch in package.archs
    for binding in package.specialisations
]


def test_the_golden_text():
    module = lift_source(CONTRACT, BINDING, "sm_80").module
    assert print_module(module) == (DATA / "flash.cuir").read_text()


def test_the_specialisation_decides_if_constexpr():
    one = lift_source(CONTRACT, BINDING, "sm_86").module
    two = lift_source(CONTRACT, BINDING, "sm_80").module
    first_stage = "copy_async(sK[0], K[b, h_kv, 0:])"
    assert first_stage in print_module(one)
    assert first_stage not in print_module(two)


def test_constants_follow_the_launches():
    lifted = lift_source(CONTRACT, BINDING, "sm_80")
    assert lifted.constants["launch"]["SMEM_BYTES"] == (128 + 4 * 64) * 128 * 2
    assert lifted.constants["flash_fwd"] == {
        "T": "bf16", "D": 128, "BM": 128, "BN": 64, "STAGES": 2, "WARPS": 4,
    }  # fmt: skip
    assert lifted.constants["tile_full"] == {"BM": 128, "BN": 64}


@pytest.mark.parametrize(("name", "arch", "key"), BUNDLED)
def test_bundled_kernels_lift_without_an_opaque_op(name: str, arch: str, key: str):
    lifted = lift(name, key, arch)
    assert lifted.opaque == ()
    assert parse_module(print_module(lifted.module)) == lifted.module
    assert check(lifted.module) == ()


@pytest.mark.parametrize(
    ("name", "arch"), [("flash_fwd_sm80", "sm_80"), ("flash_fwd_sm90", "sm_90a")]
)
def test_what_was_lifted_computes_attention(name: str, arch: str):
    inputs = make_inputs(B=2, Hq=4, Hkv=2, Nq=113, Nk=203, D=64)
    module = lift(name, "bf16_64", arch).module
    outcome = run_program(module, inputs, "exact", Schedule(0))
    assert (outcome.status, outcome.findings) == ("ran", ())
    assert max(exact_error(outcome.outputs, inputs)) < 1e-10


@pytest.mark.parametrize("name", list_kernels())
def test_every_statement_has_its_place(name: str):
    lifted = lift(name)
    for path, _ in walk(lifted.module):
        span = lifted.provenance[path]
        assert 0 <= span.start < span.end <= len(lifted.source)
        assert lifted.text(path).strip()


def test_a_thousand_lines_take_less_than_half_a_second():
    source = kernel_bytes("flash_fwd_sm80").decode()
    begin = source.index("  for (int step = 0; step < tiles; ++step) {")
    end = source.index("  l = row_reduce(l);")
    long = (source[:begin] + source[begin:end] * 30 + source[end:]).encode()
    assert long.count(b"\n") > 1000
    seconds = []
    for _ in range(5):
        started = time.process_time()  # other processes on the machine are not the lifter's
        lifted = lift_source(long, BINDING, "sm_80")
        seconds.append(time.process_time() - started)
    assert lifted.opaque == ()
    assert min(seconds) < 0.5
