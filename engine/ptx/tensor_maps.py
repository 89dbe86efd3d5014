"""Tensor maps: what a launcher encoded of a tensor for bulk tensor copies.

The driver's CUtensorMap is opaque. Here its 128 bytes hold the arguments of
cuTensorMapEncodeTiled, as the recording stand-in of the CUDA runtime writes them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SIZE = 128
MAGIC = b"CBTENMAP"
_FORMAT = "<8sQ5B3x5I4Q5H5B"

# Bytes of an element by CUtensorMapDataType.
_ELEMENTS = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 4, 11: 4, 12: 4}
# Bytes of a swizzle's row by CUtensorMapSwizzle.
SWIZZLES = {0: 0, 1: 32, 2: 64, 3: 128}


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor and a box of it; innermost dimension first.

    Args:
        address: of the first element, bytes.
        element: bytes of an element.
        sizes: elements in each dimension.
        strides: bytes from one element to the next in each dimension.
        box: elements of a copy in each dimension.
        swizzle: bytes of the row that is permuted in shared memory; 0: none.
        nan: elements past the tensor are NaN instead of zeros.
    """

    address: int
    element: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    nan: bool = False

    @property
    def bytes(self) -> int:
        """Bytes that a copy brings, those past the tensor included."""
        return int(np.prod(self.box)) * self.element


def encode(tensor: TensorMap, data_type: int) -> bytes:
    """The 128 bytes of a map."""
    rank = len(tensor.sizes)
    swizzle = next(k for k, v in SWIZZLES.items() if v == tensor.swizzle)

    def fill(values: tuple[int, ...], count: int) -> list[int]:
        return [*values, *[0] * (count - len(values))]

    return struct.pack(
        _FORMAT, MAGIC, tensor.address, data_type, rank, swizzle, 0, int(tensor.nan),
        *fill(tensor.sizes, 5), *fill(tensor.strides[1:], 4), *fill(tensor.box, 5), *[1] * 5,
    ).ljust(SIZE, b"\0")  # fmt: skip


def read(data: bytes) -> TensorMap | None:
    """The map in 128 bytes; None where there is none that the stand-in wrote."""
    if data[:8] != MAGIC:
        return None
    fields = struct.unpack_from(_FORMAT, data)
    address, kind, rank, swizzle, _, nan = fields[1:7]
    sizes, strides, box = fields[7:12], fields[12:16], fields[16:21]
    element = _ELEMENTS[kind]
    return TensorMap(
        address, element, tuple(sizes[:rank]), (element, *strides[: rank - 1]),
        tuple(box[:rank]), SWIZZLES[swizzle], bool(nan),
    )  # fmt: skip


def swizzled(address: Array, swizzle: int) -> Array:
    """Where a byte of shared memory lies that has this address before the permutation.

    Bits 4 to 6 are exclusive-ored with bits 7 to 9, as many as the row has 16-byte units for.
    """
    bits = {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]
    out: Array = address ^ (((address >> 7) & bits) << 4)
    return out
