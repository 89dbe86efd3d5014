"""Floating-point formats and roundings that numpy has no operation for."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
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


def directed(exact: Array, way: str) -> Array:
    """A float64, exact or rounded to odd, in f32: towards zero (rz), -inf (rm) or +inf (rp)."""
    near = exact.astype(np.float32)
    to = np.float32({"rz": 0.0, "rm": -np.inf, "rp": np.inf}[way])
    beyond = {"rz": np.abs(near) > np.abs(exact), "rm": near > exact, "rp": near < exact}[way]
    out: Array = np.where(beyond, np.nextafter(near, to), near)
    return out


def directed_half(exact: Array, kind: str, way: str) -> Array:
    """A float64 in f16 or bf16, as `directed` rounds; the bits."""
    bits = to_half(exact, kind)
    near = from_half(bits, kind).astype(np.float64)
    beyond = {"rz": np.abs(near) > np.abs(exact), "rm": near > exact, "rp": near < exact}[way]
    outward = np.where(np.abs(exact) > np.abs(near), bits + np.uint16(1), bits - np.uint16(1))
    out: Array = np.where(beyond, outward, bits)
    return out


def directed_fma32(a: Array, b: Array, c: Array, way: str) -> Array:
    """a * b + c in f32, rounded once, as `directed` does; what cancels is -0 where that is down."""
    product = a.astype(np.float64) * b.astype(np.float64)
    total = sum_to_odd(product, c.astype(np.float64))
    if way == "rm":
        total = np.where((total == 0) & (np.signbit(product) != np.signbit(c)), -0.0, total)
    return directed(total, way)


_SPLIT = 2.0**27 + 1


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in f64, rounded once to nearest even: the product and its error, two exact sums,
    and the sum of their errors rounded to odd (Boldo and Melquiond 2008, "Fma").

    Near the ends of the range, where the errors are no f64 themselves, each is a fraction.
    """
    high = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    low = ((ah * bh - high) + ah * bl + al * bh) + al * bl
    t, t_low = _two_sum(c, low)
    v, v_low = _two_sum(high, t)
    out: Array = v + sum_to_odd(t_low, v_low)
    parts = [np.broadcast_to(x, out.shape) for x in (a, b, c)]
    once = (high == 0) | (c == 0) | ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(c)
    out = np.where(once, high + c, out)
    far = np.zeros(out.shape, np.bool_)
    for x in (*parts, high):
        far |= (np.abs(x) < 2.0**-450) | (np.abs(x) > 2.0**450)
    far &= np.isfinite(parts[0]) & np.isfinite(parts[1]) & np.isfinite(parts[2])
    for at in zip(*np.nonzero(far), strict=True):
        one, two, three = (float(p[at]) for p in parts)
        exact = Fraction(one) * Fraction(two) + Fraction(three)
        if exact:
            try:
                out[at] = exact.numerator / exact.denominator
            except OverflowError:
                out[at] = np.inf if exact > 0 else -np.inf
        else:
            out[at] = one * two + three
    return out


def _split(x: Array) -> tuple[Array, Array]:
    """x as two numbers of half its bits (Dekker 1971)."""
    big = _SPLIT * x
    high = big - (big - x)
    return high, x - high


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b, and its error."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


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


def _eight_bits(exponent: int, fraction: int, bias: int, finite: int) -> Array:
    """The numbers of all bytes of an 8-bit float; above the byte `finite` of either sign are NaN,
    and infinity before them where fractions of the last exponent are left for it."""
    byte = np.arange(128)
    e, f = byte >> fraction, (byte & (1 << fraction) - 1) / 2.0**fraction
    value = np.where(e == 0, f * 2.0 ** (1 - bias), (1 + f) * np.exp2(e - bias))
    value[finite + 1 :] = np.nan
    if finite + 1 == (1 << exponent) - 1 << fraction:
        value[finite + 1] = np.inf
    return np.concatenate([value, -value]).astype(np.float32)


# The largest finite byte, and what each byte is (OCP 8-bit Floating Point Specification, 1.0).
_FINITE = {"e4m3": 0x7E, "e5m2": 0x7B}
EIGHT_BITS = {"e4m3": _eight_bits(4, 3, 7, _FINITE["e4m3"]),
              "e5m2": _eight_bits(5, 2, 15, _FINITE["e5m2"])}  # fmt: skip


def from_eight(bytes_: Array, kind: str) -> Array:
    """Bytes of e4m3 or e5m2 to float32."""
    out: Array = EIGHT_BITS[kind][bytes_]
    return out


def to_eight(x: Array, kind: str) -> Array:
    """Rounds to e4m3 or e5m2, to nearest even, what is beyond to the largest (.satfinite); the
    bytes. NaN is 0x7F."""
    steps = EIGHT_BITS[kind][: _FINITE[kind] + 1].astype(np.float64)
    size = np.minimum(np.abs(np.where(np.isnan(x), 0.0, x)).astype(np.float64), steps[-1])
    above = np.searchsorted(steps, size)
    below = np.maximum(above - 1, 0)
    up, down = steps[above] - size, size - steps[below]
    near = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    byte = near | np.where(np.signbit(x), 0x80, 0)
    return np.where(np.isnan(x), 0x7F, byte).astype(np.uint8)


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
