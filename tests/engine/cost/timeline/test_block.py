"""The simulation of a block: it agrees with the cost model, and obeys the program's order."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from engine.cost.card import card
from engine.cost.timeline.block import timeline
from engine.cost.timeline.events import KINDS, MATMUL, SOFTMAX, Timeline
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError, CuirError
from engine.lower.spelling.legal import legal
from engine.resources import list_specs
from engine.service.session.workbench import lift_any
from engine.transfer.rules import apply, plan
from tests.engine.spec.read_once import recipe_of

AGREES = 0.05
SIZES = {"B": 1, "Hq": 1, "Hkv": 1, "Nq": 2048, "Nk": 2048, "scale": 0.09}
CARDS = {"flash_fwd_sm80": card("a100"), "flash_fwd_sm90": card("h100")}


@cache
def expert(kernel: str) -> Module:
    return lift_any(kernel, None, {"D": "128"}).module


def target(kernel: str, spec: str) -> Module:
    base = expert(kernel)
    trail = list(apply(base, plan(base, recipe_of(spec)).steps))
    return legal(trail[-1][1]) if trail else base


@cache
def of(kernel: str) -> Timeline:
    return timeline(expert(kernel), SIZES, CARDS[kernel])


@pytest.mark.parametrize("kernel", CARDS)
@pytest.mark.parametrize("spec", list_specs())
def test_a_tile_takes_what_the_cost_model_says(spec: str, kernel: str) -> None:
    try:
        module = target(kernel, spec)
    except CuBridgeError as error:
        pytest.skip(f"the rules do not carry {spec} to {kernel}: {error.message}")
    found = timeline(module, SIZES, CARDS[kernel])
    if (spec, kernel) == ("sinks_window", "flash_fwd_sm90"):
        # 64 rows and 128 keys before each: no tile of them stands between two others.
        assert found.predicted == 0
        return
    assert found.predicted > 1000
    assert found.tile == pytest.approx(found.predicted, rel=AGREES)


@pytest.mark.parametrize("kernel", CARDS)
def test_a_role_does_one_thing_at_a_time(kernel: str) -> None:
    found = of(kernel)
    assert {e.kind for e in found.events} == set(KINDS)
    for lane, name in enumerate(found.lanes):
        events = [e for e in found.events if e.lane == lane]
        assert events and all(e.end > e.begin for e in events)
        if "copies" not in name:  # K and V are on their way together
            assert all(a.end <= b.begin for a, b in pairwise(events))
    low, high = found.window
    assert high - low >= found.tile * (1 - 1e-9) > 0
    assert Timeline.from_json(found.to_json()) == found


def test_warpgroups_take_turns_and_one_s_softmax_runs_under_another_s_matmul() -> None:
    found = of("flash_fwd_sm90")
    assert found.lanes == (
        "warpgroup 0", "warpgroup 0, copies", "warpgroup 1", "warpgroup 1, matmuls",
        "warpgroup 2", "warpgroup 2, matmuls", "warpgroup 3", "warpgroup 3, matmuls",
    )  # fmt: skip
    first = {
        lane: next(e for e in found.events if e.lane == lane and e.kind == MATMUL)
        for lane, name in enumerate(found.lanes) if "matmuls" in name
    }  # fmt: skip
    begins = [event.begin for event in first.values()]
    assert begins == sorted(begins) and len(set(begins)) == 3
    softmax = [e for e in found.events if e.lane == 2 and e.kind == SOFTMAX]
    others = [e for e in found.events if e.lane == 5]
    assert any(a.begin < b.end and b.begin < a.end for a in softmax for b in others)


def test_the_longest_launch_that_visits_keys_is_shown() -> None:
    module = target("flash_fwd_sm90", "rope_causal")
    for sizes in ({"Nq": 1, "Nk": 65536}, {"Nq": 4096, "Nk": 1}):
        found = timeline(module, SIZES | sizes, CARDS["flash_fwd_sm90"])
        assert found.kernel == "flash_fwd"
        assert any(e.kind == MATMUL for e in found.events)
        low, high = found.window
        assert high - low > 100


def test_without_keys_there_are_no_steps_to_show() -> None:
    with pytest.raises(CuirError, match="no block visits a key tile"):
        timeline(expert("flash_fwd_sm90"), SIZES | {"Nk": 0}, CARDS["flash_fwd_sm90"])


def test_a_target_that_is_missing_an_arrival_is_told_not_to_end() -> None:
    module = expert("flash_fwd_sm90")
    text = print_module(module).replace("arrive(k_empty[stage])", "fence_async()")
    with pytest.raises(CuirError, match="wait for each other"):
        timeline(parse_module(text), SIZES, CARDS["flash_fwd_sm90"])
