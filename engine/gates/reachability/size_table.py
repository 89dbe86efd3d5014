"""Very many sizes at once, and values drawn for each of them: the same ones each time."""

from __future__ import annotations

import hashlib
import math
from functools import cache

import torch
from torch import Tensor

from engine.gates.analysis.size_comparisons import SIZES

LONGEST = 2**17  # rows and keys, each number of them
MANY = 2**12  # batches and heads
LARGEST = 31  # bits of any size
JOINT = 2**17  # points at which all sizes are drawn
END = 0.15  # how often a name has its least value, and how often its largest
Table = dict[str, Tensor]


def one_of(values: list[Tensor], name: str) -> Tensor:
    """At each point one of the values."""
    way = (uniform(f"way of {name}", len(values[0])) * len(values)).long()
    return torch.stack(values).gather(0, way[None])[0]


@cache
def table_of_sizes() -> Table:
    """Every length, number of batches and of heads alone, all of them at once, and all together."""
    one = torch.ones((), dtype=torch.int64)
    powers = 2 ** torch.arange(LARGEST)
    lengths, many = (torch.cat([torch.arange(1, n + 1), powers]) for n in (LONGEST, MANY))
    parts: list[tuple[Tensor, ...]] = [
        (one, one, one, 3 * one, lengths), (one, one, one, lengths, 5 * one),
        (one, one, one, lengths, lengths), (many, one, one, 3 * one, 5 * one),
        (one, many, one, 3 * one, 5 * one), (one, many, many, 3 * one, 5 * one),
        (many, one, one, 5 * one, 5 * one), (one, many, many, 5 * one, 5 * one),
    ]  # fmt: skip

    def drawn(name: str, largest: int) -> Tensor:
        return (2 ** (uniform(name, JOINT) * math.log2(largest + 1))).long()

    square = uniform("square", JOINT) < 0.5
    rows, keys, kv = drawn("Nq", 2**24), drawn("Nk", 2**24), drawn("Hkv", 16)
    group = torch.where(uniform("equal", JOINT) < 0.5, one, drawn("group", 8))
    parts.append((drawn("B", 16), kv * group, kv, torch.where(square, keys, rows), keys))
    made = [torch.broadcast_tensors(*part) for part in parts]  # type: ignore[no-untyped-call]
    return {n: torch.cat([part[k] for part in made]) for k, n in enumerate(SIZES)}


def uniform(name: str, count: int) -> Tensor:
    """From 0 to below 1, the same ones for a name each time; the ends often."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(count, generator=generator, dtype=torch.float64)
    ends = torch.rand(count, generator=generator)
    return u.masked_fill(ends < END, 0.0).masked_fill(ends > 1 - END, 1 - 1e-9)


def tiles(length: Tensor, tile: int) -> Tensor:
    return (length + tile - 1) // tile
