"""Floating-point formats and roundings that numpy has no operation for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_SMALLEST = {np.dtype(np.float32): np.float32(2.0**-126), np.dtype(np.float64): 2.0**-1022}


# Of the bits of a float64, those that f32 has not, and what they are in the middle of two f32.
_BELOW, _MIDDLE, _NORMAL = np.array(0x1FFFFFFF), np.array(0x10000000), np.array(2.0**-126)


def flush(x: Array, exact: Array | None = None) -> Array:
    """Subnormals become zeros of their sign (.ftz; PTX ISA, "Subnormal Numbers").

    `exact`: the value before rounding, where it is known: one below the smallest normal number is
    flushed also if it would round up to it.
    """
    size = np.abs(x if exact is None else exact)
    tiny = size < _SMALLEST[x.dtype]
    if not np.count_nonzero(tiny):
        return x
    flushed: Array = np.where(tiny, np.copysign(x.dtype.type(0), x), x)
    return flushed


def saturate(x: Array) -> Array:
    """Into [0, 1]; NaN and -0 become 0 (.sat)."""
    inside = np.where(np.isnan(x) | (x <= 0), x.dtype.type(0), np.minimum(x, x.dtype.type(1)))
    out: Array = inside.astype(x.dtype)
    return out


def sum_to_odd(a: Array, b: Array) -> Array:
    """a + b in float64, where an inexact sum gets an odd last bit.

    Rounding such a sum once more, to a type with at least two bits less, gives what rounding the
    exact sum gives (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums").
    """
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    inexact = (error != 0) & np.isfinite(total) & np.isfinite(error)
    if not np.count_nonzero(inexact):
        return total
    bits = total.view(np.int64)
    toward_zero = (error > 0) != (total > 0)
    down = np.where(inexact & toward_zero, bits - 1, bits)
    odd = np.where(inexact, down | 1, bits)
    return odd.view(np.float64)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in f32, rounded once to nearest even: the product is exact in float64.

    A float64 sum rounds to what the exact one does but where it lies between two f32 itself.
    """
    total = np.multiply(a, b, dtype=np.float64)
    total += c
    between = (total.view(np.int64) & _BELOW) == _MIDDLE
    between |= np.abs(total) < _NORMAL
    if np.count_nonzero(between):
        return exact_fma(a, b, c).astype(np.float32)
    out: Array = total.astype(np.float32)
    return out


def exact_fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of three f32, f16 or bf16, in float64, rounded to odd."""
    product = a.astype(np.float64) * b.astype(np.float64)
    return sum_to_odd(product, c.astype(np.float64))


def smaller(a: Array, b: Array) -> Array:
    """The minimum, where NaN counts only if both are, and -0 is below 0."""
    out = np.fmin(a, b)
    return np.where((out == 0) & (np.signbit(a) | np.signbit(b)) & (a == b), -np.abs(out), out)


def larger(a: Array, b: Array) -> Array:
    """The maximum, where NaN counts only if both are, and -0 is below 0."""
    out = np.fmax(a, b)
    return np.where((out == 0) & ~(np.signbit(a) & np.signbit(b)) & (a == b), np.abs(out), out)


def nan_or(pick: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """The same, but NaN where one operand is (.NaN)."""

    def function(a: Array, b: Array) -> Array:
        return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), pick(a, b))

    return function


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
    rounded = (u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded.astype(np.uint16))
