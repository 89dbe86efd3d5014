"""Chains that share a multiprocessor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cost.card import card
from engine.cost.demand import Demand
from engine.cost.nodes import Op
from engine.cost.overlap import alone, round_time, step_time

H100 = card("h100")
CYCLES = st.floats(0.0, 5000.0)
UNITS = st.fixed_dictionaries({"a": CYCLES, "b": CYCLES, "c": CYCLES})


def test_one_chain_adds_up() -> None:
    assert round_time({"tensor": 900, "mufu": 450}, 100, 1) == 1450


def test_many_chains_fill_the_busiest_unit() -> None:
    assert round_time({"tensor": 900, "mufu": 450}, 100, 200) == pytest.approx(200 * 900, rel=0.01)


def test_a_few_chains_leave_units_idle() -> None:
    """Exact mean value analysis of 896, 448, 400 cycles and three customers: 3124."""
    found = round_time({"tensor": 896, "mufu": 448, "vector": 400}, 0, 3)
    assert 3 * 896 < found == pytest.approx(3124, rel=0.04)


@given(UNITS, CYCLES, st.floats(1.0, 20.0))
def test_bounds(units: dict[str, float], waiting: float, chains: float) -> None:
    found = round_time(units, waiting, chains)
    assert found >= max(chains * max(units.values()), sum(units.values()) + waiting) - 1e-6
    assert found <= chains * (sum(units.values()) + waiting) + 1e-6


@given(UNITS, CYCLES, st.floats(1.0, 20.0), st.sampled_from("abc"), st.floats(0.0, 1000.0))
def test_more_work_is_never_faster(
    units: dict[str, float], waiting: float, chains: float, unit: str, more: float
) -> None:
    heavier = {**units, unit: units[unit] + more}
    before = round_time(units, waiting, chains)
    assert round_time(heavier, waiting, chains) >= before * (1 - 1e-6)
    assert round_time(units, waiting + more, chains) >= before * (1 - 1e-6)


def ops(overlap: bool) -> list[Op]:
    """S = Q K, then P V: with `overlap` P V of the step before goes on under the softmax."""
    matmul = Demand(wgmma=4096 * 500.0)
    softmax = Op("map", Demand(mufu=16 * 400.0))
    first = [Op("gemm_async_init", matmul), Op("mma_commit", Demand())]
    second = [Op("gemm_async", matmul), Op("mma_commit", Demand())]
    if overlap:
        return [*first, *second, Op("mma_wait", Demand(), 1), softmax, Op("mma_wait", Demand(), 0)]
    return [
        *first, Op("mma_wait", Demand(), 0), softmax, *second, Op("mma_wait", Demand(), 0),
    ]  # fmt: skip


def test_matmuls_in_flight_hide_the_softmax() -> None:
    # 400 cycles of special functions, whose instructions take 50 issue slots.
    assert alone(ops(False), H100) == pytest.approx(1450)
    assert alone(ops(True), H100) == pytest.approx(1000)
    assert step_time(ops(True), 2, H100) < step_time(ops(False), 2, H100)
    assert step_time(ops(False), 1, H100) == pytest.approx(1450)


def test_the_clock_falls_with_the_work_of_the_tensor_cores() -> None:
    full = H100.clock(1.0, 770.0)
    assert full == pytest.approx(770e6 / (132 * 4096))
    assert H100.clock(0.5, 770.0) == pytest.approx(full * 2 ** (1 / 3))
    assert H100.clock(0.01) == H100.clock_mhz
