"""Floating-point formats and roundings that numpy has no operation for."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_SMALLEST = {np.dtype(np.float32): np.float32(2.0**-126), np.dtype(np.float64): 2.0**-1022}


def flush(x: Array) -> Array:
    """Subnormals become zeros of their sign (.ftz; PTX ISA, "Subnormal Numbers")."""
    tiny = np.abs(x) < _SMALLEST[x.dtype]
    if not np.count_nonzero(tiny):
        return x
    return np.where(tiny, np.copysign(x.dtype.type(0), x), x)


def saturate(x: Array) -> Array:
    """Into [0, 1]; NaN becomes 0 (.sat)."""
    return np.where(np.isnan(x), x.dtype.type(0), np.clip(x, 0, 1)).astype(x.dtype)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in f32, rounded once to nearest even.

    The product is exact in float64. Adding c there may round, and rounding the sum again to f32 is
    wrong only where the float64 sum lies exactly halfway between two f32: there the error of the
    first rounding decides.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    out = total.astype(np.float32)
    bits = total.view(np.uint64)
    halfway = (bits & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
    small = np.abs(total) < 2.0**-120
    if not (np.count_nonzero(halfway) or np.count_nonzero(small & (total != 0))):
        return out
    back = total - product
    error = (product - (total - back)) + (addend - back)
    away = np.where(error == 0, total, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)))
    return np.where((halfway | small) & np.isfinite(total), away.astype(np.float32), out)


def halves(x: Array) -> Array:
    """A 32-bit word as its two 16-bit halves, the lower one first: [..., 2]."""
    return np.ascontiguousarray(x).view(np.uint16).reshape(*x.shape, 2)


def from_half(bits: Array, kind: str) -> Array:
    """f16 or bf16 bits to float32."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.ascontiguousarray(bits).view(np.float16).astype(np.float32)


def to_half(x: Array, kind: str, ftz: bool = False) -> Array:
    """Rounds float32 or float64 to f16 or bf16, to nearest even; the bits."""
    if kind == "f16":
        out = x.astype(np.float16).view(np.uint16)
        return np.where(np.isnan(x), np.uint16(0x7FFF), out)
    if x.dtype == np.float64:
        # Rounding to odd first makes the second rounding right (Boldo and Melquiond 2008).
        single = x.astype(np.float32)
        exact = single.astype(np.float64)
        bits = single.view(np.uint32).copy()
        inexact = (exact != x) & np.isfinite(x) & np.isfinite(single)
        over = np.abs(exact) > np.abs(x)
        bits = np.where(inexact & over, bits - np.uint32(1), bits)
        bits = np.where(inexact, bits | np.uint32(1), bits)
        x = bits.view(np.float32)
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = ((u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded.astype(np.uint16))
