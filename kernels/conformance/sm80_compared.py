"""What the cases of the sm_80 primitives are made of: a kernel's call, and exact comparison."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

FLOATS = {"f16": torch.float16, "bf16": torch.bfloat16, "float": torch.float32}
ELEMENTS = {**FLOATS, "int": torch.int32, "bool": torch.bool}


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_longlong * 4)]


class Case(ctypes.Structure):
    _fields_ = [("t", Tensor * 6), ("n", ctypes.c_int * 8)]


@dataclass(frozen=True)
class Test:
    """One kernel instance, and the check that runs it: None when right, else what is wrong.

    `primitives` are the functions of the headers (and CUDA's own scalar functions) whose result the
    check compares; `layout` is the accumulator that they run on, "" where none takes part.
    """

    primitives: tuple[str, ...]
    kernel: str
    threads: int
    shared: int
    check: Callable[[Callable[..., None]], str | None]
    layout: str = "MmaAcc"
    blocks: int = 1

    @property
    def symbol(self) -> str:
        return f"case_{hashlib.sha256(f'{self.kernel}/{self.threads}'.encode()).hexdigest()[:16]}"

    def case(self) -> dict[str, Any]:
        """What it tries, as a record names it."""
        values = self.kernel.partition("<")[2].removesuffix(">").replace(f"{self.layout}<", "")
        words = values.replace(">", "").split(", ") if values else []
        elements = [word for word in words if word in ELEMENTS]
        return {
            "case": f"{self.kernel} on {self.threads} threads",
            "primitives": list(self.primitives),
            "layout": self.layout,
            "element": elements[0] if elements else "",
            "shape": [int(word) for word in words if word not in ELEMENTS],
        }


def call(function: ctypes._CFuncPtr) -> Callable[..., None]:
    """The kernel as a Python function of tensors and integers; it has finished on return."""

    def run(tensors: list[torch.Tensor], *numbers: int) -> None:
        case = Case()
        for slot, tensor in zip(case.t, tensors, strict=False):
            slot.data = tensor.data_ptr()
            for d, stride in enumerate(tensor.stride()[:4]):
                slot.stride[d] = stride
        case.n[: len(numbers)] = list(numbers)
        status = function(ctypes.byref(case))
        if status:
            raise RuntimeError(f"cudaError {status}")
        torch.cuda.synchronize()

    return run


def exact(got: torch.Tensor, want: torch.Tensor, what: str) -> str | None:
    """Equal element by element; NaN equals NaN."""
    got, want = got.cpu().double(), want.cpu().double()
    same = (got == want) | (got.isnan() & want.isnan())
    if bool(same.all()):
        return None
    where = [int(x) for x in (~same).nonzero()[0]]
    values = f"{got[tuple(where)].item()} instead of {want[tuple(where)].item()}"
    return f"{what}: {int((~same).sum())} of {same.numel()} differ, first at {where}: {values}"


def first(*answers: str | None) -> str | None:
    return next((a for a in answers if a), None)


def whole(*shape: int, low: int = -4, high: int = 5) -> torch.Tensor:
    """Small integers, so that products and sums are exact in any order."""
    return torch.randint(low, high, shape).float()


def gpu(tensor: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return tensor.to(dtype).cuda()


def placed(values: torch.Tensor, how: str) -> torch.Tensor:
    """The rows of `values` on the GPU, in memory laid out as `how` says; NaN (ones) around them."""
    rows, cols = values.shape
    fill = float("nan") if values.dtype.is_floating_point else 1
    if how == "contiguous":
        whole_, view = None, None
        whole_ = torch.full((rows + 2, cols), fill, dtype=values.dtype, device="cuda")
        view = whole_[1 : rows + 1]
    elif how == "strided":
        whole_ = torch.full((rows + 2, 2 * cols + 8), fill, dtype=values.dtype, device="cuda")
        view = whole_[1 : rows + 1, 8 : cols + 8]
    elif how == "odd pitch":
        whole_ = torch.full((rows + 2, cols + 3), fill, dtype=values.dtype, device="cuda")
        view = whole_[1 : rows + 1, :cols]
    elif how == "odd start":
        whole_ = torch.full((rows + 2, cols + 8), fill, dtype=values.dtype, device="cuda")
        view = whole_[1 : rows + 1, 1 : cols + 1]
    else:
        whole_ = torch.full((rows + 2, 2 * cols), fill, dtype=values.dtype, device="cuda")
        view = whole_[1 : rows + 1, ::2]
    view.copy_(values.cuda())
    return view


PLACES = ("contiguous", "strided", "odd pitch", "odd start", "every other column")


def swizzled(tile: torch.Tensor) -> torch.Tensor:
    """The 16-bit elements of a tile in the order that shared memory holds them."""
    rows, cols = tile.shape
    chunks = tile.view(torch.int16).reshape(rows, cols // 8, 8)
    row = torch.arange(rows).unsqueeze(1)
    chunk = torch.arange(cols // 8).unsqueeze(0)
    lies = (chunk // 8) * 8 + ((chunk % 8) ^ (row % 8))
    out = torch.empty_like(chunks)
    out[row.expand_as(lies), lies] = chunks
    return out.reshape(-1)


def part(values: torch.Tensor, start: int, rows: int) -> torch.Tensor:
    """Rows start .. start + rows, zeros outside."""
    out = torch.zeros(rows, *values.shape[1:], dtype=values.dtype)
    for r in range(rows):
        if 0 <= start + r < values.shape[0]:
            out[r] = values[start + r]
    return out
