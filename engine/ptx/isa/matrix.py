"""Matrices of a warp: ldmatrix, stmatrix, mma.sync (PTX ISA, "Warp Level Matrix Instructions").

Fragments: lane = 4 * group + t. With e elements in a register, register `2 * k + r` of A holds row
`8 * r + group`, columns `4 * e * k + e * t ..`; register k of B holds column `group`, these rows;
C and D hold row `8 * r + group`, columns `2 * t` and `2 * t + 1`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.floats import EIGHT_BITS, from_eight, from_half, to_half
from engine.ptx.isa.data import SPACES
from engine.ptx.lanes import WARP, Lanes
from engine.ptx.machine import Outcome, Run
from engine.ptx.ordering import ALL, SEVERAL
from engine.ptx.registers import Fetch, Values

Array = np.ndarray[Any, Any]

ROW = 16  # bytes of a matrix's row in shared memory


def whole_warps(site: Site, run: Callable[[Lanes], None]) -> Run:
    """All threads of a warp execute such an instruction together."""

    def collective(lanes: Lanes) -> Outcome | None:
        if not lanes.whole:
            counts = np.bincount(lanes.warp_of - lanes.warps[0])[lanes.warp_of - lanes.warps[0]]
            return site.machine.converge(lanes, counts < WARP, site.at)
        run(lanes)
        return None

    return collective


def _count(site: Site) -> int:
    return int(site.one("x1", "x2", "x4")[1])


def _rows(lanes: Lanes, addresses: Array, count: int) -> tuple[Lanes, Array]:
    """The lanes whose addresses count, and those: the first 8, 16 or 32 of each warp."""
    if count == 4:
        return lanes, addresses
    keep = lanes.threads % WARP < 8 * count
    inner = lanes.where(keep)
    assert inner is not None
    return inner, addresses[:, keep]


def _ldmatrix(site: Site) -> Run:
    site.takes("sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", SPACES)
    if site.type != "b16":
        raise site.refuse("only 16-bit elements are executed yet")
    count, turned = _count(site), site.at.has("trans")
    puts, address = site.stores(0, "b32"), site.address(1)
    memory, at = site.machine.memory, site.at
    space = "shared" if any(site.at.has(s) for s in SPACES) else ""

    def load(lanes: Lanes) -> None:
        inner, where = _rows(lanes, address(lanes), count)
        space_, offset, _ = memory.load(space, where, ROW, inner, at, ALL)
        memory.note_unset(space_, offset, ROW, at)
        offset = offset.reshape(-1, count, 8)
        if turned:
            # Half j of lane 4 g + t is element (2 t + j, g).
            items = memory.read(space_, offset[..., None] + 2 * np.arange(8), 2)
            words = np.ascontiguousarray(items.swapaxes(-1, -2)).view(np.uint32)
        else:
            words = memory.read(space_, offset[..., None] + 4 * np.arange(4), 4)
        for k, put in enumerate(puts):
            put(lanes, words[:, :, k].reshape(2, -1))

    return whole_warps(site, load)


def _stmatrix(site: Site) -> Run:
    site.takes("sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", SPACES)
    if site.type != "b16":
        raise site.refuse("only 16-bit elements are executed yet")
    count, turned = _count(site), site.at.has("trans")
    address, fetches = site.address(0), site.fetches(1, "b32")
    memory, at = site.machine.memory, site.at
    space = "shared" if any(site.at.has(s) for s in SPACES) else ""

    def store(lanes: Lanes) -> None:
        inner, where = _rows(lanes, address(lanes), count)
        space_, offset, inside = memory.store(space, where, ROW, inner, at, SEVERAL)
        if not inside.all():
            return
        offset = offset.reshape(-1, count, 8)
        words = np.stack([f(lanes).reshape(2, -1, 8, 4) for f in fetches], 2)
        items = np.ascontiguousarray(words).view(np.uint16)
        if turned:
            items = items.swapaxes(-1, -2)
        memory.write(space_, offset[..., None] + 2 * np.arange(8), items, 2)

    return whole_warps(site, store)


def operand(parts: list[Values], size: int) -> Array:
    """Registers of all lanes as items of `size` bytes: [2, warps, 8, 4, registers, items]."""
    words = np.stack(parts, -1)
    items = np.ascontiguousarray(words).view(np.dtype(f"u{size}"))
    return items.reshape(2, -1, 8, 4, len(parts), 4 // size)


def matrix_a(parts: list[Values], size: int) -> Array:
    """A as [2, warps, 16, k] of items: register 2 * k + r."""
    items = operand(parts, size)
    items = items.reshape(*items.shape[:4], -1, 2, items.shape[-1])
    # [2, W, group, t, k, r, item] -> [2, W, r, group, k, t, item]
    turned = items.transpose(0, 1, 5, 2, 4, 3, 6)
    return turned.reshape(2, turned.shape[1], 16, -1)


def matrix_b(parts: list[Values], size: int) -> Array:
    """B as [2, warps, k, 8] of items."""
    items = operand(parts, size)
    turned = items.transpose(0, 1, 4, 3, 5, 2)
    return turned.reshape(2, turned.shape[1], -1, 8)


def fragments(d: Array) -> list[Array]:
    """D [2, warps, 16, 8] as four values of each lane: [2, lanes] each."""
    turned = d.reshape(2, -1, 2, 8, 4, 2).transpose(0, 1, 3, 4, 2, 5)
    flat = turned.reshape(2, -1, 4)
    return [flat[..., k] for k in range(4)]


# Bytes of the elements that a matmul multiplies. Those of 8 bits may be of two types at once.
SIZES = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "tf32": 4, "e4m3": 1, "e5m2": 1}


def multiply(left: str, right: str) -> bool:
    """Whether a matmul multiplies elements of these types."""
    pairs = ({"s8", "u8"}, {"e4m3", "e5m2"})
    return left in SIZES and (left == right or any({left, right} == p for p in pairs))


def numbers(items: Array, type: str) -> Array:
    """Items as the numbers that a matmul multiplies."""
    if type in ("f16", "bf16"):
        return from_half(items, type)
    if type in ("s8", "u8"):
        return items.view(np.dtype("i1" if type == "s8" else "u1")).astype(np.float64)
    if type in EIGHT_BITS:
        return from_eight(items, type)
    # tf32: the lower 13 bits are not looked at.
    return (items & np.uint32(0xFFFFE000)).view(np.float32)


def _mma(site: Site) -> Run:
    shape = re.fullmatch(
        r"m(\d+)n(\d+)k(\d+)", site.at.modifiers[2] if len(site.at.modifiers) > 2 else ""
    )
    types = [m for m in site.at.modifiers if m in (*SIZES, "f32", "s32")]
    if shape is None or shape[1] != "16" or shape[2] != "8" or len(types) != 4:
        raise site.refuse("this shape of a matmul is not executed yet")
    site.takes("sync", "aligned", shape[0], "row", "col", types, "satfinite")
    d, a, b, c = types
    sums = ("s32",) if a in ("s8", "u8") else ("f32", "f16")
    if d != c or d not in sums or not multiply(a, b) or site.at.has("satfinite"):
        raise site.refuse("these types of a matmul are not executed yet")
    if site.at.modifiers[3:5] != ("row", "col"):
        raise site.refuse("only .row.col is executed yet")
    size = SIZES[a]
    from_a, from_b = site.fetches(1, "b32"), site.fetches(2, "b32")
    if len(from_a) // 2 * 4 * (4 // size) != int(shape[3]):
        raise site.refuse("this shape of a matmul is not executed yet")
    if d == "f16":
        return whole_warps(site, _half_accumulator(site, from_a, from_b, a, b))
    from_c, puts = site.fetches(3, d), site.stores(0, d)
    held = np.dtype(np.float32 if d == "f32" else np.int32)

    def matmul(lanes: Lanes) -> None:
        left = numbers(matrix_a([f(lanes) for f in from_a], size), a)
        right = numbers(matrix_b([f(lanes) for f in from_b], size), b)
        product = fragments(np.matmul(left, right))
        for put, accumulator, part in zip(puts, from_c, product, strict=True):
            put(lanes, accumulator(lanes) + part.astype(held))

    return whole_warps(site, matmul)


def _half_accumulator(
    site: Site, from_a: list[Fetch], from_b: list[Fetch], a: str, b: str
) -> Callable[[Lanes], None]:
    from_c, puts = site.fetches(3, "b32"), site.stores(0, "b32")

    def matmul(lanes: Lanes) -> None:
        left = numbers(matrix_a([f(lanes) for f in from_a], SIZES[a]), a)
        right = numbers(matrix_b([f(lanes) for f in from_b], SIZES[b]), b)
        product = fragments(np.matmul(left, right))
        for r, (put, accumulator) in enumerate(zip(puts, from_c, strict=True)):
            old = np.ascontiguousarray(accumulator(lanes)).view(np.uint16).reshape(2, -1, 2)
            pair = np.stack(product[2 * r : 2 * r + 2], -1) + from_half(old, "f16")
            put(lanes, np.ascontiguousarray(to_half(pair, "f16")).view(np.uint32)[..., 0])

    return matmul


OPS: dict[str, Decoder] = {"ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "mma": _mma}
