"""The argument struct's twin in ctypes, filled from tensors; it must have the library's size."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from ._expr import evaluate


class TensorArg(ctypes.Structure):
    """Address and strides in elements, outermost dimension first."""

    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_longlong * 4)]


_TYPES = {
    "tensor": TensorArg,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
}


def args_type(fields: list[list[str]]) -> type[ctypes.Structure]:
    """The struct with these fields (name and type, in order)."""
    listed = [(name, _TYPES[kind]) for name, kind in fields]
    return type("Args", (ctypes.Structure,), {"_fields_": listed})


def kernel_view(tensor: torch.Tensor, source: list[str], dims: list[str]) -> torch.Tensor:
    """`tensor`, whose dimensions are `source`, with the kernel's dimensions `dims`; those that it
    lacks have size 1. A D in the source serves as Dv where the two are one size."""
    have = list(source)
    for alias, name in (("D", "Dv"), ("Hq", "Hkv")):
        if name in dims and name not in have and alias in have and alias not in dims:
            have[have.index(alias)] = name
    view = tensor.permute([have.index(d) for d in dims if d in have])
    for position, dim in enumerate(dims):
        if dim not in have:
            view = view.unsqueeze(position)
    return view


def fill(
    struct: type[ctypes.Structure],
    binding: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    names: dict[str, Any],
) -> Any:
    """The struct for one call. `tensors` has inputs and outputs by name, `names` sizes and numbers.

    ValueError where a number does not fit its field.
    """
    args: Any = struct()
    for row in binding["tensors"]:
        view = kernel_view(tensors[row["source"]], row["source_dims"], row["dims"])
        strides = [*view.stride(), 0, 0, 0, 0][:4]
        setattr(args, row["field"], TensorArg(view.data_ptr(), (ctypes.c_longlong * 4)(*strides)))
    kinds: dict[str, Any] = {item[0]: item[1] for item in struct._fields_}
    values = [(row["field"], row["size"]) for row in binding["sizes"]]
    values += [(row["field"], row["value"]) for row in binding["scalars"]]
    for field, text in values:
        value = evaluate(text, names)
        if kinds[field] is ctypes.c_float:
            setattr(args, field, float(value))
            continue
        setattr(args, field, int(value))
        if getattr(args, field) != value:
            raise ValueError(f"{field} is {value}, which does not fit the kernel's {field}")
    return args
