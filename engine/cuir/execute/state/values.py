"""What names stand for while a program runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from engine.cuir.scalar import Env, Mode, gather, round_to
from engine.cuir.types import (
    BarriersType,
    DType,
    DTypeValue,
    FieldType,
    GmemTileType,
    GmemType,
    KernelRef,
    LambdaType,
    Layout,
    LayoutValue,
    ListType,
    MapType,
    NameType,
    Scalar,
    SharedType,
    TileType,
    Type,
    Unknown,
    WordsType,
)  # fmt: skip

Tensor = torch.Tensor


class RegTile:
    """One part's rows of a register tile.

    `data` is rows x cols; a row vector is rows x 1, a column vector 1 x cols. `born` is the part's
    step when threads last wrote it; `held` the asynchronous matmul group that reads it, `pending`
    the one that accumulates into it (0: none).
    """

    __slots__ = ("born", "data", "held", "pending", "type")

    def __init__(self, type: TileType, data: Tensor, born: int = 0) -> None:
        self.type = type
        self.data = data
        self.born = born
        self.held = 0
        self.pending = 0

    def copy(self, born: int) -> RegTile:
        return RegTile(self.type, self.data, born)


class TensorField:
    """A tensor of the argument struct.

    `data` holds the mode's floats (values of T kept exactly representable in T in typed mode) or
    int64; `owner` numbers the block that last wrote each row, 0 for none (in numpy, which asks a
    few words something several times as fast). `unfilled`: it holds nothing before a block writes
    it.
    """

    __slots__ = ("data", "low", "name", "owner", "unfilled", "views", "written")

    def __init__(self, name: str, data: Tensor) -> None:
        self.name = name
        self.data = data
        self.owner: np.ndarray | None = None
        self.written = False
        self.unfilled = False
        self.low: str | None = None  # the element type that a view declares
        self.views: dict[tuple[int, ...], Gmem] = {}

    def declare(self, dtype: str, mode: Mode) -> None:
        """A view says what the elements are: inputs are rounded to it once."""
        if self.low is None:
            self.low = dtype
            if dtype in ("f16", "bf16") and not self.written:
                self.data = round_to(self.data, dtype, mode)

    def view(self, type: GmemType, shape: tuple[int, ...], mode: Mode) -> Gmem:
        """The field seen so: every call of a function that names the view asks for it anew."""
        found = self.views.get(shape)
        if found is None or found.type != type:
            found = self.views[shape] = Gmem(type, self, shape, mode)
        return found

    def owners(self, vector: bool) -> np.ndarray:
        """Which block wrote each row (each element, where rows are the last dimension)."""
        if self.owner is None:
            shape = self.data.shape if vector else self.data.shape[:-1]
            self.owner = np.zeros(shape, np.int32)
        return self.owner


class Gmem:
    """A view of a tensor field: the shape that the kernel declares over it."""

    __slots__ = ("data", "field", "inside", "mode", "shape", "tile", "type", "vector", "words")

    def __init__(self, type: GmemType, field: TensorField, shape: tuple[int, ...], mode: Mode):
        self.type = type
        self.tile, self.vector = GmemTileType(type, False), GmemTileType(type, True)
        self.field = field
        self.shape = shape
        self.mode = mode
        field.declare(type.dtype, mode)
        data = field.data
        # The declared shape may be smaller than the tensor, or (a finding, once touched) larger.
        self.inside = all(s <= t for s, t in zip(shape, data.shape, strict=True))
        if self.inside and shape != tuple(data.shape):
            data = data[tuple(slice(0, s) for s in shape)]
        self.data = data
        self.words: np.ndarray | None = None  # the same memory, once a single element was read

    def beyond(self, index: list[Any]) -> bool:
        """Whether an element that the view's shape holds is not in the tensor."""
        in_view: Any = True
        in_tensor: Any = True
        for i, size, real in zip(index, self.shape, self.data.shape, strict=True):
            in_view = (i >= 0) & (i < size) & in_view
            in_tensor = (i < real) & in_tensor
        both = torch.as_tensor(in_view) & ~torch.as_tensor(in_tensor)
        return bool(both.any())

    def load(self, index: list[Any]) -> Any:
        place = self.single(index)
        if place is None:
            return gather(self.data, index, self.mode)
        if self.words is None:
            self.words = self.data.numpy()
        return self.words.item(place)

    def single(self, index: list[Any]) -> tuple[int, ...] | None:
        """The index of one element that is there; None for anything else."""
        for i, size in zip(index, self.data.shape, strict=True):
            if type(i) is not int or not 0 <= i < size:
                return None
        return tuple(index)


