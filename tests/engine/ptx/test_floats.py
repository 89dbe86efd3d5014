"""Roundings that numpy has no operation for, against exact fractions and PyTorch's own types."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from engine.ptx.floats import EIGHT_BITS, directed_fma32, fma64, from_eight, to_eight

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def exactly(a: float, b: float, c: float) -> float:
    total = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return total.numerator / total.denominator
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@given(NUMBERS, NUMBERS, NUMBERS, st.booleans())
@example(1 + 2.0**-30, 1 + 2.0**-30, -1.0, False)
@example(2.0**-600, 2.0**-500, 2.0**-1074, False)
@example(2.0**1000, 2.0**30, -(2.0**1023), False)
def test_fma_of_f64_rounds_once(a: float, b: float, c: float, cancels: bool) -> None:
    c = -(a * b) if cancels and math.isfinite(a * b) else c
    with np.errstate(all="ignore"):
        (made,) = fma64(*(np.array([x]) for x in (a, b, c)))
    assert made == exactly(a, b, c)


SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(SINGLE, SINGLE, SINGLE, st.booleans(), st.sampled_from(["rz", "rm", "rp"]))
@example(1.0, 1.0, -1.0, False, "rm")
@example(-1.0, 2.0**-149, 2.0**-149, False, "rp")
@example(2.0**127, 2.0, 1.0, False, "rz")
@example(1 + 2.0**-23, 1 + 2.0**-23, 2.0**-126, False, "rp")
def test_fma_rounds_to_the_side_that_is_asked(
    a: float, b: float, c: float, cancels: bool, way: str
) -> None:
    """The result lies on that side of the exact number, and its neighbour does not."""
    c = float(np.float32(-(a * b))) if cancels and abs(a * b) < 2.0**127 else c
    with np.errstate(all="ignore"):
        (made,) = directed_fma32(*(np.array([x], np.float32) for x in (a, b, c)), way)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    down = way == "rm" or (way == "rz" and exact > 0)
    with np.errstate(over="ignore"):
        further = np.nextafter(made, np.float32(np.inf if down else -np.inf))
    low, high = (made, further) if down else (further, made)
    assert low == -np.inf or Fraction(float(low)) <= exact
    assert high == np.inf or Fraction(float(high)) >= exact
    if exact == 0 and (math.copysign(1, a) * math.copysign(1, b) != math.copysign(1, c)):
        assert np.signbit(made) == (way == "rm")
    assert made == exact or low < high


KINDS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_is_what_pytorch_says_and_comes_back(kind: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    there = torch.from_numpy(every).view(KINDS[kind]).float().numpy()
    assert np.array_equal(from_eight(every, kind), there, equal_nan=True)
    finite = every[np.isfinite(there)]
    assert np.array_equal(to_eight(from_eight(finite, kind), kind), finite)


@given(st.floats(width=32))
def test_a_float_becomes_the_nearest_byte(x: float) -> None:
    for kind, type in KINDS.items():
        most = float(EIGHT_BITS[kind][np.isfinite(EIGHT_BITS[kind])].max())
        value = torch.tensor([x], dtype=torch.float32)
        want = value.clamp(-most, most).to(type).view(torch.uint8).item()
        (made,) = to_eight(np.array([x], np.float32), kind)
        assert made == (0x7F if math.isnan(x) else want)
