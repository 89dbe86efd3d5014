"""Integer and floating-point arithmetic (PTX ISA, "Integer Arithmetic" to "Half Precision")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.floats import (
    directed,
    directed_fma32,
    exact_fma,
    flush,
    fma32,
    fma64,
    from_half,
    halves,
    larger,
    nan_or,
    saturate,
    smaller,
    to_half,
)
from engine.ptx.lanes import Lanes
from engine.ptx.machine import Run
from engine.ptx.registers import Values, dtype
from engine.ptx.syntax import width

Array = np.ndarray[Any, Any]
Function = Callable[..., Values]

HALVES = ("f16", "bf16", "f16x2", "bf16x2")
ROUNDINGS = ("rn", "rz", "rm", "rp")


def apply(site: Site, function: Function, first: int, count: int, type: str, result: str) -> Run:
    fetches = [site.fetch(k, type) for k in range(first, first + count)]
    put = site.store(0, result)
    if count == 1:
        (a,) = fetches
        return lambda lanes: put(lanes, function(a(lanes)))
    if count == 2:
        a, b = fetches
        return lambda lanes: put(lanes, function(a(lanes), b(lanes)))
    a, b, c = fetches
    return lambda lanes: put(lanes, function(a(lanes), b(lanes), c(lanes)))


def _float(site: Site, function: Function, count: int, exact: Function | None = None) -> Run:
    """A function of f32 or f64, with .ftz and .sat where they stand.

    `exact` gives the unrounded result, where rounding can bring a subnormal up to a normal number.
    """
    if site.at.has("ftz"):
        plain = function
        before = exact  # of rounding

        def function(*xs: Array) -> Array:
            operands = [flush(x) for x in xs]
            return flush(plain(*operands), None if before is None else before(*operands))

    if site.at.has("sat"):
        return apply(site, lambda *xs: saturate(function(*xs)), 1, count, site.type, site.type)
    return apply(site, function, 1, count, site.type, site.type)


def _half(site: Site, function: Function, count: int) -> Run:
    """A function of f16 or bf16, alone or packed in pairs: computed exactly, rounded once."""
    kind = site.type.removesuffix("x2")
    packed = site.type.endswith("x2")
    relu, ftz = site.at.has("relu"), site.at.has("ftz")

    def of(*values: Values) -> Values:
        parts = [halves(v) if packed else v for v in values]
        wide = [from_half(p, kind).astype(np.float64) for p in parts]
        out = function(*wide)
        if relu:
            out = np.where(np.isnan(out), out, np.maximum(out, 0.0))
        bits = to_half(out, kind, ftz)
        return bits.reshape(*values[0].shape, 2).view(np.uint32)[..., 0] if packed else bits

    return apply(site, of, 1, count, site.type, site.type)


def _way(site: Site) -> str:
    """How an instruction of f32 rounds, where not to nearest even; "" of one that does."""
    way = next((way for way in ("rz", "rm", "rp") if site.at.has(way)), "")
    if way and site.type == "f64":
        raise site.refuse("f64 is executed with rounding to nearest even alone")
    return way


def _add_sub(function: Function) -> Decoder:
    def decoder(site: Site) -> Run:
        site.count(3)
        if site.type in HALVES:
            site.takes("rn", "ftz")
            return _half(site, function, 2)
        if site.type[0] == "f":
            site.takes(ROUNDINGS, "ftz", "sat")
            if way := _way(site):
                one, sign = np.ones(1, np.float32), function(np.float32(0), np.float32(1))
                return _float(site, lambda a, b: directed_fma32(a, one, sign * b, way), 2)
            return _float(site, function, 2)
        site.takes()
        return apply(site, function, 1, 2, site.type, site.type)

    return decoder


def _product(a: Array, b: Array) -> Array:
    return a.astype(np.float64) * b.astype(np.float64)


def _wide(type: str) -> str:
    return f"{type[0]}{16 * width(type)}"


def high_product(a: Array, b: Array) -> Array:
    """The upper half of a product of two integers of one type."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        wide = np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}")
        upper: Array = ((a.astype(wide) * b.astype(wide)) >> wide.type(bits)).astype(a.dtype)
        return upper
    exact = (a.astype(object) * b.astype(object)) >> 64
    words: Array = (exact & ((1 << 64) - 1)).astype(np.uint64).view(a.dtype)
    return words


def _mul(site: Site) -> Run:
    site.count(3)
    type = site.type
    if type in HALVES:
        site.takes("rn", "ftz")
        return _half(site, np.multiply, 2)
    if type[0] == "f":
        site.takes(ROUNDINGS, "ftz", "sat")
        if way := _way(site):
            return _float(site, lambda a, b: directed(_product(a, b), way), 2, _product)
        return _float(site, np.multiply, 2, _product if type == "f32" else None)
    site.takes("lo", "hi", "wide")
    part = site.one("lo", "hi", "wide")
    if part == "lo":
        return apply(site, np.multiply, 1, 2, type, type)
    if part == "hi":
        return apply(site, high_product, 1, 2, type, type)
    held = dtype(_wide(type))
    return apply(site, lambda a, b: a.astype(held) * b.astype(held), 1, 2, type, _wide(type))


def _mad(site: Site) -> Run:
    site.count(4)
    type = site.type
    site.takes("lo", "hi", "wide")
    part = site.one("lo", "hi", "wide")
    result = _wide(type) if part == "wide" else type
    a, b, c = site.fetch(1, type), site.fetch(2, type), site.fetch(3, result)
    put = site.store(0, result)
    held = dtype(result)
    if part == "hi":
        return lambda lanes: put(lanes, high_product(a(lanes), b(lanes)) + c(lanes))
    return lambda lanes: put(lanes, a(lanes).astype(held) * b(lanes).astype(held) + c(lanes))


