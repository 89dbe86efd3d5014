"""Comparisons and selections (PTX ISA, "Comparison and Selection Instructions")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.floats import flush, from_half, halves
from engine.ptx.isa.arithmetic import HALVES
from engine.ptx.lanes import Lanes
from engine.ptx.machine import Run
from engine.ptx.registers import dtype
from engine.ptx.syntax import WIDTHS, Pair, width

Array = np.ndarray[Any, Any]

_ORDERED = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater,
    "hs": np.greater_equal,
}  # fmt: skip
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
COMPARISONS = (*_ORDERED, *_UNORDERED, "num", "nan")
_LOGIC = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def compare(name: str, a: Array, b: Array) -> Array:
    """A comparison by its PTX name. Of floats, the plain ones are false where one is NaN."""
    if name in ("num", "nan"):
        nan = np.isnan(a) | np.isnan(b)
        return nan if name == "nan" else ~nan
    if name in _UNORDERED:
        return _ORDERED[_UNORDERED[name]](a, b) | np.isnan(a) | np.isnan(b)
    out: Array = _ORDERED[name](a, b)
    if name == "ne" and a.dtype.kind == "f":
        out = out & ~(np.isnan(a) | np.isnan(b))
    return out


def _compared(site: Site) -> Callable[[Lanes], Array]:
    """The comparison of operands 1 and 2: [2, lanes], of a pair of halves [2, lanes, 2]."""
    name, type, ftz = site.one(*COMPARISONS), site.type, site.at.has("ftz")
    a, b = site.fetch(1), site.fetch(2)
    packed, half = type.endswith("x2"), type.removesuffix("x2") if type in HALVES else ""

    def run(lanes: Lanes) -> Array:
        x, y = a(lanes), b(lanes)
        if packed:
            x, y = halves(x), halves(y)
        if half:
            x, y = from_half(x, half), from_half(y, half)
        if ftz:
            x, y = flush(x), flush(y)
        return compare(name, x, y)

    return run


def _logical(site: Site, place: int) -> Callable[[Lanes, Array], Array]:
    """What a comparison is combined with: the predicate at a place, where .and, .or or .xor is."""
    logic = next((f for m, f in _LOGIC.items() if site.at.has(m)), None)
    if logic is None:
        return lambda lanes, out: out
    other = site.fetch(place, "pred")

    def combined(lanes: Lanes, out: Array) -> Array:
        also = other(lanes)
        return logic(out, also[..., None] if out.ndim > also.ndim else also)

    return combined


def _setp(site: Site) -> Run:
    """Of a pair of halves the two results are those of its halves, else the second is the
    negated comparison."""
    site.takes(COMPARISONS, _LOGIC, "ftz")
    compared, combined = _compared(site), _logical(site, 3)
    packed = site.type.endswith("x2")
    result = site.operand(0)
    names = (result.first, result.second) if isinstance(result, Pair) else (result,)
    puts = [site.registers.store(name, "pred", site.at) for name in names]
    if packed and len(puts) != 2:
        raise site.refuse("two results are needed")

    def run(lanes: Lanes) -> None:
        out = compared(lanes)
        if packed:
            parts = combined(lanes, out)
            results = [parts[..., 0], parts[..., 1]]
        else:
            results = [combined(lanes, out), combined(lanes, ~out)] if puts[1:] else [
                combined(lanes, out)]  # fmt: skip
        for put, values in zip(puts, results, strict=True):
            put(lanes, values)

    return run


def _set(site: Site) -> Run:
    """A comparison as a number: 1.0 of a float's type, all bits of an integer's, else 0."""
    site.takes(COMPARISONS, _LOGIC, "ftz")
    to, source = [m for m in site.at.modifiers if m in WIDTHS][:2]
    compared, combined = _compared(site), _logical(site, 3)
    put, packed = site.store(0, to), source.endswith("x2")
    half = width(to) // 2 if packed else width(to)
    true = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}.get(to.removesuffix("x2"),
                                                               (1 << 8 * half) - 1)  # fmt: skip
    one = np.dtype(f"u{half}").type(true)
    if to[0] in "us" and packed and width(to) != 4:
        raise site.refuse("these types are not executed yet")

    def run(lanes: Lanes) -> None:
        words = np.where(combined(lanes, compared(lanes)), one, one.dtype.type(0))
        if packed:
            words = np.ascontiguousarray(words).view(np.uint32)[..., 0]
        put(lanes, words.view(dtype(to)))

    return run


def _selp(site: Site) -> Run:
    site.takes()
    site.count(4)
    a, b, chosen, put = site.fetch(1), site.fetch(2), site.fetch(3, "pred"), site.store()
    return lambda lanes: put(lanes, np.where(chosen(lanes), a(lanes), b(lanes)))


OPS: dict[str, Decoder] = {"setp": _setp, "selp": _selp, "set": _set}
