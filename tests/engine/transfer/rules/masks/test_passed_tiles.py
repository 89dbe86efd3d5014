"""What a part of a block's rows passes over: tiles without a pair that they keep, and no others."""

from __future__ import annotations

import pytest
import torch

from engine.cuir.scalar import evaluate
from engine.service.views.keep_map import KeepMap
from engine.transfer.match import find_attention
from engine.transfer.rules import apply, plan
from tests.engine.spec.read_once import recipe_of
from tests.engine.transfer.recipes import VARIANTS, lifted
from tests.engine.transfer.test_tiles_visited import LENGTHS, carried, masked, sizes_of

pytestmark = pytest.mark.xdist_group("tiles")  # which shares what is carried over
KERNEL = "flash_fwd_sm90"
ROWS = 64
# Masks whose first kept key moves with the row, and which keep no prefix for all.
WINDOWS = frozenset(
    {"sliding_window", "sliding_window_causal", "sinks_window", "flex_softcap_window",
     "causal_blockwise"}
)  # fmt: skip


@pytest.mark.parametrize("spec", masked(data=False))
def test_only_tiles_without_a_kept_pair_are_passed_over(spec: str) -> None:
    recipe = recipe_of(spec)
    base, target, binding = carried(KERNEL, spec)
    schedule = find_attention(base).schedule
    assert schedule.lead is not None and schedule.tail is not None
    passed = [0, 0]
    for nq, nk in LENGTHS:
        sizes = sizes_of(recipe, nq, nk)
        if sizes is None:
            continue
        picture = KeepMap(recipe, target, binding, sizes, base=base).target  # type: ignore[arg-type]
        assert picture is not None
        bn = picture.keys
        lead_of, tail_of = (
            picture._schedule(name, ("args", "b", "h", "q0", "row0"))
            for name in (schedule.lead, schedule.tail)
        )
        i, j = torch.arange(nq)[:, None], torch.arange(nk)[None, :]
        keep = torch.as_tensor(evaluate(recipe.keep, {**sizes, "i": i, "j": j, "b": 0, "h": 0}))
        keep = keep.broadcast_to(nq, nk)
        for q0 in range(0, nq, picture.rows):
            tiles = [int(picture.index(q0, s)) for s in range(int(picture.count(q0)))]
            for row0 in range(q0, min(q0 + picture.rows, nq), ROWS):
                lead, tail = int(lead_of(q0, row0)), int(tail_of(q0, row0))
                end = len(tiles) - tail
                assert 0 <= lead <= end <= len(tiles)
                passed = [passed[0] + lead, passed[1] + tail]
                own = keep[row0 : row0 + ROWS]
                held = [bool(own[:, n * bn : (n + 1) * bn].any()) for n in tiles]
                assert not any(held[:lead]) and not any(held[end:])
                # As many as there are, but for rows that keep nothing at all.
                assert not any(held) or held[lead], (q0, row0)
                if spec in WINDOWS:
                    assert not any(held) or held[end - 1], (q0, row0)
    # A block of no more rows than a tile has keys may have none to pass over.
    assert passed[0] > 0 or picture.rows <= picture.keys
    # A block of these rows ends where blocks of 512 keys do.
    windows = WINDOWS - {"causal_blockwise"}
    assert (passed[1] > 0) == (spec in windows) or picture.rows <= picture.keys


def test_rows_behind_the_last_pass_over_all_tiles() -> None:
    recipe = recipe_of("causal")
    base, target, binding = carried(KERNEL, "causal")
    name = find_attention(base).schedule.lead
    assert name is not None
    q0 = 2 * ROWS  # a block of which one part has rows
    sizes = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": q0 + 8, "Nk": 300, "D": 64, "Dv": 64}
    picture = KeepMap(recipe, target, binding, sizes, base=base).target  # type: ignore[arg-type]
    assert picture is not None and picture.rows == q0
    lead_of = picture._schedule(name, ("args", "b", "h", "q0", "row0"))
    tiles = int(picture.count(q0))
    assert int(lead_of(q0, q0)) < tiles and int(lead_of(q0, q0 + ROWS)) == tiles


@pytest.mark.parametrize("variant", ["bias", "sigmoid"])
def test_nothing_is_passed_over_without_a_mask(variant: str) -> None:
    base = lifted(KERNEL)
    *_, (_, target) = apply(base, plan(base, VARIANTS[variant]).steps)
    name = find_attention(base).schedule.lead
    assert name is not None
    assert target.function(name) == base.function(name)


@pytest.mark.parametrize("spec", ["document", "prefix_lm_document"])
def test_no_list_is_searched_where_all_rows_have_the_same_candidates(spec: str) -> None:
    """The search could not end without a tile, which would be a branch that no run takes."""
    base, target, _ = carried(KERNEL, spec)
    name = find_attention(base).schedule.lead
    assert name is not None
    assert target.function(name) == base.function(name)
    assert not any("candidate_lead" in f.name for f in target.functions)


def test_the_kernel_without_parts_has_no_lead() -> None:
    assert find_attention(lifted("flash_fwd_sm80")).schedule.lead is None
