"""Inputs whose scores say which pair they are of."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import InputError
from engine.foreign.codes import Codes
from engine.ptx.floats import from_half, to_half

SIZES = {"B": 2, "Hq": 3, "Hkv": 1, "Nq": 40, "Nk": 72, "D": 16}


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("factor", [1.0, 0.17677669])
def test_each_pair_has_a_score_of_its_own(dtype: str, factor: float) -> None:
    codes = Codes(SIZES)
    q, k = (from_half(to_half(x.astype(np.float32), dtype), dtype) for x in codes.inputs())
    exact = np.einsum("bhid,bgjd->bhij", q.astype(np.float64), k.astype(np.float64))
    scores = (exact.astype(np.float32) * np.float32(factor)).reshape(-1)
    pairs, other = codes.pairs(scores.astype(np.float64), float(np.float32(factor)))
    assert np.array_equal(pairs, np.arange(scores.size))
    assert not other.any()


def test_partial_sums_are_no_pairs() -> None:
    codes = Codes(SIZES)
    q, k = codes.inputs()
    part = np.einsum("bhid,bgjd->bhij", q[..., :-1], k[..., :-1])
    pairs, other = codes.pairs(part.reshape(-1), 1.0)
    assert (pairs == -1).all()
    assert other[part.reshape(-1) > 0].all()


def test_what_masks_is_neither() -> None:
    values = np.array([-np.inf, -1e30, 0.0, np.nan])
    pairs, other = Codes(SIZES).pairs(values, 1.0)
    assert (pairs == -1).all()
    assert not other.any()


def test_too_many_pairs() -> None:
    with pytest.raises(InputError, match="too many pairs"):
        Codes(SIZES | {"Nq": 4096, "Nk": 4096}).inputs()
