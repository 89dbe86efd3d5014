"""Vectors of global memory: booleans keep pairs as they are, and a layout is named once."""

import pytest
import torch
from helpers import attention, faults, golden_text, make_inputs

from engine.cuir.execute import Limits, Schedule, run_program
from engine.cuir.parser import parse_module
from engine.cuir.static.check import check

INDENT = " " * 16
KEEP = f"""if not tile_full[BM, BN](args, b, h, q0, n):
{INDENT}    s = keep(s, lambda i, j: j < args.Nk, at=[row0, n * BN])
"""
WAYS = {
    "an element": "s = keep(s, lambda i, j: j < args.Nk and Valid[b, j], at=[row0, n * BN])\n",
    "an element alone": "s = keep(s, lambda i, j: Valid[b, j], at=[row0, n * BN])\n",
    "an element after a number": "s = keep(s, lambda i, j: b < args.B and Valid[b, j], "
    "at=[row0, n * BN])\n",
    "a column vector": "valid = load_cols[wgmma_acc[64, BN]](Valid[b, n * BN:])\n"
    f"{INDENT}s = keep(s, valid, lambda ok, i, j: ok, at=[row0, n * BN])\n",
    "one that chooses": "valid = load_cols[wgmma_acc[64, BN]](Valid[b, n * BN:])\n"
    f"{INDENT}s = map(s, valid, lambda x, ok: x if ok else -inf)\n",
    "one made by its keys": "valid = zeros(col_of[wgmma_acc[64, BN]])\n"
    f"{INDENT}valid = map(valid, lambda x, j: 1.0 if j < args.Nk and Valid[b, j] else 0.0, "
    "at=[row0, n * BN])\n"
    f"{INDENT}s = keep(s, valid, lambda ok, i, j: ok > 0.0, at=[row0, n * BN])\n",
}


def masked(keep):
    text = golden_text("hopper_pingpong")
    for old, new in (
        ("    scale: f32\n", "    scale: f32\n    valid: tensor\n"),
        ("    LSE = gmem", "    Valid = gmem[bool](args.valid, args.B, args.Nk)\n    LSE = gmem"),
        (KEEP, keep),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return parse_module(text)


def test_a_layout_is_the_accumulator_s():
    wrong = WAYS["a column vector"].replace("[wgmma_acc[64, BN]]", "[col_of[wgmma_acc[64, BN]]]")
    found = [f.message for f in check(masked(wrong))]
    assert any("load_cols[wgmma_acc[64, 64]], not load_cols[col_of[" in m for m in found), found


def test_a_column_vector_is_told_its_column():
    """C++'s `at(n * BN)` is a row, and its column 0: a vector of keys would read the first ones."""
    rows_alone = WAYS["one made by its keys"].replace("at=[row0, n * BN])\n", "at=[n * BN])\n", 1)
    found = [f.message for f in check(masked(rows_alone))]
    assert any("the row and the column where the tile starts" in m for m in found), found


@pytest.mark.parametrize("way", WAYS)
def test_booleans_choose_pairs(way):
    module = masked(WAYS[way])
    assert faults(module) == ()
    inputs = make_inputs(B=2, Nq=70, Nk=130)
    valid = torch.rand(2, 130, generator=torch.Generator().manual_seed(1)) < 0.5
    valid[:, 128:] = True  # the tile that is visited first has a kept key: nothing guards a maximum
    outcome = run_program(
        module, {**inputs, "valid": valid}, "exact", Schedule(1), Limits(sm_count=2)
    )
    assert outcome.clean, outcome.findings
    for b in range(2):
        q, k, v = (inputs[name][b : b + 1] for name in "qkv")
        o, lse = attention(q, k[:, :, valid[b]], v[:, :, valid[b]], inputs["scale"])
        assert (outcome.outputs["o"][b : b + 1] - o).abs().max() < 1e-10
        assert (outcome.outputs["lse"][b : b + 1] - lse).abs().max() < 1e-10