def _fma(site: Site) -> Run:
    site.count(4)
    if site.type in HALVES:
        site.takes("rn", "ftz", "relu")
        return _half(site, exact_fma, 3)
    site.takes(ROUNDINGS, "ftz", "sat")
    if way := _way(site):
        return _float(site, lambda a, b, c: directed_fma32(a, b, c, way), 3, exact_fma)
    if site.type == "f64":
        return _float(site, fma64, 3)
    return _float(site, fma32, 3, exact_fma)


def _divide(a: Array, b: Array) -> Array:
    """Truncating division; by zero all bits are set, as NVIDIA's GPUs give."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = np.abs(a.astype(object)) // np.abs(safe.astype(object)) if a.dtype.itemsize == 8 \
        and a.dtype.kind == "i" else None  # fmt: skip
    if quotient is not None:
        out = np.where((a < 0) != (b < 0), -quotient, quotient).astype(a.dtype)
    elif a.dtype.kind == "i":
        wide_a, wide_b = a.astype(np.int64), safe.astype(np.int64)
        size = np.abs(wide_a) // np.abs(wide_b)
        out = np.where((wide_a < 0) != (wide_b < 0), -size, size).astype(a.dtype)
    else:
        out = a // safe
    everything = np.array(-1).astype(a.dtype)
    return np.where(b == 0, everything, out)


def _approximate_quotient(a: Array, b: Array) -> Array:
    """a * (1 / b), where 1 / b is 0 for b beyond 2^126 (PTX ISA, "div.approx.f32")."""
    size = np.abs(b)
    beyond = (size > 2.0**126) & (size < np.inf)
    return np.where(beyond, a * np.copysign(b.dtype.type(0), b), a / b)


def _div(site: Site) -> Run:
    site.count(3)
    if site.type[0] == "f":
        site.takes("rn", "approx", "full", "ftz")
        return _float(site, _approximate_quotient if site.at.has("approx") else np.divide, 2)
    site.takes()
    return apply(site, _divide, 1, 2, site.type, site.type)


def _remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, np.array(-1).astype(a.dtype), a - _divide(a, b) * b)


def _rem(site: Site) -> Run:
    site.count(3)
    site.takes()
    return apply(site, _remainder, 1, 2, site.type, site.type)


def _extreme(number: Function, whole: Function) -> Decoder:
    def decoder(site: Site) -> Run:
        count = site.count(3, 4) - 1
        if site.type in HALVES:
            site.takes("NaN", "ftz")
            return _half(site, nan_or(number) if site.at.has("NaN") else number, 2)
        if site.type[0] == "f":
            site.takes("NaN", "ftz")
            pair = nan_or(number) if site.at.has("NaN") else number
            return _float(site, pair if count == 2 else lambda a, b, c: pair(pair(a, b), c), count)
        site.takes("relu")
        if site.at.has("relu"):
            return apply(site, lambda a, b: np.maximum(whole(a, b), 0), 1, 2, site.type, site.type)
        return apply(site, whole, 1, 2, site.type, site.type)

    return decoder


def _unary(function: Function) -> Decoder:
    def decoder(site: Site) -> Run:
        site.count(2)
        if site.type in HALVES:
            site.takes("ftz")
            return _half(site, function, 1)
        site.takes("ftz")
        if site.type[0] == "f":
            return _float(site, function, 1)
        return apply(site, function, 1, 1, site.type, site.type)

    return decoder


def _copysign(site: Site) -> Run:
    site.takes()
    site.count(3)
    return apply(site, lambda sign, size: np.copysign(size, sign), 1, 2, site.type, site.type)


def _dot(items: int) -> Decoder:
    """dp4a, dp2a: a sum of products of a's items and b's bytes, and c; each by its own sign."""

    def decoder(site: Site) -> Run:
        site.count(4)
        halves = ("lo", "hi") if items == 2 else ()
        site.takes(halves)
        kinds = [m for m in site.at.modifiers if m in ("u32", "s32")]
        if len(kinds) != 2:
            raise site.refuse("two types are needed")
        left, right = (np.dtype(f"{_KINDS[kind]}{4 // items if k == 0 else 1}")
                       for k, kind in enumerate(kinds))  # fmt: skip
        first = 2 if items == 2 and site.one(*halves) == "hi" else 0
        a, b, c = (site.fetch(k, "b32") for k in (1, 2, 3))
        put = site.store(0, "b32")

        def run(lanes: Lanes) -> None:
            x, y = (np.ascontiguousarray(f(lanes)).view(held).reshape(2, len(lanes), -1)
                    for f, held in ((a, left), (b, right)))  # fmt: skip
            y = y[..., first : first + items]
            total = (x.astype(np.int64) * y).sum(-1) + c(lanes)
            put(lanes, total.astype(np.uint32))

        return run

    return decoder


_KINDS = {"u32": "u", "s32": "i"}


def _carry(site: Site) -> Run:
    raise site.refuse("arithmetic with a carry is not executed yet")


OPS: dict[str, Decoder] = {
    "add": _add_sub(np.add),
    "sub": _add_sub(np.subtract),
    "mul": _mul,
    "mad": _mad,
    "fma": _fma,
    "div": _div,
    "rem": _rem,
    "min": _extreme(smaller, np.minimum),
    "max": _extreme(larger, np.maximum),
    "neg": _unary(np.negative),
    "abs": _unary(np.abs),
    "copysign": _copysign,
    "dp4a": _dot(4),
    "dp2a": _dot(2),
    "addc": _carry,
    "subc": _carry,
}
