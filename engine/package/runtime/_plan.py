"""Plans: the tile lists of a mask that depends on data, kept by the caller from call to call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ._expr import evaluate

SLOTS = 16  # tiles of a block of rows whose mask is kept as bits


@dataclass(slots=True)
class Plan:
    """What a call found out about a mask, for later calls with the same mask.

    A new plan is empty. The first call that is given it fills it; later calls must have the same
    sizes and the very inputs that the mask reads, unchanged: anything else is a ValueError. q, k
    and v may be others. `Plan` objects are not for several threads at once.
    """

    _made_for: dict[str, Any] = field(default_factory=dict)
    _workspace: torch.Tensor | None = None
    _ready: torch.cuda.Event | None = None

    @property
    def filled(self) -> bool:
        """Whether a call has filled it."""
        return self._workspace is not None

    def check(self, call: Mapping[str, Any]) -> None:
        """ValueError where `call` is not what the plan was made for."""
        for name, value in call.items():
            if self._made_for.get(name) != value:
                raise ValueError(
                    f"the plan was made for another {name}: use a new Plan() for this call"
                )

    def fill(self, call: Mapping[str, Any], workspace: torch.Tensor) -> None:
        """Keep what a launch on the current stream writes to `workspace`."""
        self._made_for, self._workspace = dict(call), workspace
        self._ready = torch.cuda.current_stream(workspace.device).record_event()

    def take(self, call: Mapping[str, Any]) -> torch.Tensor:
        """The workspace, ready for a launch on the current stream.

        While a CUDA graph is captured nothing is waited for: what fills a plan comes before.
        """
        self.check(call)
        assert self._workspace is not None and self._ready is not None
        if torch.cuda.is_current_stream_capturing():
            return self._workspace
        stream = torch.cuda.current_stream(self._workspace.device)
        stream.wait_event(self._ready)
        self._workspace.record_stream(stream)
        return self._workspace


class Workspaces:
    """What the kernel fills for itself: its size for a call, and what a plan is made for."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.space: dict[str, Any] | None = info["binding"].get("workspace")
        self.constants: dict[str, dict[str, dict[str, int]]] = info["constants"]
        self.masking: list[str] = info["mask_inputs"]

    def new(
        self, sizes: dict[str, Any], arch: str, specialisation: str, device: torch.device
    ) -> torch.Tensor:
        """An uninitialised workspace for a call."""
        assert self.space is not None
        names = {**self.constants[arch][specialisation], **sizes, self.space["slots"]: SLOTS}
        shape = [evaluate(dim, names) for dim in self.space["dims"]]
        return torch.empty(shape, dtype=torch.int32, device=device)

    def call(
        self, values: dict[str, Any], sizes: dict[str, Any], specialisation: str
    ) -> dict[str, Any]:
        """What a plan depends on, by the words of an error."""
        out: dict[str, Any] = dict(sizes)
        out["dtype or head size"] = specialisation
        for name in self.masking:
            out[name] = identity(values[name])
        return out


def identity(value: Any) -> Any:
    """A number itself; of a tensor where it lies and how often it was changed in place."""
    if not isinstance(value, torch.Tensor):
        return value
    version = None if value.is_inference() else value._version
    place = (str(value.device), value.data_ptr(), tuple(value.shape), value.stride())
    return (*place, value.dtype, version)
