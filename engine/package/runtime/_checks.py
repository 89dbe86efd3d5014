"""What a call must satisfy before the kernel may run."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import eq
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ._args import axes
from ._expr import evaluate

DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "i32": torch.int32,
    "i64": torch.int32,  # kernels read integers of 32 bits, whatever the spec declares
    "bool": torch.bool,
}
_ALIGNED = 16  # bytes: of what the TMA reads, the start and every stride but the last
_SIZES = {name.lower(): name for name in ("B", "Hq", "Hkv", "Nq", "Nk", "D", "Dv")}


class Checks:
    """The checks of one package, from its data (`info`)."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info
        self.query: str = next(i["name"] for i in info["inputs"] if i["role"] == "q")
        # Each input's name, dtype (None: q's), and dimensions with whether they are plain names.
        # Integers that only the spec's own code reads, for a table, may have 64 bits.
        self.inputs = [
            (
                item["name"],
                None if item["dtype"] == "T" else DTYPES[item["dtype"]],
                [(dim, dim.isidentifier()) for dim in item["dims"]],
            )
            for item in info["inputs"]
        ]
        read = {row["source"] for row in info["binding"]["tensors"]}
        self.of_spec = {
            item["name"]
            for item in info["inputs"]
            if item["dtype"] in ("i32", "i64") and item["name"] not in read
        }
        self.specialisations = [
            self._fixed(key, binding) for key, binding in info["specialisations"].items()
        ]
        # Sizes that no input has as such, as where q is given in parts.
        equal = (text.split(" == ") for text in info["constraints"])
        self.numbers = {e[0]: int(e[1]) for e in equal if len(e) == 2 and e[1].isdigit()}
        # Of q, k and v where the kernel's dimensions are, the contiguous one last.
        self.tiles = [
            (row["source"], row["dims"], axes(row["source_dims"], row["dims"]))
            for row in info["binding"]["tensors"]
            if not row["output"] and row["dims"][-1] in ("D", "Dv")
        ]
        self.rows = [(source, dims[-1], places[-1]) for source, dims, places in self.tiles]

    def _fixed(
        self, key: str, binding: dict[str, str]
    ) -> tuple[str, torch.dtype, list[tuple[str, int]]]:
        """A specialisation's key, dtype, and the sizes that it is for; Dv is D (written -1) unless
        the data says otherwise."""
        sizes = {_SIZES[n.lower()]: int(v) for n, v in binding.items() if n.lower() in _SIZES}
        sizes.setdefault("Dv", self.info["value_columns"].get(key, -1))
        return key, DTYPES[binding.get("T", "f16")], list(sizes.items())

    def check(self, values: dict[str, Any]) -> tuple[dict[str, int], str]:
        """The sizes of a call, and the specialisation that serves it.

        TypeError or ValueError says what is wrong with which input.
        """
        sizes = self.sizes(values)
        return sizes, self.specialisation(values, sizes)

    def sizes(self, values: dict[str, Any]) -> dict[str, int]:
        """The sizes of a call; raises as `check`.

        Looks at shapes, types and devices only, so that it serves fake tensors too. Of sizes that
        are unknown until the graph runs nothing is asked: the call itself checks them then.
        """
        element = values[self.query].dtype
        device = values[self.query].device
        sizes: dict[str, Any] = {}
        later = []
        for name, kind, dims in self.inputs:
            value = values[name]
            if not dims:
                if not isinstance(value, int | float):
                    raise TypeError(f"{name} must be a number, not {type(value).__name__}")
                continue
            if value is None:
                continue  # a table that the spec will make
            wanted = element if kind is None else kind
            if value.dtype != wanted and (value.dtype, name in self.of_spec) != (torch.int64, True):
                raise TypeError(_other_dtype(name, value.dtype, wanted))
            if value.device != device:
                raise ValueError(f"{name} is on {value.device}, {self.query} on {device}")
            shape = value.shape
            if len(shape) != len(dims):
                said = ", ".join(dim for dim, _ in dims)
                raise ValueError(f"{name} must be [{said}], not {list(shape)}")
            for position, (dim, is_name) in enumerate(dims):
                if is_name and dim not in sizes:
                    sizes[dim] = shape[position]
                elif not is_name or not _may(eq, shape[position], sizes[dim]):
                    later.append((name, position, dim))
        for name, size in self.numbers.items():
            sizes.setdefault(name, size)
        sizes.setdefault("Dv", sizes.get("D"))
        sizes.setdefault("Hkv", sizes.get("Hq"))
        for name, position, dim in later:
            expected, found = evaluate(dim, sizes), values[name].shape[position]
            if not _may(eq, found, expected):
                said = "" if dim.isdigit() else f"{dim} = "
                raise ValueError(
                    f"{name} has size {found} in dimension {position}, not {said}{expected}"
                )
        for text in self.info["constraints"]:
            if not _may(evaluate, text, sizes):
                raise ValueError(f"the spec needs {text}; here {_said(sizes)}")
        if self.info["grouped"] and not _may(
            lambda: sizes["Hkv"] != 0 and sizes["Hq"] % sizes["Hkv"] == 0
        ):
            raise ValueError(f"Hq must be a multiple of Hkv, not {sizes['Hq']} over {sizes['Hkv']}")
        # Nothing is asked of sizes that a graph leaves open: it would become a limit of theirs.
        if all(isinstance(size, int) for size in sizes.values()) and _too_large(sizes):
            raise ValueError(f"too large for 32-bit block indices: {_said(sizes)}")
        return sizes

    def specialisation(self, values: dict[str, Any], sizes: dict[str, Any]) -> str:
        """The key of the specialisation for the element type and the sizes of a call."""
        element = values[self.query].dtype

        def serves(fixed: list[tuple[str, int]]) -> bool:
            return all(sizes[n] == (sizes["D"] if value < 0 else value) for n, value in fixed)

        for key, wanted, fixed in self.specialisations:
            if element == wanted and _may(serves, fixed):
                return key
        raise ValueError(
            f"no specialisation for {element}, D {sizes['D']}, Dv {sizes['Dv']}; "
            f"built are {', '.join(self.info['specialisations'])}"
        )

    def check_layout(self, values: dict[str, Any], names: dict[str, Any]) -> None:
        """What the kernel needs besides shapes: contiguous rows, and a scale that it can fold.

        ValueError says what to call.
        """
        for source, dim, place in self.rows:
            tensor = values[source]
            if place is not None and tensor.shape[place] > 1 and tensor.stride(place) != 1:
                raise ValueError(
                    f"{source} has stride {tensor.stride(place)} along {dim}, not 1: "
                    f"call {source}.contiguous()"
                )
        for row in self.info["binding"]["scalars"]:
            value = float(evaluate(row["value"], names))
            if not math.isfinite(value):
                raise ValueError(f"{row['field']} must be finite, not {value}")
            if row["field"] == "scale" and self.info["softmax"] and value <= 0:
                raise ValueError(f"scale must be positive, not {value}: it is folded into exp2")

    def refused_layout(self, values: dict[str, Any]) -> str | None:
        """Which of q, k and v the TMA cannot read, why, and what to call; None where it can read
        all. For a launch that was refused: other kernels take any start and strides."""
        for source, dims, places in self.tiles:
            tensor = values[source]
            if tensor.numel() and tensor.data_ptr() % _ALIGNED:
                return (
                    f"{source} starts {tensor.data_ptr() % _ALIGNED} bytes past a multiple of "
                    f"{_ALIGNED} bytes, which the kernel's TMA cannot read: call {source}.clone()"
                )
            for dim, place in zip(dims[:-1], places[:-1], strict=True):
                if place is None or tensor.shape[place] <= 1:
                    continue
                stride, size = tensor.stride(place), tensor.element_size()
                if stride * size % _ALIGNED:
                    return (
                        f"{source} has stride {stride} along {dim}; the kernel's TMA needs a "
                        f"multiple of {_ALIGNED // size} elements: call {source}.contiguous()"
                    )
        return None


def _too_large(sizes: dict[str, Any]) -> bool:
    """Whether a block's index would not fit in 32 bits."""
    blocks = sizes["B"] * sizes["Hq"] * ((sizes["Nq"] + 63) // 64)
    return bool(blocks >= 2**31 or max(sizes["Nq"], sizes["Nk"]) >= 2**31 - 4096)


def _may(condition: Callable[..., Any], *given: Any) -> bool:
    """Whether the condition holds of what is given, or cannot be known before the sizes are."""
    try:
        return bool(condition(*given))
    except GuardOnDataDependentSymNode:
        return True


def _other_dtype(name: str, found: torch.dtype, wanted: torch.dtype) -> str:
    said = f"{name} must have dtype {wanted}, not {found}"
    if wanted == torch.int32 and found == torch.int64:
        said += (
            f": the kernel reads 32 bits and nothing here looks at the values. "
            f"Pass {name}.to(torch.int32) if they all lie within -2**31 and 2**31 - 1"
        )
    return said


def _said(sizes: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items())
