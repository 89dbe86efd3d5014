"""Whole numbers that a spec counts in a low type, which holds them up to a bound only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from engine.spec.python.modes import DispatchMode
from engine.spec.tracing.trace import Lines

MANY = 16  # distinct whole numbers: positions, not flags, buckets or one large constant
_LARGEST_COUNT = 2**24
_LOW = (torch.bfloat16, torch.float16)


class Counting(DispatchMode):  # type: ignore[no-untyped-call]
    """Notes the lines that put many whole numbers into a low type, and which it rounds there."""

    def __init__(self, lines: Lines) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._lines = lines
        self.counted: set[int] = set()
        self.rounded: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dtype in _LOW and out.numel() > MANY:
            self._note(func._schema.name.removeprefix("aten::"), args, out)
        return out

    def _note(self, name: str, args: tuple[Any, ...], out: torch.Tensor) -> None:
        if name == "_to_copy":
            exact = args[0].detach().double()
        elif name == "arange":
            start, step = (0, 1) if len(args) == 1 else (args[0], args[2] if len(args) > 2 else 1)
            exact = start + step * torch.arange(out.numel(), dtype=torch.float64)
        else:
            return
        line = self._lines.here()
        values = exact.unique()
        whole = (values == values.round()) & (values.abs() < _LARGEST_COUNT)
        if line is None or len(values) <= MANY or not bool(whole.all()):
            return
        self.counted.add(line)
        if not torch.equal(exact, out.double()):
            self.rounded.add(line)
