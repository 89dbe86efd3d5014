"""The torch operator: checks, the fake implementation, and the launch."""

from __future__ import annotations

import math
from typing import Any

import torch

from ._args import Filler, axes
from ._expr import evaluate
from ._library import launch, library
from .build import package

INFO = package()
INPUTS: list[dict[str, Any]] = INFO["inputs"]
BINDING: dict[str, Any] = INFO["binding"]
OUTPUTS = [row for row in BINDING["tensors"] if row["output"]]
FILLER = Filler(INFO["fields"], BINDING)
STRUCT = FILLER.struct
QUERY = next(item["name"] for item in INPUTS if item["role"] == "q")
NAME = f"cubridge::{INFO['op']}"

_DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
}
_INTEGERS = (torch.int32, torch.int64)


# What `check` goes by, read once: each input's name, dtype (None: q's) and dimensions, with whether
# they are plain names; each specialisation's dtype, the sizes that it fixes, and its Dv where that
# is not D.
_CHECKS = [
    (
        item["name"],
        None if item["dtype"] == "T" else _DTYPES[item["dtype"]],
        [(dim, dim.isidentifier()) for dim in item["dims"]],
    )
    for item in INPUTS
]
_SIZES = {name.lower(): name for name in ("B", "Hq", "Hkv", "Nq", "Nk", "D", "Dv")}
_SPECIALISATIONS = [
    (
        key,
        _DTYPES[binding.get("T", "f16")],
        [(_SIZES[n.lower()], int(v)) for n, v in binding.items() if n.lower() in _SIZES],
        INFO["value_columns"].get(key)
        if not any(name.lower() == "dv" for name in binding)
        else int(next(value for name, value in binding.items() if name.lower() == "dv")),
    )
    for key, binding in INFO["specialisations"].items()
]
_ROWS = [
    (row["source"], row["dims"][-1], axes(row["source_dims"], row["dims"])[-1])
    for row in BINDING["tensors"]
    if not row["output"] and row["dims"][-1] in ("D", "Dv")
]


