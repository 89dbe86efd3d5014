"""Plans: the tile lists of a mask that depends on data, kept by the caller from call to call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ._expr import evaluate
from ._library import arch_of
from ._op import Operator
from .build import settings

SLOTS = 16  # tiles of a block of rows whose mask is kept as bits


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """An input as a plan was filled with it.

    The tensor itself is kept, so that no other can come to lie at its address. `version` counts
    the changes in place that PyTorch sees; `place` is its address, sizes, strides and dtype, and
    empty for a number.
    """

    value: Any
    version: int
    place: tuple[Any, ...]

    @classmethod
    def of(cls, value: Any) -> Held:
        """`value` as it is now."""
        if isinstance(value, torch.Tensor):
            return cls(value, value._version, _place(value))
        return cls(value, 0, ())

    def still(self, value: Any) -> bool:
        """Whether `value` is the very input, unchanged."""
        held = self.value
        if not self.place:  # a number; a tensor compared with one is no bool
            return (held == value) is True
        return held is value and held._version == self.version and _place(held) == self.place


def countable(name: str, value: Any) -> Any:
    """`value`. ValueError for a tensor whose changes could not be seen."""
    if isinstance(value, torch.Tensor) and value.is_inference():
        raise ValueError(
            f"a plan cannot hold {name}, an inference tensor: PyTorch does not count its changes "
            f"in place. Make it outside of torch.inference_mode(), or pass {name}.clone() made "
            "inside `with torch.inference_mode(False)`"
        )
    return value


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


@dataclass(slots=True, eq=False)
class Plan:
    """What a call found out about a mask, for later calls with the same mask.

    A new plan is empty. The first call that is given it fills it; later calls must be of the same
    package and have the same sizes and the very tensors that the mask reads (the same objects,
    which the plan keeps alive), unchanged: anything else is a ValueError. q, k and v may be others.
    A change that PyTorch does not count (through `.data`, by another library's kernel, by the
    replay of a CUDA graph) cannot be seen: after one, take a new plan.

    Two calls with one plan never run at the same time, since each counts in the plan's memory which
    pieces of work are taken: one on another stream waits for the one before. A CUDA graph that
    holds a planned call uses the plan's memory at each replay, which nothing here can see: keep the
    plan as long, and order a replay after other uses of the plan and before them. `Plan` objects
    are not for several threads at once.
    """

    _made_for: dict[str, Held] = field(default_factory=dict)
    _workspace: torch.Tensor | None = None
    _ready: torch.cuda.Event | None = None
    _from: dict[str, Held] = field(default_factory=dict)  # what the tables were made from
    _tables: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def filled(self) -> bool:
        """Whether a call has filled it."""
        return self._workspace is not None

    def check(self, call: Mapping[str, Any]) -> None:
        """ValueError where `call` is not what the plan was made for."""
        for name, value in call.items():
            held = self._made_for.get(name)
            if held is not None and held.still(value):
                continue
            said = f"the plan was made for another {name}"
            if held is not None and isinstance(held.value, torch.Tensor):
                said = f"{said} (equal values in another tensor do not count)"
                if held.value is value:
                    said = f"{name} has changed since the plan was made"
            raise ValueError(f"{said}: use a new Plan() for this call")

    def tables(
        self,
        inputs: Mapping[str, Any],
        shaped: Collection[str],
        make: Callable[[dict[str, Any]], dict[str, torch.Tensor]],
    ) -> dict[str, torch.Tensor]:
        """The tables that the spec makes of `inputs`: those of the call that filled the plan where
        the inputs are the same, else new ones. Of the inputs `shaped` only the shapes count."""
        now = {
            name: tuple(value.shape) if name in shaped else countable(name, value)
            for name, value in inputs.items()
        }
        if self._tables and all(self._from[name].still(value) for name, value in now.items()):
            return self._tables
        made = make(dict(inputs))
        if not self.filled:
            self._from = {name: Held.of(value) for name, value in now.items()}
            self._tables = made
        return made

    def fill(self, call: Mapping[str, Any], workspace: torch.Tensor) -> None:
        """Keep what a launch on the current stream writes to `workspace`."""
        self._made_for = {name: Held.of(value) for name, value in call.items()}
        self._workspace = workspace
        self.used()

    def used(self) -> None:
        """A launch on the current stream uses the workspace: the next one waits for it."""
        assert self._workspace is not None
        if not torch.cuda.is_current_stream_capturing():
            self._ready = torch.cuda.current_stream(self._workspace.device).record_event()

    def take(self, call: Mapping[str, Any]) -> torch.Tensor:
        """The workspace, for a launch on the current stream that waits for the one before.

        While a CUDA graph is captured nothing is waited for: what fills a plan comes before.
        """
        self.check(call)
        assert self._workspace is not None and self._ready is not None
        if torch.cuda.is_current_stream_capturing():
            return self._workspace
        stream = torch.cuda.current_stream(self._workspace.device)
        stream.wait_event(self._ready)
        # All that the plan alone keeps: freed with it, none of it is given away under the launch.
        for tensor in (self._workspace, *self._tables.values()):
            tensor.record_stream(stream)
        return self._workspace


class PlannedOperator(Operator):
    """An operator whose kernel lists tiles, in a workspace of each call or of a plan."""

    def __init__(self, info: dict[str, Any], spec: Any) -> None:
        self.space: dict[str, Any] = info["binding"]["workspace"]
        self.archs = list(settings()["archs"])
        super().__init__(info, spec)

    def call(self, *given: Any, plan: Plan | None = None) -> dict[str, torch.Tensor]:
        """As `Operator.call`. With a plan the kernel is launched here and now, and no tracer sees
        it."""
        if plan is None:
            return super().call(*given)
        return self.by_name(self.planned(plan, *self.values(given)))

    def call_named(
        self, values: dict[str, Any], plan: Plan | None = None
    ) -> dict[str, torch.Tensor]:
        return self.call(*(values.get(i["name"]) for i in self.inputs), plan=plan)

    def planned(self, plan: Plan, *given: Any) -> tuple[torch.Tensor, ...]:
        """Run the kernel with a plan, which an empty one becomes by it."""
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        if any(isinstance(t, FakeTensor) for t in tensors):
            raise RuntimeError("a call with a plan is for running: leave the plan out to trace it")
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            self.backward(None)
        if any(t.device.type != "cuda" for t in tensors):
            raise RuntimeError("a plan needs CUDA tensors; the inputs are on the CPU")
        return self.forward(*given, plan=plan)

    def forward(self, *given: Any, plan: Plan | None = None) -> tuple[torch.Tensor, ...]:
        """Run the kernel on the current stream of q's device."""
        values = self._named(given)
        sizes, specialisation = self.checks.check(values)
        values |= self._tables(values, self._kept(plan, values))
        names = self._numbers(values, sizes)
        self.checks.check_layout(values, names)
        made_for = {} if plan is None else self._made_for(values, sizes, specialisation)
        device = values[self.checks.query].device
        with torch.cuda.device(device):
            held = plan is not None and plan.filled
            if plan is not None and held:
                workspace = plan.take(made_for)
            else:
                if plan is not None and torch.cuda.is_current_stream_capturing():
                    raise RuntimeError("fill the plan by a call before the graph is captured")
                workspace = self._workspace(sizes, specialisation, device)
            names |= {self.space["planned"]: int(held), self.space["slots"]: SLOTS}
            values |= {self.space["field"]: workspace}
            results = self._run(values, sizes, names, specialisation)
            if plan is not None and held:
                plan.used()
            elif plan is not None:
                plan.fill(made_for, workspace)
        return results

    def _kept(self, plan: Plan | None, values: dict[str, Any]) -> Any:
        """What makes the tables of a call whose plan may keep them; None: nothing of the kind."""
        missing = {i["name"] for i in self.inputs if i["derive"] and values[i["name"]] is None}
        if plan is None or not missing & set(self.info["mask_inputs"]):
            return None
        shaped = [i["name"] for i in self.inputs if i["role"] != "extra"]
        return lambda sources: plan.tables(sources, shaped, self.tables_of)

    def _workspace(
        self, sizes: dict[str, Any], specialisation: str, device: torch.device
    ) -> torch.Tensor:
        """An uninitialised workspace for a call."""
        arch = arch_of(torch.cuda.get_device_capability(device), self.archs)
        constants = self.info["constants"][arch][specialisation]
        names = {**constants, **sizes, self.space["slots"]: SLOTS}
        shape = [evaluate(dim, names) for dim in self.space["dims"]]
        return torch.empty(shape, dtype=torch.int32, device=device)

    def _made_for(
        self, values: dict[str, Any], sizes: dict[str, Any], specialisation: str
    ) -> dict[str, Any]:
        """What a plan depends on, by the words of an error. ValueError where an input is one whose
        changes cannot be seen."""
        out: dict[str, Any] = {"package": self.info["op"], **sizes}
        out["dtype or head size"] = specialisation
        for name in self.info["mask_inputs"]:
            out[name] = countable(name, values[name])
        return out
