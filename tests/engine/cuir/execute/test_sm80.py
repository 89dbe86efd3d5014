"""The sm_80 golden program: right numbers in both modes, and every broken copy is found."""

import pytest
import torch
from helpers import exact_error, golden, golden_text, make_inputs, typed_ok

from engine.cuir.execute import Schedule, run_program
from engine.cuir.nodes import walk
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module

TEXT = golden_text("sm80_flash")

SHAPES = [
    {"Nq": 128, "Nk": 128},
    {"Nq": 113, "Nk": 203, "Hq": 4, "Hkv": 2, "B": 2},
    {"Nq": 300, "Nk": 300},
    {"Nq": 1, "Nk": 1},
    {"Nq": 65, "Nk": 63, "Hq": 3, "Hkv": 1},
    {"Nq": 70, "Nk": 0},
    {"Nq": 0, "Nk": 64},
]


def test_golden_text_is_canonical():
    assert print_module(golden("sm80_flash")) == TEXT


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_exact_and_typed(shape, seed):
    inputs = make_inputs(**shape)
    module = golden("sm80_flash")
    exact = run_program(module, inputs, "exact", Schedule(seed))
    assert exact.status == "ran" and exact.findings == ()
    error, lse = exact_error(exact.outputs, inputs)
    assert error < 1e-10 and lse < 1e-10
    typed = run_program(module, inputs, "typed", Schedule(seed))
    assert typed.status == "ran" and typed.findings == ()
    assert typed_ok(typed.outputs, inputs)
    assert typed.outputs["o"].dtype == torch.bfloat16 or shape["Nq"] == 0


def test_one_stage_where_shared_memory_is_small():
    module = parse_module(TEXT.replace("'sm_80'", "'sm_86'"))
    inputs = make_inputs(Nq=100, Nk=200)
    outcome = run_program(module, inputs)
    assert outcome.clean and exact_error(outcome.outputs, inputs)[0] < 1e-10


def test_any_strides():
    inputs = make_inputs(Nq=70, Nk=90)
    for name in ("q", "k", "v"):
        inputs[name] = inputs[name].transpose(1, 2).contiguous().transpose(1, 2)
    outcome = run_program(golden("sm80_flash"), inputs)
    assert outcome.clean and exact_error(outcome.outputs, inputs)[0] < 1e-10


def find(text, statement, nth=0):
    """The path of the nth statement that prints as `statement`."""
    module = parse_module(text)
    from engine.cuir.printer import first_line

    hits = [path for path, stmt in walk(module) if first_line(stmt) == statement]
    return hits[nth]


BROKEN = {
    "missing wait": ("        wait_async(STAGES - 1)\n", "        pass\n", "early_read",
                     "gemm(s, sQ, transpose(sK[step % STAGES]))"),
    "missing sync before the read": (
        "        wait_async(STAGES - 1)\n        sync()\n", "        wait_async(STAGES - 1)\n",
        "early_read", "gemm(s, sQ, transpose(sK[step % STAGES]))"),
    "wait one group short": ("wait_async(STAGES - 1)", "wait_async(STAGES)", "early_read",
                             "gemm(s, sQ, transpose(sK[step % STAGES]))"),
    "missing sync before the copy": (
        "        ahead = step + STAGES - 1\n        sync()\n",
        "        ahead = step + STAGES - 1\n",
        "overwritten_stage", "copy_async(sK[ahead % STAGES], K[b, g, next * BN:])"),
    "output over keys in use": (
        "    wait_async(0)\n    sync()\n    store(sO, o)",
        "    sO = shared[T, BM, D](BM * D * sizeof(T))\n    store(sO, o)",
        "overwritten_stage", "store(sO, o)"),
    "output copied before it is there": (
        "    store(sO, o)\n    sync()\n", "    store(sO, o)\n", "early_read",
        "copy(O[b, h, q0:], sO)"),
    "key tile past its stage": (
        "sV = shared_stages[T, STAGES, BN, D]((BM + STAGES * BN)",
        "sV = shared_stages[T, STAGES, BN, D]((BM + BN)", None, None),
    "unguarded empty rows": ("x * rcp_approx(sum) if sum > 0.0 else 0.0", "x * rcp_approx(sum)",
                             "nan_output", "copy(O[b, h, q0:], sO)"),
    "partial sum": ("    l = row_reduce(l)\n", "", "partial_sum",
                    "o = map(o, l, lambda x, sum: x * rcp_approx(sum) if sum > 0.0 else 0.0)"),
    "accumulator as operand": ("gemm(o, p, sV[step % STAGES])", "gemm(o, s, sV[step % STAGES])",
                               "layout_mismatch", "gemm(o, s, sV[step % STAGES])"),
    "negative row": ("copy_async(sQ, Q[b, h, q0:])", "copy_async(sQ, Q[b, h, q0 - 1:])",
                     "out_of_bounds", "copy_async(sQ, Q[b, h, q0 - 1:])"),
    "head out of range": ("copy_async(sK[stage], K[b, g, first * BN:])",
                          "copy_async(sK[stage], K[b, h + 1, first * BN:])",
                          "out_of_bounds", "copy_async(sK[stage], K[b, h + 1, first * BN:])"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_broken(name, seed):
    old, new, kind, statement = BROKEN[name]
    assert TEXT.count(old) == 1
    text = TEXT.replace(old, new)
    shape = {"Nq": 64, "Nk": 0} if kind == "nan_output" else {"Nq": 64, "Nk": 300}
    outcome = run_program(parse_module(text), make_inputs(**shape), "exact", Schedule(seed))
    assert outcome.findings, name
    if kind is None:
        return
    found = [(f.kind, f.path) for f in outcome.findings]
    assert (kind, find(text, statement)) in found, outcome.findings
