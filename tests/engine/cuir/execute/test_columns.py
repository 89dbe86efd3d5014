"""The first columns of a shared tile: what a matmul takes of them, and where they may stand."""

import numpy as np
import pytest
import torch
from helpers import attention, faults, golden_text, make_inputs, path_of

from engine.cuir.execute import Limits, Schedule, run_program
from engine.cuir.execute.state.shared_memory import Access, SharedMemory
from engine.cuir.ops.views import MATMUL_STEP
from engine.cuir.parser import parse_module
from engine.cuir.types import SharedType

TEXT = golden_text("hopper_pingpong")  # D 64
WHOLE = "gemm_async_init(s, sQ[group], transpose(sK[stage]))"
FEW = Limits(sm_count=2)


def narrowed(width):
    return WHOLE.replace("sQ[group]", f"columns[{width}](sQ[group])").replace(
        "sK[stage]", f"columns[{width}](sK[stage])"
    )


def module(*changes):
    text = TEXT
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return parse_module(text)


@pytest.mark.parametrize("mode", ["exact", "typed"])
@pytest.mark.parametrize("width", range(MATMUL_STEP, 65, MATMUL_STEP))
def test_a_matmul_takes_the_first_columns_alone(width, mode):
    inputs = make_inputs(Nq=130, Nk=90)
    narrow = module((WHOLE, narrowed(width)))
    assert faults(narrow) == ()
    outcome = run_program(narrow, inputs, mode, Schedule(1), FEW)
    assert outcome.clean
    q, k = (inputs[name][..., :width] for name in "qk")
    o, lse = attention(q, k, inputs["v"], inputs["scale"])
    tolerance = 1e-10 if mode == "exact" else 3e-2
    assert (outcome.outputs["o"] - o).abs().max() < tolerance
    assert (outcome.outputs["lse"] - lse).abs().max() < tolerance


def test_columns_that_have_not_landed_are_an_early_read():
    text = narrowed(48)
    late = module((WHOLE, text), ("                wait(k_full[stage], parity)\n", ""))
    outcome = run_program(late, make_inputs(Nq=64, Nk=200), "exact", limits=FEW)
    found = [(f.kind, f.path) for f in outcome.findings]
    assert any(("early_read", path) in found for path in path_of(late, text)), found


LOAD = "tma_load(sK[stage], k_map, [0, n * BN, h_kv, b], k_full[stage])"
PLACES = {
    "not a step of the matmul": (WHOLE, narrowed(40), "type_mismatch", narrowed(40)),
    "none": (WHOLE, narrowed(0), "type_mismatch", narrowed(0)),
    "more than there are": (WHOLE, narrowed(80), "type_mismatch", narrowed(80)),
    "of all stages": (
        WHOLE, WHOLE.replace("sQ[group]", "columns[48](sQ)"), "type_mismatch",
        WHOLE.replace("sQ[group]", "columns[48](sQ)"),
    ),
    "of columns": (
        WHOLE, WHOLE.replace("sQ[group]", "columns[32](columns[48](sQ[group]))"), "type_mismatch",
        WHOLE.replace("sQ[group]", "columns[32](columns[48](sQ[group]))"),
    ),
    "of one operand alone": (
        WHOLE, WHOLE.replace("sQ[group]", "columns[48](sQ[group])"), "type_mismatch",
        WHOLE.replace("sQ[group]", "columns[48](sQ[group])"),
    ),
    "where a copy lands": (
        LOAD, LOAD.replace("sK[stage]", "columns[48](sK[stage])"), "type_mismatch",
        LOAD.replace("sK[stage]", "columns[48](sK[stage])"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_columns_are_for_a_matmul_alone(name):
    old, new, kind, statement = PLACES[name]
    wrong = module((old, new))
    found = [(f.kind, f.path) for f in faults(wrong)]
    assert any((kind, path) in found for path in path_of(wrong, statement)), found


def test_another_arch_has_none():
    sm80 = golden_text("sm80_flash")
    old = "sK[step % STAGES]"
    assert sm80.count(f"transpose({old})") == 1
    wrong = parse_module(sm80.replace(f"transpose({old})", f"transpose(columns[16]({old}))"))
    assert "not_on_arch" in [f.kind for f in faults(wrong)]


def memory(found):
    made = SharedMemory(1024, 1, torch.float64, lambda kind, *rest: found.append(kind))
    clock = np.ones(1, np.int32)
    return made, lambda step: Access(0, 1, 0, clock, step, step, 0)


def test_only_the_columns_taken_have_to_be_there():
    found = []
    made, who = memory(found)
    whole = SharedType("bf16", 4, 64)
    first = SharedType("bf16", 4, 48, pitch=64)
    made.write(made.region(first, 0), who(0), "bf16", fenced=True)
    made.read(made.region(first, 0), who(1), "bf16", through_async=False)
    made.read(made.region(first, 0, rows=(1, 3)), who(2), "bf16", through_async=False)
    assert found == []
    made.read(made.region(whole, 0), who(3), "bf16", through_async=False)
    assert found == ["early_read"]


def test_elements_and_granules_are_those_of_the_whole_tile():
    made, _ = memory([])
    whole, first = SharedType("bf16", 4, 64), SharedType("bf16", 4, 48, pitch=64)
    made.tile(whole, 64).copy_(torch.arange(256.0).reshape(4, 64))
    assert torch.equal(made.tile(first, 64), made.tile(whole, 64)[:, :48])
    granules = np.arange(64)
    rows = made.region(whole, 64).of(granules).reshape(4, 8)
    assert np.array_equal(made.region(first, 64).of(granules), rows[:, :6])
    assert np.array_equal(made.region(first, 64, rows=(1, 3)).of(granules), rows[1:3, :6])
