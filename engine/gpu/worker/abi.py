"""The C ABI of a built kernel: the argument struct as ctypes, and the launch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Fields = Sequence[tuple[str, str]]


class TensorArg(ctypes.Structure):
    """An address and four strides in elements, outermost dimension first."""

    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_longlong * 4)]


_TYPES: Mapping[str, Any] = {
    "tensor": TensorArg, "i32": ctypes.c_int, "i64": ctypes.c_longlong, "f32": ctypes.c_float,
}  # fmt: skip


def struct_type(fields: Fields) -> type[ctypes.Structure]:
    """The ctypes twin of the kernel's `struct Args`."""
    return type("Args", (ctypes.Structure,), {"_fields_": [(n, _TYPES[t]) for n, t in fields]})


def tensor_arg(address: int, strides: Sequence[int]) -> TensorArg:
    return TensorArg(address, (ctypes.c_longlong * 4)(*[*strides, 0, 0, 0, 0][:4]))


class Library:
    """A built library, opened. `launch` gives the status: 0 or a cudaError_t."""

    def __init__(self, path: Path, fields: Fields) -> None:
        self.fields = tuple(fields)
        self.struct = struct_type(fields)
        library = ctypes.CDLL(str(path))
        library.cubridge_args_size.restype = ctypes.c_longlong
        size = library.cubridge_args_size()
        if size != ctypes.sizeof(self.struct):
            raise RuntimeError(
                f"the library's argument struct has {size} bytes, its signature gives "
                f"{ctypes.sizeof(self.struct)}"
            )
        library.cubridge_error_text.restype = ctypes.c_char_p
        self._error_text = library.cubridge_error_text
        self._launch = library.cubridge_launch
        self._launch.argtypes = [
            ctypes.c_void_p, ctypes.c_longlong, ctypes.c_char_p, ctypes.c_void_p,
        ]  # fmt: skip

    def arguments(self, values: Mapping[str, Any]) -> ctypes.Structure:
        """The struct; tensors are `(address, strides)` pairs or torch tensors."""
        out = self.struct()
        for name, kind in self.fields:
            value = values[name]
            if kind == "tensor":
                if not isinstance(value, tuple):
                    value = (value.data_ptr(), value.stride())
                setattr(out, name, tensor_arg(*value))
            else:
                setattr(out, name, value)
        return out

    def launch(self, arguments: ctypes.Structure, key: str, stream: int | None) -> int:
        size = ctypes.sizeof(arguments)
        return int(self._launch(ctypes.byref(arguments), size, key.encode(), stream))

    def error(self, status: int) -> str:
        return str(self._error_text(status).decode("utf-8", "replace"))
