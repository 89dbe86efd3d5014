"""A built kernel: its arguments filled from tensors, and the launch."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.package.runtime._abi import TensorArg, args_type, load

Fields = Sequence[tuple[str, str]]


class Library:
    """A built library, opened. `launch` gives the status: 0 or a cudaError_t."""

    def __init__(self, path: Path, fields: Fields) -> None:
        self.fields = tuple(fields)
        self.struct = args_type(self.fields)
        with contextlib.suppress(OSError):  # a launcher may call the driver by name
            ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        self._loaded = load(str(path), self.struct)

    def arguments(self, values: Mapping[str, Any]) -> ctypes.Structure:
        """The struct; tensors are `(address, strides)` pairs or torch tensors."""
        out = self.struct()
        for name, kind in self.fields:
            value = values[name]
            if kind == "tensor":
                if not isinstance(value, tuple):
                    value = (value.data_ptr(), value.stride())
                address, strides = value
                held = (ctypes.c_longlong * 4)(*[*strides, 0, 0, 0, 0][:4])
                setattr(out, name, TensorArg(address, held))
            else:
                setattr(out, name, value)
        return out

    def launch(self, arguments: ctypes.Structure, key: str, stream: int | None) -> int:
        size = ctypes.sizeof(arguments)
        return int(
            self._loaded.cubridge_launch(ctypes.byref(arguments), size, key.encode(), stream)
        )

    def error(self, status: int) -> str:
        return str(self._loaded.cubridge_error_text(status).decode("utf-8", "replace"))
