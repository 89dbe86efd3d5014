"""Shapes as a person writes them, and the clock's medians."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.worker.contests.timing import clock_medians
from engine.worker.problems.problem_sizes import cases_of, label, parse_shape

SIZE = st.integers(1, 10**6)


@given(SIZE, SIZE, st.integers(1, 16), SIZE, SIZE)
def test_shapes_read_back(b: int, hkv: int, group: int, n_q: int, n_k: int) -> None:
    hq = hkv * group
    assert parse_shape(f"{b}x{hq}/{hkv}x{n_q}:{n_k}") == (b, hq, hkv, n_q, n_k)
    assert parse_shape(f"{b}x{hq}x{n_q}") == (b, hq, hq, n_q, n_q)


@pytest.mark.parametrize("text", ["", "2x32", "2x32/5x64", "0x1x1", "2x32x8192 ", "ax2x3"])
def test_what_is_no_shape_says_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"shape|sizes"):
        parse_shape(text)


def test_a_plan_of_lengths_or_shapes() -> None:
    plan = {"lengths": [2048, 32768]}
    assert [(c.B, c.Hq, c.Nq) for c in cases_of(plan, 128)] == [(8, 32, 2048), (1, 32, 32768)]
    assert [c.Hq for c in cases_of(plan, 256)] == [16, 16]
    shapes = cases_of({"lengths": None, "shapes": ["1x64/8x8192"]}, 128)
    assert [(c.B, c.Hq, c.Hkv, c.Nq, c.Nk) for c in shapes] == [(1, 64, 8, 8192, 8192)]
    assert label({**shapes[0].sizes, "D": 192, "Dv": 128}) == "S 8192 B 1 heads 64/8 D 192/128"


def test_clock_medians() -> None:
    assert clock_medians("1980, 300.5\n1400, 690.0\nN/A, N/A\n1410, 700.0\n") == {
        "sm_mhz": 1410.0, "power_w": 690.0
    }  # fmt: skip
    assert clock_medians("") == {}
