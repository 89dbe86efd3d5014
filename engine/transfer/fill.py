"""Fill the argument struct from the spec's inputs: permuted views, sizes, scalars, outputs.

Standard library and torch only: the GPU worker uses it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.cuir.nodes import Expr
from engine.cuir.parser import parse_expr
from engine.transfer.binding import SLOTS, Binding, TensorField

UNFILLED = -1  # what a workspace holds before a kernel has filled it


@dataclass(frozen=True, slots=True)
class Arguments:
    """Values by field of the argument struct, and the outputs in the spec's own layout."""

    fields: dict[str, Any]
    outputs: dict[str, Tensor]


def filled(
    binding: Binding,
    placed: Callable[[TensorField], Tensor],
    sizes: Mapping[str, int],
    inputs: Mapping[str, Any],
) -> dict[str, Any]:
    """Values by field: what `placed` gives of each tensor as the kernel views it, sizes, and
    scalars of sizes and of the inputs without dimensions."""
    fields: dict[str, Any] = {t.field: permuted(placed(t), t) for t in binding.tensors}
    fields |= {size.field: size_of(size.size, sizes) for size in binding.sizes}
    names = {**sizes, **inputs}
    return fields | {scalar.field: _value(scalar.value, names) for scalar in binding.scalars}


def fill_arguments(
    binding: Binding,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    output_dtype: torch.dtype,
    lse_dtype: torch.dtype = torch.float32,
    slots: int = SLOTS,
) -> Arguments:
    """The arguments for one call.

    `inputs` are the spec's inputs by name in the spec's layout; `sizes` has B, Hq, Hkv, Nq, Nk, D,
    Dv and any other dimension name, and the launcher's constants where there is a workspace.
    Outputs are allocated in the spec's layout and pre-filled with NaN, so that an element that the
    kernel does not write cannot look right.
    """
    outputs: dict[str, Tensor] = {}
    device = next((v.device for v in inputs.values() if isinstance(v, Tensor)), torch.device("cpu"))

    def placed(item: TensorField) -> Tensor:
        if not item.output:
            held: Tensor = inputs[item.source]
            return held
        dtype = lse_dtype if item.dtype == "f32" else output_dtype
        shape = [size_of(d, sizes) for d in item.source_dims]
        outputs[item.source] = torch.full(shape, math.nan, dtype=dtype, device=device)
        return outputs[item.source]

    fields = filled(binding, placed, sizes, inputs)
    space = binding.workspace
    if space is not None:
        shape = [size_of(d, {**sizes, space.slots: slots}) for d in space.dims]
        fields[space.field] = torch.full(shape, UNFILLED, dtype=torch.int32, device=device)
        fields |= {space.planned: 0, space.slots: slots}
    for made in binding.scratch:
        shape = [size_of(d, sizes) for d in made.dims]
        dtype = lse_dtype if made.dtype == "f32" else output_dtype
        fields[made.field] = torch.full(shape, math.nan, dtype=dtype, device=device)
    return Arguments(fields, outputs)


def places(source: Sequence[str], dims: Sequence[str]) -> list[int | None]:
    """For each dimension in `dims` its place in `source`, or None where it has none there.

    A name may stand twice ("1 1 Nq Nk", "N N"): each place is used once, in order.
    """
    left = list(enumerate(source))
    out: list[int | None] = []
    for dim in dims:
        found = next((pair for pair in left if pair[1] == dim), None)
        if found is not None:
            left.remove(found)
        out.append(None if found is None else found[0])
    return out


def permuted(tensor: Tensor, item: TensorField) -> Tensor:
    """A view of `tensor` with the kernel's dimensions; absent ones have size 1 and stride 0."""
    found = places(item.source_dims, item.dims)
    view = tensor.permute([p for p in found if p is not None])
    for position, place in enumerate(found):
        if place is None:
            shape, stride = list(view.shape), list(view.stride())
            shape.insert(position, 1)
            stride.insert(position, 0)
            view = view.as_strided(shape, stride, view.storage_offset())
    return view


def unpermuted(tensor: Tensor, item: TensorField) -> Tensor:
    """`permuted` back: an output in the kernel's order as the spec's layout."""
    found = places(item.source_dims, item.dims)
    for position in reversed([n for n, place in enumerate(found) if place is None]):
        tensor = tensor.squeeze(position)
    order = [place for place in found if place is not None]
    return tensor.permute([order.index(n) for n in range(len(order))])


def size_of(dim: str, sizes: Mapping[str, int]) -> int:
    """The value of a dimension: a number, a name, or an expression of sizes."""
    return int(_value(parse_expr(dim, "dimension"), sizes))


def _value(expr: Expr, names: Mapping[str, Any]) -> float | int:
    from engine.cuir.scalar import evaluate

    numbers = {k: v for k, v in names.items() if isinstance(v, int | float)}
    numbers |= {k: v.item() for k, v in names.items() if isinstance(v, Tensor) and not v.dim()}
    value = evaluate(expr, numbers, "exact")
    return int(value) if isinstance(value, int) else float(value)