def check(values: dict[str, Any]) -> tuple[dict[str, int], str]:
    """The sizes of a call, and the specialisation that serves it.

    TypeError or ValueError says what is wrong with which input. Looks at shapes, types and devices
    only, so that it serves fake tensors too.
    """
    element = values[QUERY].dtype
    device = values[QUERY].device
    sizes: dict[str, Any] = {}
    later = []
    for name, kind, dims in _CHECKS:
        value = values[name]
        if not dims:
            if not isinstance(value, int | float):
                raise TypeError(f"{name} must be a number, not {type(value).__name__}")
            continue
        wanted = element if kind is None else kind
        if value.dtype != wanted and not (value.dtype in _INTEGERS and wanted in _INTEGERS):
            raise TypeError(f"{name} must have dtype {wanted}, not {value.dtype}")
        if value.device != device:
            raise ValueError(f"{name} is on {value.device}, {QUERY} on {device}")
        shape = value.shape
        if len(shape) != len(dims):
            said = ", ".join(dim for dim, _ in dims)
            raise ValueError(f"{name} must be [{said}], not {list(shape)}")
        for position, (dim, is_name) in enumerate(dims):
            if is_name and dim not in sizes:
                sizes[dim] = shape[position]
            elif not is_name or shape[position] != sizes[dim]:
                later.append((name, position, dim))
    sizes.setdefault("Dv", sizes.get("D"))
    sizes.setdefault("Hkv", sizes.get("Hq"))
    for name, position, dim in later:
        expected, found = evaluate(dim, sizes), values[name].shape[position]
        if found != expected:
            said = "" if dim.isdigit() else f"{dim} = "
            raise ValueError(
                f"{name} has size {found} in dimension {position}, not {said}{expected}"
            )
    for text in INFO["constraints"]:
        if not evaluate(text, sizes):
            raise ValueError(f"the spec needs {text}; here {_said(sizes)}")
    if INFO["grouped"] and (sizes["Hkv"] == 0 or sizes["Hq"] % sizes["Hkv"] != 0):
        raise ValueError(f"Hq must be a multiple of Hkv, not {sizes['Hq']} over {sizes['Hkv']}")
    blocks = sizes["B"] * sizes["Hq"] * ((sizes["Nq"] + 63) // 64)
    if blocks >= 2**31 or max(sizes["Nq"], sizes["Nk"]) >= 2**31 - 4096:
        raise ValueError(f"too large for 32-bit block indices: {_said(sizes)}")
    return sizes, _specialisation(element, sizes)


def _specialisation(element: torch.dtype, sizes: dict[str, Any]) -> str:
    """The key of the specialisation for an element type and sizes."""
    for key, wanted, fixed, columns in _SPECIALISATIONS:
        fits = element == wanted and all(sizes[name] == value for name, value in fixed)
        if fits and sizes["Dv"] == (sizes["D"] if columns is None else columns):
            return str(key)
    raise ValueError(
        f"no specialisation for {element}, D {sizes['D']}, Dv {sizes['Dv']}; "
        f"built are {', '.join(INFO['specialisations'])}"
    )


def _said(sizes: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items())


def _numbers(values: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: values[item["name"]] for item in INPUTS if not item["dims"]}


def check_layout(values: dict[str, Any], names: dict[str, Any]) -> None:
    """What the kernel needs besides shapes: contiguous rows, and a scale that it can fold.

    ValueError says what to call.
    """
    for source, dim, place in _ROWS:
        tensor = values[source]
        if place is not None and tensor.shape[place] > 1 and tensor.stride(place) != 1:
            raise ValueError(
                f"{source} has stride {tensor.stride(place)} along {dim}, not 1: "
                f"call {source}.contiguous()"
            )
    for row in BINDING["scalars"]:
        value = float(evaluate(row["value"], names))
        if not math.isfinite(value):
            raise ValueError(f"{row['field']} must be finite, not {value}")
        if row["field"] == "scale" and INFO["softmax"] and value <= 0:
            raise ValueError(f"scale must be positive, not {value}: it is folded into exp2")


def _outputs(like: torch.Tensor, sizes: dict[str, Any]) -> dict[str, torch.Tensor]:
    out = {}
    for row in OUTPUTS:
        dtype = like.dtype if row["dtype"] == "T" else _DTYPES[row["dtype"]]
        shape = [evaluate(dim, sizes) for dim in row["source_dims"]]
        out[row["source"]] = torch.empty(shape, dtype=dtype, device=like.device)
    return out


def _named(values: tuple[Any, ...]) -> dict[str, Any]:
    return {item["name"]: value for item, value in zip(INPUTS, values, strict=True)}


def fake(*given: Any) -> tuple[torch.Tensor, ...]:
    """Shapes and types of the outputs."""
    values = _named(given)
    sizes, _ = check(values)
    return tuple(_outputs(values[QUERY], sizes).values())


def forward(*given: Any) -> tuple[torch.Tensor, ...]:
    """Run the kernel on the current stream of q's device."""
    values = _named(given)
    sizes, specialisation = check(values)
    names = {**sizes, **_numbers(values)}
    check_layout(values, names)
    query = values[QUERY]
    outputs = _outputs(query, sizes)
    for item in INPUTS:
        # The kernel reads 32-bit integers.
        if item["dims"] and values[item["name"]].dtype == torch.int64:
            values[item["name"]] = values[item["name"]].to(torch.int32)
    args = FILLER.fill({**values, **outputs}, names)
    with torch.cuda.device(query.device):
        loaded = library(query.device, STRUCT)
        launch(loaded, args, specialisation, torch.cuda.current_stream().cuda_stream)
    return tuple(outputs.values())


def on_cpu(*given: Any) -> tuple[torch.Tensor, ...]:
    """There is no CPU implementation: say what is wrong first, then that."""
    check(_named(given))
    raise RuntimeError(f"{NAME} needs CUDA tensors; the inputs are on the CPU")


def _backward(ctx: Any, *grads: Any) -> Any:
    raise RuntimeError(f"{NAME} is forward only: call it under torch.no_grad(), or detach inputs")


def _define() -> Any:
    """Define the operator once per process, also if the package is imported under two names."""
    space, name = NAME.split("::")
    if not hasattr(getattr(torch.ops, space), name):
        kinds = {"f32": "float", "i32": "int", "i64": "int", "bool": "bool"}
        params = [
            f"{'Tensor' if i['dims'] else kinds.get(i['dtype'], 'float')} {i['name']}"
            for i in INPUTS
        ]
        results = ", ".join(["Tensor"] * len(OUTPUTS))
        torch.library.define(NAME, f"({', '.join(params)}) -> ({results})")
        torch.library.impl(NAME, "CUDA", _one(forward))
        torch.library.impl(NAME, "CPU", _one(on_cpu))
        torch.library.register_fake(NAME, _one(fake))
        torch.library.register_autograd(NAME, _backward)
    return getattr(getattr(torch.ops, space), name)


def _one(function: Any) -> Any:
    """An operator with one output returns it bare."""
    if len(OUTPUTS) > 1:
        return function
    return lambda *given: function(*given)[0]


OP = _define()


def call_named(values: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The operator on inputs by name, where tables that the spec builds may be missing or None."""
    given = {i["name"]: values.get(i["name"]) for i in INPUTS}
    missing = [i["name"] for i in INPUTS if i["derive"] and given[i["name"]] is None]
    if missing:
        from ._spec import tables

        made = tables({i["name"]: values[i["name"]] for i in INPUTS if not i["derive"]})
        given |= {name: made[name] for name in missing}
    return call(*given.values())


def call(*given: Any) -> dict[str, torch.Tensor]:
    """The operator on tensors and numbers in the order of the spec's inputs; outputs by name."""
    values = []
    for item, value in zip(INPUTS, given, strict=True):
        if item["dims"] and not isinstance(value, torch.Tensor):
            raise TypeError(f"{item['name']} must be a tensor, not {type(value).__name__}")
        is_number = not item["dims"] and isinstance(value, torch.Tensor)
        values.append(value.item() if is_number else value)
    result = OP(*values)
    results = result if isinstance(result, tuple | list) else (result,)
    return {row["source"]: value for row, value in zip(OUTPUTS, results, strict=True)}
