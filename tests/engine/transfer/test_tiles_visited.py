"""Tiles that the schedules visit: for masks over indices those that hold a kept pair, no more."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from engine.cuir.nodes import Module, Num
from engine.cuir.parser import parse_expr
from engine.cuir.scalar import evaluate
from engine.lower.spelling.legal import legal
from engine.service.views.keep_map import KeepMap
from engine.service.views.target_mask import TargetMask, TileClass
from engine.spec.decks.deck_inputs import violated
from engine.spec.python.signature import fixed_sizes
from engine.spec.recipes.recipe import Recipe
from engine.transfer.bounds import reads_pairs
from engine.transfer.rules import apply, plan
from tests.engine.spec.read_once import recipe_of
from tests.engine.spec.test_bundled import ASKS
from tests.engine.transfer.recipes import lifted

# Three files share what is carried over: one worker runs them, each kernel and spec is made once.
pytestmark = pytest.mark.xdist_group("tiles")
KERNELS = ("flash_fwd_sm80", "flash_fwd_sm90")
LENGTHS = ((1500, 1500), (300, 1701), (1701, 300), (1, 1300), (129, 128))
# Of the visited tiles; 0 where it is not said.
MASKED_IN_VAIN = {"causal_blockwise": 0.13, "global_sliding_window": 0.06}


def masked(data: bool) -> list[str]:
    """The bundled specs whose masks read data, or only indices; without reading them first."""
    keeps = {name: parse_expr(asked[1]) for name, asked in ASKS.items()}
    return [s for s, keep in keeps.items() if keep != Num(True) and reads_pairs(keep) == data]


@cache
def carried(kernel: str, spec: str) -> tuple[Module, Module, object]:
    recipe = recipe_of(spec)
    base = lifted(kernel, fixed_sizes(recipe.constraints).get("D"))
    planned = plan(base, recipe)
    *_, (_, target) = apply(base, planned.steps)
    return base, legal(target), planned.binding


def sizes_of(recipe: Recipe, nq: int, nk: int) -> dict[str, int] | None:
    """Small sizes of these lengths; None where the spec has none."""
    usual = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": nq, "Nk": nk, "D": 64, "Dv": 64}
    tried = ({**usual, **fixed_sizes(recipe.constraints), "Hkv": heads} for heads in (1, 2))
    return next((sizes for sizes in tried if not violated(recipe, sizes)), None)


def visited(target: TargetMask, rows: int, tiles: int) -> tuple[torch.Tensor, torch.Tensor]:
    """How often each tile is visited, and which are taken as full: [blocks, tiles]."""
    blocks = -(-rows // target.rows)
    often = torch.zeros(blocks, tiles, dtype=torch.int64)
    full = torch.zeros(blocks, tiles, dtype=torch.bool)
    for block in range(blocks):
        q0 = block * target.rows
        for step in range(int(target.count(q0))):
            n = int(target.index(q0, step))
            often[block, n] += 1
            # Rows past the last one pass over every tile.
            last = min(q0 + target.rows, rows)
            parts = range(q0 // target.part_rows, -(-last // target.part_rows))
            full[block, n] = all(target.classes(p).get(n) is TileClass.FULL for p in parts)
    return often, full


@pytest.mark.parametrize("spec", masked(data=False))
@pytest.mark.parametrize("kernel", KERNELS)
def test_visited_tiles_are_those_that_hold_a_kept_pair(kernel: str, spec: str) -> None:
    recipe = recipe_of(spec)
    base, target, binding = carried(kernel, spec)
    for nq, nk in LENGTHS:
        sizes = sizes_of(recipe, nq, nk)
        if sizes is None:
            continue
        picture = KeepMap(recipe, target, binding, sizes, base=base)  # type: ignore[arg-type]
        assert picture.target is not None
        bm, bn = picture.target.rows, picture.target.keys
        blocks, tiles = -(-nq // bm), -(-nk // bn)
        i, j = torch.arange(nq)[:, None], torch.arange(nk)[None, :]
        keep = torch.as_tensor(evaluate(recipe.keep, {**sizes, "i": i, "j": j, "b": 0, "h": 0}))
        keep = keep.broadcast_to(nq, nk)
        padded = torch.zeros(blocks * bm, tiles * bn, dtype=torch.bool)
        padded[:nq, :nk] = keep
        held = padded.view(blocks, bm, tiles, bn).any(-1).any(1)
        padded[nq:, :nk] = True  # rows beyond the last one need no mask
        whole = padded.view(blocks, bm, tiles, bn).all(-1).all(1)
        often, full = visited(picture.target, nq, tiles)
        ratio = float(often.sum()) / max(int(held.sum()), 1)
        assert torch.equal(often, held.long()), f"{(nq, nk)}: {ratio:.2f} visits per tile"
        assert not bool((full & ~whole).any()), f"{(nq, nk)}: a tile without its mask"
        # Only where several alternatives cover a tile between them is a mask evaluated in vain.
        assert int((whole & ~full).sum()) <= MASKED_IN_VAIN.get(spec, 0.0) * int(often.sum())


def test_the_data_dependent_specs_have_lists() -> None:
    """What the other test leaves out is held to counting by the tests of the lists."""
    for spec in masked(data=True):
        for kernel in KERNELS:
            assert carried(kernel, spec)[2].workspace is not None  # type: ignore[attr-defined]
