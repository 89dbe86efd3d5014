"""Roundings that numpy has no operation for, against exact fractions and PyTorch's own types."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from engine.ptx.floats import EIGHT_BITS, fma64, from_eight, to_eight

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
