"""Tensors between the process that judges and the one that runs a person's spec: their bytes, with
name, type, shape and strides said beside them in JSON. Nothing that arrives is ever executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from engine.child.wire import Broken

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip
MOST_BYTES = 1 << 34
MOST_DIMS = 16


def described(tensors: Mapping[str, Tensor]) -> list[list[Any]]:
    """[name, type, shape, strides] of each tensor, in the order of `to_bytes`.

    Raises:
        TypeError: a tensor is sparse, or of a type that does not travel.
    """
    out: list[list[Any]] = []
    for name, tensor in tensors.items():
        kind = str(tensor.dtype).removeprefix("torch.")
        if kind not in DTYPES or tensor.layout is not torch.strided:
            raise TypeError(f"{name} is a tensor of {kind}, {tensor.layout}")
        out.append([name, kind, list(tensor.shape), list(tensor.stride())])
    return out


def to_bytes(tensor: Tensor) -> bytearray:
    """The elements in row-major order."""
    data = bytearray(tensor.numel() * tensor.element_size())
    if data:
        torch.frombuffer(data, dtype=tensor.dtype).view(tensor.shape).copy_(tensor.detach())
    return data


def received(described_as: object, read: Callable[[int], bytearray]) -> dict[str, Tensor]:
    """The tensors that `described` speaks of; `read` gives that many bytes of the stream.

    Raises:
        Broken: what came describes no tensors.
    """
    if not isinstance(described_as, list):
        raise Broken("no list of tensors")
    out: dict[str, Tensor] = {}
    for row in described_as:
        if not (isinstance(row, list) and len(row) == 4 and isinstance(row[0], str)):
            raise Broken("a tensor without name, type, shape and strides")
        name, kind, shape, strides = row
        dtype = DTYPES.get(kind) if isinstance(kind, str) else None
        if dtype is None or not (_sizes(shape) and _sizes(strides) and len(shape) == len(strides)):
            raise Broken(f"{name!r} has no type, shape or strides that tensors have")
        size = math.prod(shape) * dtype.itemsize
        if size > MOST_BYTES:
            raise Broken(f"{name!r} has {size} bytes")
        flat = torch.frombuffer(read(size), dtype=dtype) if size else torch.empty(0, dtype=dtype)
        out[name] = _with_strides(flat.view(shape), strides)
    return out


def _sizes(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MOST_DIMS
        and all(type(n) is int and 0 <= n < 1 << 40 for n in value)
    )


def _with_strides(tensor: Tensor, strides: list[int]) -> Tensor:
    """The tensor laid out as it was: whether a spec may `view` it depends on that."""
    if list(tensor.stride()) == strides or not tensor.numel():
        return tensor
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True))
    if reach * tensor.element_size() > MOST_BYTES:
        raise Broken("strides that reach beyond any tensor of ours")
    room = torch.zeros(reach, dtype=tensor.dtype)
    if tensor.dtype.is_floating_point:
        room.fill_(math.nan)  # what lies between the rows is nothing that a spec may read
    return room.as_strided(tensor.shape, strides).copy_(tensor)
