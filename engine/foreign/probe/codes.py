"""Inputs whose scores say which query, head and key each is of.

q . k of query i of head h in batch b and key j is a whole number, `Codes.first` more than the
pair's number ((b Hq + h) Nq + i) 2^n + j. It is summed of digits that fp16 and bf16 hold exactly,
each in a channel of its own; what starts the count lies in the last channel, so that no partial sum
is the code of a pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import InputError

Array = np.ndarray[Any, Any]
_DIGIT = 7  # bits


@dataclass(frozen=True, slots=True)
class Codes:
    """The pairs of one case.

    Args:
        sizes: of B, Hq, Hkv, Nq, Nk, D.
    """

    sizes: Mapping[str, int]

    @property
    def key_bits(self) -> int:
        return max(self.sizes["Nk"] - 1, 1).bit_length()

    @property
    def rows(self) -> int:
        return self.sizes["B"] * self.sizes["Hq"] * self.sizes["Nq"]

    @property
    def first(self) -> int:
        return 1 << max((self.rows << self.key_bits) - 1, 1).bit_length()

    @property
    def countable(self) -> bool:
        """Whether an f32 tells the pairs apart."""
        return self.first.bit_length() - 1 <= 23

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return tuple(self.sizes[n] for n in ("B", "Hq", "Nq", "Nk"))  # type: ignore[return-value]

    def inputs(self) -> tuple[Array, Array]:
        """q [B, Hq, Nq, D] and k [B, Hkv, Nk, D] in float64.

        Raises:
            InputError: the sizes have more pairs than an f32 counts, or D has too few channels.
        """
        s = self.sizes
        q = np.zeros((s["B"], s["Hq"], s["Nq"], s["D"]))
        k = np.zeros((s["B"], s["Hkv"], s["Nk"], s["D"]))
        total = self.first.bit_length() - 1
        row = np.arange(self.rows).reshape(q.shape[:3])
        key = np.arange(s["Nk"])
        channel = 0
        row_bits = (self.rows - 1).bit_length()
        if not self.countable or -(-row_bits // _DIGIT) + -(-self.key_bits // _DIGIT) + 1 > s["D"]:
            raise InputError(
                "the sizes have too many pairs to be told apart",
                fix="name smaller ones with --sizes",
            )
        for low in range(0, row_bits, _DIGIT):
            weight = low + self.key_bits
            q[..., channel] = np.ldexp(row >> low & (1 << _DIGIT) - 1, weight // 2)
            k[..., channel] = np.ldexp(1.0, weight - weight // 2)
            channel += 1
        for low in range(0, self.key_bits, _DIGIT):
            q[..., channel] = np.ldexp(1.0, low)
            k[..., channel] = key >> low & (1 << _DIGIT) - 1
            channel += 1
        q[..., -1] = np.ldexp(1.0, total // 2)
        k[..., -1] = np.ldexp(1.0, total - total // 2)
        return q, k

    def pairs(self, values: Array, factor: float) -> tuple[Array, Array]:
        """The number of the pair ((b Hq + h) Nq + i) Nk + j that each value is the score of, times
        `factor`; -1 for none. And which values are neither a score nor what masks or fills."""
        with np.errstate(all="ignore"):
            code = values / factor
            near = np.rint(code)
            whole = np.abs(code - near) < 0.3
            number = np.where(whole & np.isfinite(near), near, 0).astype(np.int64) - self.first
            key = number & (1 << self.key_bits) - 1
            row = number >> self.key_bits
            is_pair = whole & (number >= 0) & (row < self.rows) & (key < self.sizes["Nk"])
            other = np.isfinite(values) & (values > 0) & ~is_pair
        return np.where(is_pair, row * self.sizes["Nk"] + key, -1), other
