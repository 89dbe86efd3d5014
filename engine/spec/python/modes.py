"""The modes that a spec's function runs under, whether it is read or only run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

LOW_FLOATS = frozenset(
    getattr(torch, name)
    for name in ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
    if hasattr(torch, name)
)


def neutral(value: Any) -> Any:
    """A dtype with every float widened to float64; other values unchanged."""
    return torch.float64 if isinstance(value, torch.dtype) and value in LOW_FLOATS else value


def lifted(func: Any, out: Any) -> Any:
    """The result of an op; a tensor made from Python's numbers in a lower type is widened here."""
    if func is torch.ops.aten.lift_fresh.default and out.dtype in LOW_FLOATS:
        return out.to(torch.float64)
    return out


class OnCpu(TorchFunctionMode):
    """Places every tensor on the CPU, whatever device the spec names."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if kwargs.get("device") is not None:
            kwargs["device"] = "cpu"
        if name == "cuda":
            return args[0]
        if name == "to":
            args = tuple("cpu" if _is_device(a) else a for a in args)
        return self.called(func, name, args, kwargs)

    def called(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return func(*args, **kwargs)


def _is_device(value: Any) -> bool:
    if isinstance(value, torch.device):
        return True
    return isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu", "mps", "xpu")


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that nothing compiles, so that the compiler need not be loaded (a second)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Widen(DispatchMode):  # type: ignore[no-untyped-call]
    """Runs every op with floats kept in float64."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*map(neutral, args), **{k: neutral(v) for k, v in (kwargs or {}).items()})
        return lifted(func, out)
