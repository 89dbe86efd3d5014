"""Logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions")."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.isa.arithmetic import Function, apply
from engine.ptx.machine import Run
from engine.ptx.syntax import Immediate

Array = np.ndarray[Any, Any]


def _logic(function: Function) -> Decoder:
    def decoder(site: Site) -> Run:
        site.takes()
        site.count(3)
        return apply(site, function, 1, 2, site.type, site.type)

    return decoder


def _not(site: Site) -> Run:
    site.takes()
    site.count(2)
    return apply(site, np.invert, 1, 1, site.type, site.type)


def left(a: Array, n: Array) -> Array:
    """Shifts of the width or more give 0."""
    bits = 8 * a.dtype.itemsize
    over = n >= bits
    shifted: Array = a << np.minimum(n, bits - 1).astype(a.dtype)
    return np.where(over, a.dtype.type(0), shifted) if np.count_nonzero(over) else shifted


def right(a: Array, n: Array) -> Array:
    """Shifts of the width or more give 0, or the sign everywhere."""
    bits = 8 * a.dtype.itemsize
    shifted: Array = a >> np.minimum(n, bits - 1).astype(a.dtype)
    over = n >= bits
    if a.dtype.kind == "i" or not np.count_nonzero(over):
        return shifted
    return np.where(over, a.dtype.type(0), shifted)


def _shift(function: Function) -> Decoder:
    def decoder(site: Site) -> Run:
        site.takes()
        site.count(3)
        a, n, put = site.fetch(1), site.fetch(2, "u32"), site.store()
        return lambda lanes: put(lanes, function(a(lanes), n(lanes)))

    return decoder


def _funnel(site: Site) -> Run:
    site.takes("l", "r", "wrap", "clamp")
    to_left, wrap = site.one("l", "r") == "l", site.one("wrap", "clamp") == "wrap"
    low, high, by, put = (
        site.fetch(1, "u32"),
        site.fetch(2, "u32"),
        site.fetch(3, "u32"),
        site.store(),
    )

    def run(lanes: Any) -> None:
        n = by(lanes)
        n = (n & np.uint32(31) if wrap else np.minimum(n, np.uint32(32))).astype(np.uint64)
        both = (high(lanes).astype(np.uint64) << np.uint64(32)) | low(lanes)
        moved = (both << n) >> np.uint64(32) if to_left else both >> n
        put(lanes, moved.astype(np.uint32))

    return run


def _extract(site: Site) -> Run:
    site.takes()
    a, start, length = site.fetch(1), site.fetch(2, "u32"), site.fetch(3, "u32")
    put, signed, bits = site.store(), site.type[0] == "s", int(site.type[1:])

    def run(lanes: Any) -> None:
        value = a(lanes)
        unsigned = value.view(np.dtype(f"u{bits // 8}"))
        p, n = start(lanes) & np.uint32(255), length(lanes) & np.uint32(255)
        n = np.minimum(n, np.uint32(bits))
        ones = _ones(n, unsigned.dtype)
        field = right(unsigned, p) & ones
        if signed:
            # Above the field, and above the register's end, stands the field's last bit.
            last = np.minimum(p + np.maximum(n, 1) - 1, bits - 1)
            sign = (right(unsigned, last) & unsigned.dtype.type(1)) != 0
            there = np.minimum(n, np.uint32(bits) - np.minimum(p, np.uint32(bits)))
            field = np.where(sign & (n > 0), field | ~_ones(there, unsigned.dtype), field)
        put(lanes, field.view(value.dtype))

    return run


def _ones(count: Array, type: np.dtype[Any]) -> Array:
    """Words whose lowest `count` bits are set."""
    return ~left(np.full(count.shape, ~type.type(0)), count)


def _insert(site: Site) -> Run:
    site.takes()
    a, b, start, length = site.fetch(1), site.fetch(2), site.fetch(3, "u32"), site.fetch(4, "u32")
    put = site.store()

    def run(lanes: Any) -> None:
        into = b(lanes)
        p, n = start(lanes) & np.uint32(255), length(lanes) & np.uint32(255)
        mask = left(_ones(n, into.dtype), p)
        put(lanes, (into & ~mask) | (left(a(lanes), p) & mask))

    return run


def _permute(site: Site) -> Run:
    site.takes()
    site.count(4)
    low, high, choose = (site.fetch(k, "u32") for k in (1, 2, 3))
    put = site.store()
    constant = site.operand(3)
    if isinstance(constant, Immediate) and not constant.value & 0x8888:  # as bytes are put together
        columns = [constant.value >> n & 7 for n in range(0, 16, 4)]

        def taken(lanes: Any) -> None:
            both = (high(lanes).astype(np.uint64) << np.uint64(32)) | low(lanes)
            bytes_of = both[..., None].view(np.uint8)
            put(lanes, np.ascontiguousarray(bytes_of[..., columns]).view(np.uint32)[..., 0])

        return taken

    def run(lanes: Any) -> None:
        both = (high(lanes).astype(np.uint64) << np.uint64(32)) | low(lanes)
        chosen = choose(lanes)
        out = np.zeros(chosen.shape, np.uint32)
        for k in range(4):
            code = (chosen >> np.uint32(4 * k)) & np.uint32(15)
            byte = (both >> ((code & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(
                255
            )
            byte = byte.astype(np.uint32)
            sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
            out |= np.where(code & np.uint32(8), sign, byte) << np.uint32(8 * k)
        put(lanes, out)

    return run


def _lookup(site: Site) -> Run:
    site.takes()
    table = site.operand(4)
    if not isinstance(table, Immediate):
        raise site.refuse("a constant table is needed")
    bits = table.value

    def function(a: Array, b: Array, c: Array) -> Array:
        out = np.zeros_like(a)
        for k in range(8):
            if bits >> k & 1:
                out |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
        return out

    return apply(site, function, 1, 3, site.type, site.type)


def _count(site: Site) -> Run:
    site.takes()
    a, put = site.fetch(1), site.store(0, "u32")
    return lambda lanes: put(lanes, np.bitwise_count(a(lanes)).astype(np.uint32))


def _leading(site: Site) -> Run:
    site.takes()
    a, put, bits = site.fetch(1), site.store(0, "u32"), int(site.type[1:])

    def run(lanes: Any) -> None:
        value = a(lanes).astype(np.uint64)
        n = np.zeros(value.shape, np.uint32)
        for k in range(bits):
            n += (value >> np.uint64(k) != 0).astype(np.uint32)
        put(lanes, np.uint32(bits) - n)

    return run


def _find(site: Site) -> Run:
    """The place of the highest bit that is set (of a negative number: that is not), or all bits;
    .shiftamt: how far that bit is from the top."""
    site.takes("shiftamt")
    a, put, bits = site.fetch(1), site.store(0, "u32"), int(site.type[1:])
    from_top = site.at.has("shiftamt")

    def run(lanes: Any) -> None:
        value = a(lanes)
        value = np.where(value < 0, ~value, value).view(np.dtype(f"u{bits // 8}"))
        n = np.zeros(value.shape, np.uint32)
        for k in range(bits):
            n += (value >> value.dtype.type(k) != 0).astype(np.uint32)
        place = np.uint32(bits) - n if from_top else n - np.uint32(1)
        put(lanes, np.where(n == 0, np.uint32(0xFFFFFFFF), place))

    return run


def _reverse(site: Site) -> Run:
    site.takes()
    a, put, bits = site.fetch(1), site.store(), int(site.type[1:])

    def run(lanes: Any) -> None:
        value = a(lanes)
        out = np.zeros_like(value)
        one = value.dtype.type(1)
        for k in range(bits):
            out |= ((value >> value.dtype.type(k)) & one) << value.dtype.type(bits - 1 - k)
        put(lanes, out)

    return run


OPS: dict[str, Decoder] = {
    "and": _logic(np.bitwise_and),
    "or": _logic(np.bitwise_or),
    "xor": _logic(np.bitwise_xor),
    "not": _not,
    "shl": _shift(left),
    "shr": _shift(right),
    "shf": _funnel,
    "bfe": _extract,
    "bfi": _insert,
    "prmt": _permute,
    "lop3": _lookup,
    "popc": _count,
    "clz": _leading,
    "bfind": _find,
    "brev": _reverse,
}
