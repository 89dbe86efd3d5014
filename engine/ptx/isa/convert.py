"""Conversions between types (PTX ISA, "cvt")."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.floats import (
    directed,
    directed_half,
    flush,
    from_eight,
    from_half,
    halves,
    saturate,
    to_eight,
    to_half,
)
from engine.ptx.lanes import Lanes
from engine.ptx.machine import Run
from engine.ptx.registers import dtype
from engine.ptx.syntax import WIDTHS

Array = np.ndarray[Any, Any]

_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}

# What a NaN becomes where .ftz widens it: f32's canonical NaN, its payload gone (seen on a GPU; the
# ISA fixes no payload).
_CANONICAL = np.array(0x7FFFFFFF, np.uint32).view(np.float32)


def _types(site: Site) -> tuple[str, str]:
    found = [m for m in site.at.modifiers if m in WIDTHS]
    if len(found) != 2:
        raise site.refuse("these types are not executed yet")
    return found[0], found[1]


def to_integer(x: Array, type: str) -> Array:
    """A whole float to an integer: clamped to the type's range (PTX ISA, "cvt").

    NaN becomes 0; the highest bit alone, where either type has 64 bits.
    """
    held = dtype(type)
    bounds = np.iinfo(held)
    wide = np.where(np.isnan(x), 0.0, x).astype(np.float64)
    # 2**63 and 2**64 are floats, the largest integers below them are not.
    over, under = wide >= float(bounds.max) + 1.0, wide < float(bounds.min)
    inside = np.where(over | under, 0.0, wide).astype(held)
    out = np.where(over, bounds.max, np.where(under, bounds.min, inside)).astype(held)
    if held.itemsize < 8 and x.dtype.itemsize < 8:
        return out
    highest = np.array(1 << 8 * held.itemsize - 1, f"u{held.itemsize}").view(held)
    return np.where(np.isnan(x), highest, out)


def _integers(site: Site, to: str, source: str) -> Run:
    fetch, put = site.fetch(1, source), site.store(0, to)
    held = dtype(to)
    if not site.at.has("sat"):
        return lambda lanes: put(lanes, fetch(lanes).astype(held))
    low, high = np.iinfo(held).min, np.iinfo(held).max
    have = np.iinfo(dtype(source))
    low, high = max(low, have.min), min(high, have.max)
    return lambda lanes: put(lanes, np.clip(fetch(lanes), low, high).astype(held))


def _packed(site: Site) -> Run:
    """Two f32 to a pair of f16 or bf16: the first operand becomes the upper half."""
    kind = _types(site)[0].removesuffix("x2")
    relu = site.at.has("relu")
    high, low, put = site.fetch(1, "f32"), site.fetch(2, "f32"), site.store(0, "b32")

    def run(lanes: Lanes) -> None:
        parts = []
        for fetch in (low, high):
            x = fetch(lanes)
            x = np.where(np.isnan(x), x, np.maximum(x, 0)) if relu else x
            parts.append(to_half(x, kind).astype(np.uint32))
        put(lanes, parts[0] | (parts[1] << np.uint32(16)))

    return run


def _eight(site: Site) -> Run:
    """Between pairs of 8-bit floats and pairs of f32 or f16; the upper one first."""
    to, source = _types(site)
    relu = site.at.has("relu")
    site.takes("rn", "satfinite", "relu")
    put = site.store(0, to)
    if source in EIGHT:
        site.count(2)
        fetch, kind = site.fetch(1, source), source.removesuffix("x2")
        if to != "f16x2":
            raise site.refuse("these types are not executed yet")

        def widen(lanes: Lanes) -> None:
            pair = fetch(lanes)
            x = from_eight(np.stack([pair & 0xFF, pair >> 8], -1).astype(np.uint8), kind)
            x = np.where(np.isnan(x), x, np.maximum(x, 0)) if relu else x
            put(lanes, np.ascontiguousarray(to_half(x, "f16")).view(np.uint32)[..., 0])

        return widen
    if not site.at.has("satfinite") or source not in ("f32", "f16x2"):
        raise site.refuse("these types are not executed yet")
    site.count(3 if source == "f32" else 2)
    kind = to.removesuffix("x2")
    fetches = [site.fetch(k, source) for k in ((2, 1) if source == "f32" else (1,))]

    def narrow(lanes: Lanes) -> None:
        if source == "f32":
            x = np.stack([f(lanes) for f in fetches], -1)
        else:
            x = from_half(halves(fetches[0](lanes)), "f16")
        x = np.where(np.isnan(x), x, np.maximum(x, 0)) if relu else x
        put(lanes, np.ascontiguousarray(to_eight(x, kind)).view(np.uint16)[..., 0])

    return narrow


EIGHT = ("e4m3x2", "e5m2x2")


def _cvt(site: Site) -> Run:
    if any(m in EIGHT for m in site.at.modifiers):
        return _eight(site)
    site.takes("rn", _TO_INTEGER, "ftz", "sat", "relu", "rz", "rm", "rp")
    to, source = _types(site)
    if to.endswith("x2"):
        site.count(3)
        return _packed(site)
    site.count(2)
    whole, real = {"u", "s", "b"}, {"f"}
    if to[0] in whole and source[0] in whole and "bf16" not in (to, source):
        return _integers(site, to, source)
    way = next((m for m in ("rz", "rm", "rp") if site.at.has(m)), "")
    if way and (to == "f64" or source in ("s64", "u64")):
        raise site.refuse("64 bits are executed with rounding to nearest even alone")
    rounding = next((f for m, f in _TO_INTEGER.items() if site.at.has(m)), None)
    half_in, half_out = source in ("f16", "bf16"), to in ("f16", "bf16")
    ftz, sat, relu = (site.at.has(m) for m in ("ftz", "sat", "relu"))
    fetch, put = site.fetch(1, source), site.store(0, to)
    to_whole = to[0] in whole and to != "bf16"
    from_float = source[0] in real or half_in

    def run(lanes: Lanes) -> None:
        x = fetch(lanes)
        if half_in:
            x = from_half(x, source)
        if ftz and from_float:
            x = flush(x)
            if to == "f64":
                x = np.where(np.isnan(x), _CANONICAL, x)
        if rounding is not None and from_float:
            x = rounding(x)
        if to_whole:
            put(lanes, to_integer(x, to))
            return
        if relu:
            x = np.where(np.isnan(x), x, np.maximum(x, 0))
        if half_out:
            x = saturate(x) if sat else x.astype(np.float64)
            put(lanes, directed_half(x, to, way) if way else to_half(x, to))
            return
        out = directed(x.astype(np.float64), way) if way else x.astype(dtype(to))
        if ftz:
            out = flush(out)
        put(lanes, saturate(out) if sat else out)

    return run


OPS: dict[str, Decoder] = {"cvt": _cvt}
