"""The torch operator: the fake implementation, the launch, and what callers use."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from ._args import Filler
from ._checks import DTYPES, Checks
from ._expr import evaluate
from ._library import LayoutRefused, arch_of, launch, library
from ._plan import SLOTS, Plan, Workspaces
from .build import HERE, package

_NUMBERS = {"f32": "float", "i32": "int", "i64": "int", "bool": "bool"}


@cache
def operator() -> Operator:
    """This package's operator."""
    return Operator(package())


class Operator:
    """`torch.ops.cubridge.NAME`, made from package.json (`info`)."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.inputs: list[dict[str, Any]] = info["inputs"]
        self.outputs = [row for row in info["binding"]["tensors"] if row["output"]]
        self.checks = Checks(info)
        self.filler = Filler(info["fields"], info["binding"])
        self.workspaces = Workspaces(info)
        self.archs = list(info["archs"])
        self.name = f"cubridge::{info['op']}"
        self.op = self._define()

    # --- what the package's functions call -------------------------------------------------------

    def call(self, *given: Any, plan: Plan | None = None) -> dict[str, torch.Tensor]:
        """The operator on the spec's inputs in their order; outputs by name.

        With a plan the kernel is launched here and now, and no tracer sees it.
        """
        values = []
        for item, value in zip(self.inputs, given, strict=True):
            made_later = item["derive"] and value is None
            if item["dims"] and not made_later and not isinstance(value, torch.Tensor):
                raise TypeError(f"{item['name']} must be a tensor, not {type(value).__name__}")
            is_number = not item["dims"] and isinstance(value, torch.Tensor)
            values.append(value.item() if is_number else value)
        if forward_ad._current_level >= 0:
            self._without_tangents(values)
        result = self.op(*values) if plan is None else self.planned(plan, *values)
        results = result if isinstance(result, tuple | list) else (result,)
        return {row["source"]: value for row, value in zip(self.outputs, results, strict=True)}

    def call_named(
        self, values: dict[str, Any], plan: Plan | None = None
    ) -> dict[str, torch.Tensor]:
        """The operator on inputs by name; tables that the spec builds may be missing or None."""
        return self.call(*(values.get(i["name"]) for i in self.inputs), plan=plan)

    # --- implementations -------------------------------------------------------------------------

    def fake(self, *given: Any) -> tuple[torch.Tensor, ...]:
        """Shapes and types of the outputs."""
        values = self._named(given)
        sizes = self.checks.sizes(values)
        self.checks.specialisation(values, sizes)
        return tuple(self._empty(values[self.checks.query], sizes).values())

    def planned(self, plan: Plan, *given: Any) -> tuple[torch.Tensor, ...]:
        """Run the kernel with a plan, which an empty one becomes by it."""
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        if any(isinstance(t, FakeTensor) for t in tensors):
            raise RuntimeError("a call with a plan is for running: leave the plan out to trace it")
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            self.backward(None)
        if any(t.device.type != "cuda" for t in tensors):
            self.on_cpu(*given)
        return self.forward(*given, plan=plan)

    def forward(self, *given: Any, plan: Plan | None = None) -> tuple[torch.Tensor, ...]:
        """Run the kernel on the current stream of q's device."""
        values = self._named(given)
        sizes, specialisation = self.checks.check(values)
        values |= self._tables(values, plan)
        names = {**sizes, **{i["name"]: values[i["name"]] for i in self.inputs if not i["dims"]}}
        self.checks.check_layout(values, names)
        query = values[self.checks.query]
        outputs = self._empty(query, sizes)
        made_for = {} if plan is None else self.workspaces.call(values, sizes, specialisation)
        with torch.cuda.device(query.device):
            space = self.workspaces.space
            if space is not None:
                held = plan is not None and plan.filled
                if plan is not None and held:
                    workspace = plan.take(made_for)
                else:
                    if plan is not None and torch.cuda.is_current_stream_capturing():
                        raise RuntimeError("fill the plan by a call before the graph is captured")
                    arch = arch_of(torch.cuda.get_device_capability(query.device), self.archs)
                    workspace = self.workspaces.new(sizes, arch, specialisation, query.device)
                outputs_and_more = {**outputs, space["field"]: workspace}
                names |= {space["planned"]: int(held), space["slots"]: SLOTS}
            else:
                outputs_and_more = outputs
            outputs_and_more = outputs_and_more | self.workspaces.passing(sizes, query)
            args = self.filler.fill({**values, **outputs_and_more}, names)
            loaded = library(query.device, self.filler.struct)
            try:
                launch(loaded, args, specialisation, torch.cuda.current_stream().cuda_stream)
            except LayoutRefused:
                said = self.checks.refused_layout(values)
                if said is None:
                    raise
                raise ValueError(said) from None
            if space is not None and plan is not None:
                if held:
                    plan.used()
                else:
                    plan.fill(made_for, workspace)
        return tuple(outputs.values())

    def on_cpu(self, *given: Any) -> tuple[torch.Tensor, ...]:
        """There is no CPU implementation: say what is wrong first, then that."""
        self.checks.check(self._named(given))
        raise RuntimeError(f"{self.name} needs CUDA tensors; the inputs are on the CPU")

    def backward(self, ctx: Any, *grads: Any) -> Any:
        """There is none."""
        raise RuntimeError(
            f"{self.name} is forward only: call it under torch.no_grad(), or detach inputs"
        )

    # --- helpers ---------------------------------------------------------------------------------

    def _define(self) -> Any:
        """Define the operator, once per process also if the package is imported twice.

        A copy of the package in another folder gets an operator of its own, which runs its own
        code: the first one imported has the plain name.
        """
        space, name = self.name.split("::")
        folder = hashlib.sha256(str(HERE).encode()).hexdigest()[:8]
        mark = f"_defined_in_{folder}"
        operators = getattr(torch.ops, space)
        if hasattr(operators, name) and not hasattr(getattr(operators, name), mark):
            name = f"{name}_{folder}"
            self.name = f"{space}::{name}"
        if not hasattr(operators, name):
            params = ", ".join(f"{self._type(i)} {i['name']}" for i in self.inputs)
            results = ", ".join(["Tensor"] * len(self.outputs))
            torch.library.define(self.name, f"({params}) -> ({results})")
            torch.library.impl(self.name, "CUDA", self._returning(self.forward))
            torch.library.impl(self.name, "CPU", self._returning(self.on_cpu))
            torch.library.register_fake(self.name, self._returning(self.fake))
            torch.library.register_autograd(self.name, self.backward)
            setattr(getattr(operators, name), mark, True)
        return getattr(operators, name)

    @staticmethod
    def _type(item: dict[str, Any]) -> str:
        """An input's type in the operator's schema; a table that the spec makes may be missing."""
        if not item["dims"]:
            return _NUMBERS.get(item["dtype"], "float")
        return "Tensor?" if item["derive"] else "Tensor"

    def _tables(self, values: dict[str, Any], plan: Plan | None) -> dict[str, torch.Tensor]:
        """The tables that were not given, as the spec's own code makes them."""
        missing = [i["name"] for i in self.inputs if i["derive"] and values[i["name"]] is None]
        if not missing:
            return {}
        from ._spec import tables

        sources = {i["name"]: values[i["name"]] for i in self.inputs if not i["derive"]}
        if plan is None or not set(missing) & set(self.workspaces.masking):
            made = tables(sources)
        else:
            shaped = [i["name"] for i in self.inputs if i["role"] != "extra"]
            made = plan.tables(sources, shaped, tables)
        return {name: made[name] for name in missing}

    def _without_tangents(self, values: list[Any]) -> None:
        """RuntimeError for a dual tensor: its tangent would be lost."""
        for item, value in zip(self.inputs, values, strict=True):
            if not isinstance(value, torch.Tensor):
                continue
            _, tangent = forward_ad.unpack_dual(value)  # type: ignore[no-untyped-call]
            if tangent is not None:
                raise RuntimeError(
                    f"{self.name} has no derivative, and {item['name']} carries a tangent: "
                    "take it outside of forward-mode AD"
                )

    def _returning(self, function: Any) -> Any:
        """An operator with one output returns it bare."""
        if len(self.outputs) > 1:
            return lambda *given: function(*given)
        return lambda *given: function(*given)[0]

    def _named(self, values: tuple[Any, ...]) -> dict[str, Any]:
        return {item["name"]: value for item, value in zip(self.inputs, values, strict=True)}

    def _empty(self, like: torch.Tensor, sizes: dict[str, Any]) -> dict[str, torch.Tensor]:
        out = {}
        for row in self.outputs:
            dtype = like.dtype if row["dtype"] == "T" else DTYPES[row["dtype"]]
            shape = [evaluate(dim, sizes) for dim in row["source_dims"]]
            out[row["source"]] = torch.empty(shape, dtype=dtype, device=like.device)
        return out