class GmemTile:
    """Rows of a view from `row` on."""

    __slots__ = ("index", "row", "type", "view")

    def __init__(self, view: Gmem, index: tuple[int, ...], row: int) -> None:
        self.view = view
        self.index = index
        self.row = row
        self.type = view.vector if len(index) == len(view.shape) - 1 else view.tile


class Shared:
    """A shared tile or an array of stages; offsets in bytes."""

    __slots__ = ("offset", "type")

    def __init__(self, type: SharedType, offset: int) -> None:
        self.type = type
        self.offset = offset


class BarrierArray:
    __slots__ = ("offset", "type")

    def __init__(self, type: BarriersType, offset: int) -> None:
        self.type = type
        self.offset = offset


class BarrierRef:
    __slots__ = ("offset", "type")

    def __init__(self, offset: int) -> None:
        self.type = ONE_BARRIER
        self.offset = offset


ONE_BARRIER = BarriersType(None, True)


class WordArray:
    __slots__ = ("offset", "type")

    def __init__(self, type: WordsType, offset: int) -> None:
        self.type = type
        self.offset = offset


class WordRef:
    __slots__ = ("offset", "type")

    def __init__(self, offset: int) -> None:
        self.type = ONE_WORD
        self.offset = offset


ONE_WORD = WordsType(None, True)


class TensorMap:
    """A tensor map: the field seen through sizes, and the box of one copy."""

    __slots__ = ("box", "type", "view")

    def __init__(self, type: MapType, view: Gmem, box: tuple[int, int]) -> None:
        self.type = type
        self.view = view
        self.box = box


class LambdaValue(NamedTuple):
    """A compiled lambda with the names that it sees. `reads` are those of its function that it
    reads; None where it calls device functions, which may read others."""

    type: LambdaType
    fn: Callable[[Env], Any]
    env: Env
    reads: tuple[str, ...] | None

    def __call__(self, *values: Any) -> Any:
        inner = dict(self.env)
        inner.update(zip(self.type.node.params, values, strict=True))
        return self.fn(inner)


@dataclass(frozen=True, slots=True)
class Word:
    """A bare word with a meaning of its own (`a_operand`)."""

    name: str

    @property
    def type(self) -> NameType:
        return NameType(self.name)


TYPED = frozenset(
    {BarrierArray, BarrierRef, Gmem, GmemTile, RegTile, Shared, TensorMap, Word, WordArray, WordRef}
)  # what has a type of its own


def type_of(value: Any) -> Type:
    """The static type of a run-time value."""
    if isinstance(value, bool):
        return Scalar("bool", value)
    if isinstance(value, int):
        return Scalar("i32", value)
    if isinstance(value, float):
        return Scalar("f32", value)
    if isinstance(value, list):
        return ListType(tuple(map(type_of, value)))
    if isinstance(value, str):
        return NameType(value)
    if isinstance(value, DType):
        return DTypeValue(value)
    if isinstance(value, Layout):
        return LayoutValue(value)
    if isinstance(value, KernelRef):
        return value
    if isinstance(value, TensorField):
        return FieldType(value.name, "tensor")
    found = getattr(value, "type", None)
    return Unknown() if found is None else found
