"""Tensors with guard bands, in the memory layouts that callers bring.

Every tensor lies inside a larger allocation whose bytes are all 0xFF: NaN in every float format, -1
in every integer. What an output must not touch, and what an input must keep, is compared byte by
byte afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GUARD_BYTES = 8192
FILL = 0xFF


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory.

    `rows_first` stores the dimensions before the last in the order [0, 2, 1] (BSHD of a BHSD
    tensor; rank 4 only). Each innermost row is followed by `pad` unused elements, each row block of
    a rank-4 tensor is one of `interleave` (a fused QKV buffer), and the tensor starts `lead`
    elements into its allocation.
    """

    name: str
    rows_first: bool = False
    pad: int = 0
    interleave: int = 1
    lead: int = 0

    @property
    def aligned(self) -> bool:
        """Whether rows of 2-byte elements start on 16 bytes."""
        return self.pad % 8 == 0 and self.lead % 8 == 0


PLAIN = Layout("contiguous")
LAYOUTS = (
    PLAIN,
    Layout("BSHD view", rows_first=True),
    Layout("fused QKV slice", rows_first=True, interleave=3, lead=64),
    Layout("padded rows, storage offset", pad=8, lead=40),
    Layout("odd rows, odd storage offset", pad=3, lead=1),
)


@dataclass(frozen=True)
class Guarded:
    """`tensor` is a view into `buffer`, the whole allocation as bytes."""

    tensor: Tensor
    buffer: Tensor
    elements: Tensor  # the whole allocation in the tensor's dtype

    def mark(self) -> Tensor:
        """True at every byte of `buffer` that belongs to the tensor."""
        inside = torch.zeros(self.elements.numel(), dtype=torch.bool, device=self.buffer.device)
        t = self.tensor
        inside.as_strided(t.shape, t.stride(), t.storage_offset()).fill_(True)
        return inside.repeat_interleave(self.elements.element_size())

    def touched_outside(self) -> int:
        """Bytes outside the tensor that are no longer the fill."""
        return int(((self.buffer != FILL) & ~self.mark()).sum())


def guarded(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device, layout: Layout = PLAIN
) -> Guarded:
    """An uninitialised (all 0xFF) tensor of `shape` in the given layout."""
    rank = len(shape)
    interleave = layout.interleave if rank == 4 else 1
    order = [0, 2, 1, 3] if layout.rows_first and rank == 4 else list(range(rank))
    strides = [0] * rank
    step = 1
    for position, dim in enumerate(reversed(order)):
        strides[dim] = step
        step *= max(shape[dim], 1)
        if position == 0 and rank > 1:
            step += layout.pad
        if position == 1:
            step *= interleave
    itemsize = torch.empty((), dtype=dtype).element_size()
    guard = GUARD_BYTES // itemsize
    first = guard + (layout.lead if rank > 1 else 0)
    count = first + step + guard + 16
    count += -count % 16
    buffer = torch.full((count * itemsize,), FILL, dtype=torch.uint8, device=device)
    elements = buffer.view(dtype)
    return Guarded(elements.as_strided(tuple(shape), strides, first), buffer, elements)


def guarded_copy(values: Tensor, dtype: torch.dtype, layout: Layout = PLAIN) -> Guarded:
    """A copy of `values` in the given layout, guard bands around it."""
    out = guarded(values.shape, dtype, values.device, layout)
    out.tensor.copy_(values)
    return out


def bits(tensor: Tensor) -> Tensor:
    """The tensor's elements as integers, to compare bit for bit (NaN equals itself)."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(kinds[tensor.element_size()])
