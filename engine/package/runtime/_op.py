"""The torch operator: the launch, the spec on a CPU, shapes for tracers, and what callers use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from ._args import Filler, passing
from ._checks import DTYPES, Checks
from ._expr import evaluate
from ._library import LayoutRefused, launch, library
from .build import HERE

_NUMBERS = {"f32": "float", "i32": "int", "i64": "int", "bool": "bool"}


class Operator:
    """`torch.ops.cubridge.NAME`, made from the package's data (`info`) and its spec in torch."""

    def __init__(self, info: dict[str, Any], spec: Any) -> None:
        self.info = info
        self.spec = spec
        self.inputs: list[dict[str, Any]] = info["inputs"]
        self.outputs = [row for row in info["binding"]["tensors"] if row["output"]]
        self.checks = Checks(info)
        self.filler = Filler(info["fields"], info["binding"])
        self.name = f"cubridge::{info['op']}"
        self.op = self._define()

    # --- what the package's functions call -------------------------------------------------------

    def call(self, *given: Any) -> dict[str, torch.Tensor]:
        """The operator on the spec's inputs in their order; outputs by name."""
        return self.by_name(self.op(*self.values(given)))

    def call_named(self, values: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The operator on inputs by name; tables that the spec builds may be missing or None."""
        return self.call(*(values.get(i["name"]) for i in self.inputs))

    def values(self, given: tuple[Any, ...]) -> list[Any]:
        """What the operator takes of a caller's inputs. TypeError for what is no tensor, ValueError
        for a sparse one, RuntimeError for one that forward-mode AD follows."""
        values = []
        for item, value in zip(self.inputs, given, strict=True):
            made_later = item["derive"] and value is None
            if item["dims"] and not made_later and not isinstance(value, torch.Tensor):
                raise TypeError(f"{item['name']} must be a tensor, not {type(value).__name__}")
            if isinstance(value, torch.Tensor) and value.layout != torch.strided:
                raise ValueError(f"{item['name']} must be a dense tensor, not {value.layout}")
            is_number = not item["dims"] and isinstance(value, torch.Tensor)
            values.append(value.item() if is_number else value)
        if forward_ad._current_level >= 0:
            self._without_tangents(values)
        return values

    def by_name(self, result: Any) -> dict[str, torch.Tensor]:
        """What the operator returned, by the outputs' names."""
        results = result if isinstance(result, tuple | list) else (result,)
        return {row["source"]: value for row, value in zip(self.outputs, results, strict=True)}

    # --- implementations -------------------------------------------------------------------------

    def fake(self, *given: Any) -> tuple[torch.Tensor, ...]:
        """Shapes and types of the outputs."""
        values = self._named(given)
        sizes = self.checks.sizes(values)
        self.checks.specialisation(values, sizes)
        return tuple(self._empty(values[self.checks.query], sizes).values())

    def forward(self, *given: Any) -> tuple[torch.Tensor, ...]:
        """Run the kernel on the current stream of q's device."""
        values, sizes, names, specialisation = self._checked(given)
        with torch.cuda.device(values[self.checks.query].device):
            return self._run(values, sizes, names, specialisation)

    def _checked(
        self, given: tuple[Any, ...]
    ) -> tuple[dict[str, Any], dict[str, int], dict[str, Any], str]:
        """Inputs by name with the tables that were not given, the sizes, these with the numbers,
        and the specialisation. TypeError or ValueError where the kernel cannot take them, on
        every device."""
        values = self._named(given)
        sizes, specialisation = self.checks.check(values)
        values |= self._tables(values)
        names = self._numbers(values, sizes)
        self.checks.check_layout(values, names)
        return values, sizes, names, specialisation

    def _numbers(self, values: dict[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
        """Sizes and numbers of a call by name."""
        return {**sizes, **{i["name"]: values[i["name"]] for i in self.inputs if not i["dims"]}}

    def _run(
        self, tensors: dict[str, Any], sizes: dict[str, Any], names: dict[str, Any],
        specialisation: str,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        """Launch on the current stream; `tensors` are the inputs and what else the kernel fills."""
        query = tensors[self.checks.query]
        outputs = self._empty(query, sizes)
        between = passing(self.info["binding"].get("scratch", ()), sizes, query)
        args = self.filler.fill({**tensors, **outputs, **between}, names)
        loaded = library(query.device, self.filler.struct)
        try:
            launch(loaded, args, specialisation, torch.cuda.current_stream().cuda_stream)
        except LayoutRefused:
            said = self.checks.refused_layout(tensors)
            if said is None:
                raise
            raise ValueError(said) from None
        return tuple(outputs.values())

    def on_cpu(self, *given: Any) -> tuple[torch.Tensor, ...]:
        """The spec in the kernel's place, for tests without a GPU: what a GPU takes, and no more.

        LSE is NaN where no rule reads the spec, so that nothing says what it is.
        """
        values, sizes, _, _ = self._checked(given)
        if self.info["tma"] and (refused := self.checks.refused_layout(values)) is not None:
            raise ValueError(refused)
        outputs = self._empty(values[self.checks.query], sizes)
        made = self.spec.output(self._named(given), sizes)
        kept, lse = self.spec.rows(values, sizes, made)
        outputs["O"].copy_(made.where(kept, 0.0))
        if "LSE" in outputs:
            outputs["LSE"].copy_(torch.full((), torch.nan) if lse is None else lse)
        return tuple(outputs.values())

    def padded(self, *given: Any) -> torch.Tensor:
        """O where the keys of each batch row are a part of those given; zeros for other rows.

        The last of `given` are the parts, [B, 2]: the first key and the one after the last; -1 for
        one that is no part, -2 under a mask that is not the kernel's. The queries are the last Nq
        places of the keys.
        """
        *plain, parts = given
        values = self._named(tuple(plain))
        sizes = self.checks.sizes(values)
        query = values[self.checks.query]
        out = torch.zeros_like(self._empty(query, sizes)["O"])
        run = self.on_cpu if query.device.type == "cpu" else self.forward
        where = next(n for n, row in enumerate(self.outputs) if row["source"] == "O")
        before = sizes["Nk"] - sizes["Nq"]
        for row, (first, end) in enumerate(parts.tolist()):
            if first == -2:
                raise ValueError("the kernel has the mask of its spec, and another is asked for")
            if not 0 <= first <= end <= sizes["Nk"]:
                raise ValueError(
                    f"the keys of batch row {row} are no run of places: padding is taken at the "
                    "left and at the right alone"
                )
            places = {"B": (row, row + 1), "Nk": (first, end)}
            places["Nq"] = (max(first - before, 0), max(end - before, 0))
            if places["Nq"][0] >= places["Nq"][1]:
                continue
            parted = (
                _part(values[i["name"]], i["dims"], places) if i["dims"] else values[i["name"]]
                for i in self.inputs
            )
            _part(out, self.spec.output_dims, places).copy_(run(*parted)[where])
        return out

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
            padded = f"{self.name}_padded"
            torch.library.define(padded, f"({params}, Tensor parts) -> Tensor")
            torch.library.impl(padded, "CompositeExplicitAutograd", self.padded)
            torch.library.register_fake(padded, self._padded_shape)
            torch.library.register_autograd(padded, self.backward)
            setattr(getattr(operators, name), mark, True)
        self.op_padded = getattr(operators, f"{name}_padded")
        return getattr(operators, name)

    @staticmethod
    def _type(item: dict[str, Any]) -> str:
        """An input's type in the operator's schema; a table that the spec makes may be missing."""
        if not item["dims"]:
            return _NUMBERS.get(item["dtype"], "float")
        return "Tensor?" if item["derive"] else "Tensor"

    def _tables(
        self, values: dict[str, Any], make: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    ) -> dict[str, torch.Tensor]:
        """The tables that were not given, as the spec's own code makes them."""
        missing = [i["name"] for i in self.inputs if i["derive"] and values[i["name"]] is None]
        if not missing:
            return {}
        sources = {i["name"]: values[i["name"]] for i in self.inputs if not i["derive"]}
        made = (make or self.tables_of)(sources)
        return {name: made[name] for name in missing}

    def tables_of(self, sources: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The tables that the spec's code makes of the other inputs, by name."""
        from ._tables import tables

        return tables(self.info, sources)

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

    def _padded_shape(self, *given: Any) -> torch.Tensor:
        values = self._named(given[:-1])
        return self._empty(values[self.checks.query], self.checks.sizes(values))["O"]

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


def _part(tensor: Any, dims: list[str], places: dict[str, tuple[int, int]]) -> Any:
    """The part of a tensor that its dimensions' `places` (first, after the last) name; a view."""
    if tensor is None:
        return None
    for axis, dim in enumerate(dims):
        if dim in places and tensor.shape[axis] != 1:
            first, end = places[dim]
            tensor = tensor.narrow(axis, first, end - first)
    return tensor
