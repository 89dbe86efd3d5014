"""Comparisons and selections (PTX ISA, "Comparison and Selection Instructions")."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.floats import flush, from_half
from engine.ptx.lanes import Lanes
from engine.ptx.machine import Run
from engine.ptx.syntax import Pair

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


def _setp(site: Site) -> Run:
    site.takes(COMPARISONS, _LOGIC, "ftz")
    name = site.one(*COMPARISONS)
    logic = next((f for m, f in _LOGIC.items() if site.at.has(m)), None)
    type = site.type
    half = type if type in ("f16", "bf16") else ""
    if type.endswith("x2"):
        raise site.refuse("packed comparisons are not executed yet")
    a, b, ftz = site.fetch(1), site.fetch(2), site.at.has("ftz")
    other = site.fetch(3, "pred") if logic is not None else None
    result = site.operand(0)
    put = site.registers.store(
        result.first if isinstance(result, Pair) else result, "pred", site.at
    )
    second = result.second if isinstance(result, Pair) else None
    put_not = site.registers.store(second, "pred", site.at) if second is not None else None

    def run(lanes: Lanes) -> None:
        x, y = a(lanes), b(lanes)
        if half:
            x, y = from_half(x, half), from_half(y, half)
        if ftz:
            x, y = flush(x), flush(y)
        out = compare(name, x, y)
        negated = ~out
        if logic is not None and other is not None:
            also = other(lanes)
            out, negated = logic(out, also), logic(negated, also)
        put(lanes, out)
        if put_not is not None:
            put_not(lanes, negated)

    return run


def _selp(site: Site) -> Run:
    site.takes()
    site.count(4)
    a, b, chosen, put = site.fetch(1), site.fetch(2), site.fetch(3, "pred"), site.store()
    return lambda lanes: put(lanes, np.where(chosen(lanes), a(lanes), b(lanes)))


def _set(site: Site) -> Run:
    raise site.refuse("set is not executed yet")


OPS: dict[str, Decoder] = {"setp": _setp, "selp": _selp, "set": _set}
