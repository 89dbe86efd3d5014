"""The C ABI of a built kernel: its argument struct's twin in ctypes, and the library, opened."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any


class TensorArg(ctypes.Structure):
    """Address and strides in elements, outermost dimension first."""

    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_longlong * 4)]


# What a field is in ctypes, and in the struct module's native layout (a tensor is five values).
FIELD_TYPES: dict[str, tuple[Any, str]] = {
    "tensor": (TensorArg, "P4q"),
    "i32": (ctypes.c_int32, "i"),
    "i64": (ctypes.c_int64, "q"),
    "f32": (ctypes.c_float, "f"),
}


def args_type(fields: Iterable[Iterable[str]]) -> type[ctypes.Structure]:
    """The struct with these fields (name and type, in order)."""
    listed = [(name, FIELD_TYPES[kind][0]) for name, kind in fields]
    return type("Args", (ctypes.Structure,), {"_fields_": listed})


def load(path: str, struct: type[ctypes.Structure]) -> ctypes.CDLL:
    """A library whose argument struct has the size of `struct`. RuntimeError for another one."""
    loaded = ctypes.CDLL(path)
    loaded.cubridge_args_size.restype = ctypes.c_longlong
    loaded.cubridge_error_text.restype = ctypes.c_char_p
    loaded.cubridge_launch.argtypes = [
        ctypes.c_void_p,
        ctypes.c_longlong,
        ctypes.c_char_p,
        ctypes.c_void_p,
    ]
    size = loaded.cubridge_args_size()
    if size != ctypes.sizeof(struct):
        raise RuntimeError(
            f"{path} takes a struct of {size} bytes, what it is opened for has "
            f"{ctypes.sizeof(struct)}: remove the folder that it was built in and build again"
        )
    return loaded
