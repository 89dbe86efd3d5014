"""Fill the argument struct from the spec's inputs: permuted views, sizes, scalars, outputs.

Standard library and torch only: the GPU worker uses it too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.cuir.nodes import Expr
from engine.cuir.parser import parse_expr
from engine.transfer.binding import Binding, TensorField

UNFILLED = -1  # what a workspace holds before a kernel has filled it


@dataclass(frozen=True, slots=True)
class Arguments:
    """Values by field of the argument struct, and the outputs in the spec's own layout."""

    fields: dict[str, Any]
    outputs: dict[str, Tensor]


def fill_arguments(
    binding: Binding,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    output_dtype: torch.dtype,
    lse_dtype: torch.dtype = torch.float32,
) -> Arguments:
    """The arguments for one call.

    `inputs` are the spec's inputs by name in the spec's layout; `sizes` has B, Hq, Hkv, Nq, Nk, D,
    Dv and any other dimension name, and the launcher's constants where there is a workspace.
    Outputs are allocated in the spec's layout and pre-filled with NaN, so that an element that the
    kernel does not write cannot look right.
    """
    fields: dict[str, Any] = {}
    outputs: dict[str, Tensor] = {}
    device = next((v.device for v in inputs.values() if isinstance(v, Tensor)), torch.device("cpu"))
    for item in binding.tensors:
        if item.output:
            dtype = lse_dtype if item.dtype == "f32" else output_dtype
            shape = [_size(d, sizes) for d in item.source_dims]
            tensor = torch.full(shape, math.nan, dtype=dtype, device=device)
            outputs[item.source] = tensor
        else:
            tensor = inputs[item.source]
        fields[item.field] = permuted(tensor, item)
    for size in binding.sizes:
        fields[size.field] = _size(size.size, sizes)
    for scalar in binding.scalars:
        fields[scalar.field] = _value(scalar.value, {**sizes, **inputs})
    if binding.workspace is not None:
        shape = [_size(d, sizes) for d in binding.workspace.dims]
        fields[binding.workspace.field] = torch.full(shape, UNFILLED, dtype=torch.int32)
        fields[binding.workspace.planned] = 0
    return Arguments(fields, outputs)


def permuted(tensor: Tensor, item: TensorField) -> Tensor:
    """A view of `tensor` with the kernel's dimensions; absent ones have size 1 and stride 0."""
    if item.dims == item.source_dims:
        return tensor
    order = [item.source_dims.index(d) for d in item.dims if d in item.source_dims]
    view = tensor.permute(order)
    for position, dim in enumerate(item.dims):
        if dim not in item.source_dims:
            view = view.unsqueeze(position)
    return view


def unpermuted(tensor: Tensor, item: TensorField) -> Tensor:
    """`permuted` back: an output in the kernel's order as the spec's layout."""
    present = [p for p, d in enumerate(item.dims) if d in item.source_dims]
    for position in reversed([p for p in range(len(item.dims)) if p not in present]):
        tensor = tensor.squeeze(position)
    names = [item.dims[p] for p in present]
    return tensor.permute([names.index(d) for d in item.source_dims])


def _size(dim: str, sizes: Mapping[str, int]) -> int:
    """The value of a dimension: a number, a name, or an expression of sizes."""
    return int(_value(parse_expr(dim, "dimension"), sizes))


def _value(expr: Expr, names: Mapping[str, Any]) -> float | int:
    from engine.cuir.scalar import evaluate

    numbers = {k: v for k, v in names.items() if isinstance(v, int | float)}
    numbers |= {k: v.item() for k, v in names.items() if isinstance(v, Tensor) and not v.dim()}
    value = evaluate(expr, numbers, "exact")
    return int(value) if isinstance(value, int) else float(value)
