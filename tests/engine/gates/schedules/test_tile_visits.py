"""Tiles that a schedule visits in vain are counted, and a verdict says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.cuir.static.host_constants import constants_of
from engine.gates.deck import Tiles, quick
from engine.gates.runs.subject import Subject
from engine.gates.schedules.tile_visits import Visits, visits
from engine.spec.read import read_recipe
from engine.transfer.rules import apply, plan
from tests.engine.transfer.recipes import lifted

SPEC = """\
import torch

def attention(
    q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hkv Nk D"], v: Float[Tensor, "B Hkv Nk D"],
    wide: Bool[Tensor, "Hq"],
):
    H, Nq, Nk = q.size(1), q.size(2), k.size(2)
    g = H // k.size(1)
    k, v = k.repeat_interleave(g, dim=1), v.repeat_interleave(g, dim=1)
    s = q @ k.transpose(-1, -2) * q.size(-1) ** -0.5
    i, j = torch.arange(Nq)[:, None], torch.arange(Nk)
    h = torch.arange(H)[:, None, None]
    keep = MASK
    return s.masked_fill(~keep, float("-inf")).softmax(-1) @ v
"""
CASES = quick(Tiles(64, 64))


def subject(folder: Path, mask: str) -> Subject:
    path = folder / "spec.py"
    text = SPEC.replace("MASK", mask)
    path.write_text(text if "wide" in mask else text.replace('    wide: Bool[Tensor, "Hq"],\n', ""))
    recipe = read_recipe(path)
    base = lifted("flash_fwd_sm80")
    planned = plan(base, recipe)
    *_, (_, target) = apply(base, planned.steps)
    return Subject(target, recipe, planned.binding, path, {})


@pytest.mark.parametrize(
    "mask",
    ["(j <= i) & (i - j < 30)", "(j <= i) & ((i - j < 30) | (h % 2 != 0))",
     "(j <= i) & ((i - j < 30) | (h % 3 != 1))",
     "(j <= i) & ((i - j < 30) | ~wide[:, None, None])"],
)  # fmt: skip
def test_a_tight_schedule_visits_nothing_in_vain(mask: str, tmp_path: Path) -> None:
    found = visits(subject(tmp_path, mask), CASES)
    assert found is not None and found.visited > 0 and found.in_vain == 0
    assert found.words() == ""


def test_tiles_without_a_kept_pair_are_counted_and_said(tmp_path: Path) -> None:
    """No range bounds a remainder: all tiles below the diagonal are visited."""
    one = subject(tmp_path, "(j <= i) & ((i - j < 3) | (j % 500 == 490))")
    found = visits(one, CASES)
    assert found is not None
    case = next(c for c in CASES if str(c) == found.case)
    i, j = torch.arange(case.Nq)[:, None], torch.arange(case.Nk)
    keep = (j <= i) & ((i - j < 3) | (j % 500 == 490))
    consts = constants_of(one.module)
    rows, keys = int(consts["BM"]), int(consts["BN"])
    below = held = 0
    for q0 in range(0, case.Nq, rows):
        for k0 in range(0, case.Nk, keys):
            below += bool((j <= i)[q0 : q0 + rows, k0 : k0 + keys].any())
            held += bool(keep[q0 : q0 + rows, k0 : k0 + keys].any())
    heads = case.B * case.Hq
    assert (found.visited, found.in_vain) == (heads * below, heads * (below - held))
    assert found.in_vain > 0 and f"{found.in_vain} hold no kept pair" in found.words()


def test_what_only_some_heads_visit_in_vain_is_counted(tmp_path: Path) -> None:
    """The largest case may have no such head."""
    one = subject(tmp_path, "(j <= i) & ((i - j < 3) | (h % 2 == 0) | (j % 500 == 490))")
    found = visits(one, CASES)
    assert found is not None and found.in_vain > 0 and "heads 1/" not in found.case


def test_one_tile_is_said_in_the_singular() -> None:
    assert Visits("B 1", 3, 1).words() == "visits 3 tiles at B 1, of which 1 holds no kept pair"
