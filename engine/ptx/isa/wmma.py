"""wmma: matrices of a warp in fragments whose layout the ISA leaves open (PTX ISA, "wmma").

Here a thread holds the eight elements that follow each other in its half of a row: lane `2 r + h`
columns `8 h ..` of row `r`. A kernel that builds on another layout is wrong on every GPU but one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.isa.data import SPACES, space_of
from engine.ptx.isa.matrix import numbers, whole_warps
from engine.ptx.lanes import WARP, Lanes
from engine.ptx.machine import Run
from engine.ptx.ordering import ALL, SEVERAL
from engine.ptx.registers import Values

Array = np.ndarray[Any, Any]
N = 16
EACH = N * N // WARP  # elements of a thread
_SHAPE = "m16n16k16"
_LAYOUTS = ("row", "col")


def _addresses(site: Site, base: Values, stride: Values, size: int) -> Array:
    """Bytes of each thread's elements: [2, lanes, 8]."""
    lane = np.arange(base.shape[1]) % WARP
    row, column = lane[:, None] // 2, lane[:, None] % 2 * EACH + np.arange(EACH)
    row = np.broadcast_to(row, column.shape)
    if site.at.has("col"):
        row, column = column, row
    pitch = stride.astype(np.int64)[..., None]
    return base.astype(np.int64)[..., None] + (row * pitch + column) * size


def _kind(site: Site) -> tuple[str, int]:
    if site.type not in ("bf16", "f16", "f32"):
        raise site.refuse("these elements are not executed yet")
    return site.type, 4 if site.type == "f32" else 2


def _load(site: Site) -> Run:
    site.takes("load", "a", "b", "c", "sync", "aligned", _SHAPE, _LAYOUTS, SPACES)
    site.one(*_LAYOUTS)
    _, size = _kind(site)
    puts, base = site.stores(0, "b32"), site.address(1)
    stride = site.fetch(2, "u32")
    memory, at, space = site.machine.memory, site.at, space_of(site)

    def load(lanes: Lanes) -> None:
        where = _addresses(site, base(lanes), stride(lanes), size)
        out = np.zeros((2, len(lanes), EACH), np.dtype(f"u{size}"))
        for k in range(EACH):
            held, offset, _ = memory.load(space, where[..., k], size, lanes, at, ALL)
            memory.note_unset(held, offset, size, at)
            out[..., k] = memory.read(held, offset, size)
        words = out.view(np.uint32)
        # Fragments of f16 have registers for each element twice.
        for k, put in enumerate(puts):
            put(lanes, words[..., k % words.shape[-1]])

    return whole_warps(site, load)


def _store(site: Site) -> Run:
    site.takes("store", "d", "sync", "aligned", _SHAPE, _LAYOUTS, SPACES)
    site.one(*_LAYOUTS)
    if site.type != "f32":
        raise site.refuse("only f32 is stored yet")
    base, fetches, stride = site.address(0), site.fetches(1, "b32"), site.fetch(2, "u32")
    memory, at, space = site.machine.memory, site.at, space_of(site)

    def store(lanes: Lanes) -> None:
        where = _addresses(site, base(lanes), stride(lanes), 4)
        for k, fetch in enumerate(fetches):
            held, offset, inside = memory.store(space, where[..., k], 4, lanes, at, SEVERAL)
            values = fetch(lanes)[:, inside]
            if held == "global":
                memory.output(values, offset, lanes.threads[inside], at)
            memory.write(held, offset, values, 4)

    return whole_warps(site, store)


def _mma(site: Site) -> Run:
    types = [m for m in site.at.modifiers if m in ("bf16", "f16", "f32")]
    site.takes("mma", "sync", "aligned", _SHAPE, _LAYOUTS)
    if types not in (["f32", "bf16", "bf16", "f32"], ["f32", "f32"], ["f32", "f16", "f16", "f32"]):
        raise site.refuse("these types are not executed yet")
    kind = "bf16" if "bf16" in types else "f16"
    a, b, c = site.fetches(1, "b32"), site.fetches(2, "b32"), site.fetches(3, "f32")
    puts = site.stores(0, "f32")

    def whole(fetches: Any, lanes: Lanes) -> Array:
        words = np.stack([f(lanes) for f in fetches[: EACH // 2]], -1)
        return numbers(np.ascontiguousarray(words).view(np.uint16).reshape(2, -1, N, N), kind)

    def multiply(lanes: Lanes) -> None:
        left, right = whole(a, lanes), whole(b, lanes)
        added = np.stack([f(lanes) for f in c], -1)
        d = np.matmul(left, right).astype(np.float32).reshape(added.shape) + added
        for k, put in enumerate(puts):
            put(lanes, d[..., k])

    return whole_warps(site, multiply)


def _wmma(site: Site) -> Run:
    what = site.at.modifiers[0]
    if _SHAPE not in site.at.modifiers or what not in ("load", "mma", "store"):
        raise site.refuse(f"only .{_SHAPE} is executed yet")
    return {"load": _load, "mma": _mma, "store": _store}[what](site)


OPS: dict[str, Decoder] = {"wmma": _wmma}
