"""The library of a device: built where there is none, loaded once, its struct's size checked."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import threading
from typing import Any

import torch

from . import build as building
from ._abi import load
from .build import settings

LAYOUT_REFUSED = 12  # the status of a launch whose tensors the TMA cannot take; nothing ran

_loaded: dict[str, Any] = {}  # by arch
_of_device: dict[int, Any] = {}
_lock = threading.Lock()


class LayoutRefused(RuntimeError):
    """The kernel cannot read a tensor that lies as it does."""


def arch_of(capability: tuple[int, int], archs: list[str]) -> str:
    """The arch to build for: the device's own (with its own instructions where the kernel has
    them), else the newest one of the same generation, whose code runs there too.

    RuntimeError where the kernel has none.
    """
    major, minor = capability
    own = f"sm_{major}{minor}"
    for name in (f"{own}a", own):
        if name in archs:
            return name
    older = [
        name
        for name in archs
        if name[3:].isdigit() and int(name[3:-1]) == major and int(name[-1]) <= minor
    ]
    if older:
        return max(older, key=lambda name: int(name[3:]))
    raise RuntimeError(f"the kernel has no code for {own}; it is for {', '.join(archs)}")


def library(device: torch.device, struct: type[ctypes.Structure]) -> Any:
    """The loaded library for `device`. RuntimeError where it cannot be built or does not fit."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    if index in _of_device:
        return _of_device[index]
    arch = arch_of(torch.cuda.get_device_capability(device), list(settings()["archs"]))
    with _lock:
        if arch not in _loaded:
            _loaded[arch] = of_extension() or load(
                str(building.ready(arch) or building.build(arch)), struct
            )
        _of_device[index] = _loaded[arch]
        return _of_device[index]


class Extension:
    """The library's functions where the kernels hub built them into a torch extension."""

    def __init__(self, ops: Any) -> None:
        self.ops = ops

    def cubridge_args_size(self) -> int:
        return int(self.ops.args_size())

    def cubridge_launch(self, args: int, size: int, specialisation: bytes, stream: int) -> int:
        return int(self.ops.launch(args, size, specialisation.decode(), stream))

    def cubridge_error_text(self, status: int) -> bytes:
        return str(self.ops.error_text(status)).encode()


def of_extension() -> Extension | None:
    """The extension that lies beside this module; None in a package that builds its library."""
    name = f"{__package__}._ops"
    if importlib.util.find_spec(name) is None:
        return None
    return Extension(importlib.import_module(name).ops)


def launch(loaded: ctypes.CDLL, args: Any, specialisation: str, stream: int) -> None:
    """Launch on a stream; RuntimeError with CUDA's own text where that fails, a `LayoutRefused`
    where the kernel cannot read a tensor's layout."""
    status = loaded.cubridge_launch(
        ctypes.addressof(args), ctypes.sizeof(args), specialisation.encode(), stream
    )
    if status:
        text = loaded.cubridge_error_text(status).decode()
        kind = LayoutRefused if status == LAYOUT_REFUSED else RuntimeError
        raise kind(f"the launch of {specialisation} failed: {text} (status {status})")
