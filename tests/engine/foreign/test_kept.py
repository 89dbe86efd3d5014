"""Which keys each row looks at, read off sums of powers of two."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.foreign.probe.run import decoded, explains
from engine.ptx.floats import from_half, to_half


@given(st.integers(1, 300), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_sums_in_bf16_say_which_keys_are_kept(keys: int, rows: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    keep = draw.random((rows, keys)) < draw.random((rows, 1))
    channels = -(-keys // 3)
    v = np.zeros((keys, channels))
    v[np.arange(keys), np.arange(keys) // 3] = 2.0 ** (np.arange(keys) % 3)
    count = np.maximum(keep.sum(-1, keepdims=True), 1)
    output = from_half(to_half((keep @ v / count).astype(np.float32), "bf16"), "bf16")
    found = decoded(output.astype(np.float64), 3, keys, 0.03)
    assert found is not None and np.array_equal(found, keep)


def test_unequal_weights_are_told() -> None:
    sums = np.array([[0.3, 0.45]])  # of 4 and 1, weighed 0.075 and 0.45, and a third one elsewhere
    assert decoded(sums, 3, 6, 0.03) is None
    assert not decoded(np.array([[np.nan, 0.0]]), 3, 6, 0.03).any()  # type: ignore[union-attr]


@given(st.integers(1, 600), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_a_mean_of_signs_says_whether_just_these_keys_are_kept(
    keys: int, rows: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    keep = draw.random((1, 2, rows, keys)) < draw.random((1, 2, rows, 1))
    v = draw.choice((-1.0, 1.0), (1, 1, keys, 64))
    count = keep.sum(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        mean = (keep @ v / count).astype(np.float32)  # no number in rows without a key
    output = from_half(to_half(mean, "bf16"), "bf16").astype(np.float64)
    assert explains(output, keep, v)
    other = keep.copy()
    where = tuple(draw.integers(n) for n in keep.shape)
    other[where] ^= True
    assert not explains(output, other, v)
