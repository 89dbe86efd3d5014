"""The argument struct, filled from tensors."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ._abi import FIELD_TYPES, args_type
from ._expr import evaluate


def axes(source: list[str], dims: list[str]) -> list[int | None]:
    """For each of the kernel's dimensions `dims` the place in a tensor whose dimensions are
    `source`; None where it has none, which is a size of 1. D serves as Dv, and Hq as Hkv, where
    the spec has one name for both."""
    have = list(source)
    for alias, name in (("D", "Dv"), ("Hq", "Hkv")):
        if name in dims and name not in have and alias in have and alias not in dims:
            have[have.index(alias)] = name
    left = list(enumerate(have))
    out: list[int | None] = []
    for dim in dims:  # a name may stand twice ("1 1 Nq Nk", "N N"): each place is used once
        found = next((pair for pair in left if pair[1] == dim), None)
        if found is not None:
            left.remove(found)
        out.append(None if found is None else found[0])
    return out


AXES = (("B",), ("Hq", "Hkv"), ("Nq", "Nk"), ("D", "Dv"))
"""The dimensions of q, k and v in the kernels' order, by their names in specs."""


def in_order(tensor: torch.Tensor, dims: Sequence[str]) -> torch.Tensor:
    """q, k, v or O, which has the dimensions `dims`, as [B, heads, rows, columns]. The columns of a
    part of q or k are a number."""
    named = [next((n for n, d in enumerate(dims) if d in names), None) for names in AXES]
    number = next((n for n, d in enumerate(dims) if d.isdigit()), None)
    return tensor.permute([number if n is None else n for n in named])  # type: ignore[misc]


class Filler:
    """Fills the struct of one binding."""

    def __init__(self, fields: list[list[str]], binding: dict[str, Any]) -> None:
        self.struct = args_type(fields)
        self.layout = struct.Struct("@" + "".join(FIELD_TYPES[kind][1] for _, kind in fields))
        by_field: dict[str, Any] = {
            row["field"]: (row["source"], axes(row["source_dims"], row["dims"]))
            for row in binding["tensors"]
        }
        by_field |= {row["field"]: row["size"] for row in binding["sizes"]}
        by_field |= {row["field"]: row["value"] for row in binding["scalars"]}
        space = binding.get("workspace")
        if space is not None:
            by_field |= {
                space["field"]: (space["field"], list(range(len(space["dims"])))),
                space["planned"]: space["planned"],
                space["slots"]: space["slots"],
            }
        for row in binding.get("scratch", ()):
            by_field[row["field"]] = (row["field"], list(range(len(row["dims"]))))
        # A field that nothing fills stays 0: the kernel does not read it.
        self.plan = [(name, kind, by_field.get(name)) for name, kind in fields]

    def fill(self, tensors: dict[str, torch.Tensor], names: dict[str, Any]) -> Any:
        """The struct for one call. `tensors` has inputs and outputs by name, `names` sizes and
        numbers. ValueError where a number does not fit its field."""
        values: list[Any] = []
        for field, kind, given in self.plan:
            if kind == "tensor":
                values += self._tensor(tensors, given) if given else (0, 0, 0, 0, 0)
                continue
            value = evaluate(given, names) if given else 0
            if kind != "f32":
                most = 2 ** (31 if kind == "i32" else 63)
                if not -most <= value < most:
                    raise ValueError(f"{field} is {value}, which does not fit the kernel's {field}")
            values.append(float(value) if kind == "f32" else int(value))
        args = self.struct()
        self.layout.pack_into(args, 0, *values)
        return args

    @staticmethod
    def _tensor(tensors: dict[str, torch.Tensor], given: tuple[str, list[int | None]]) -> list[int]:
        source, places = given
        tensor = tensors[source]
        strides = tensor.stride()
        held = [0 if place is None else strides[place] for place in places]
        return [tensor.data_ptr(), *held, *[0] * (4 - len(held))]


def passing(
    rows: Iterable[dict[str, Any]], sizes: dict[str, Any], like: torch.Tensor
) -> dict[str, torch.Tensor]:
    """By field what a call's kernels hand to each other: of q's type or float32, uninitialised."""
    return {
        row["field"]: torch.empty(
            [evaluate(dim, sizes) for dim in row["dims"]],
            dtype=torch.float32 if row["dtype"] == "f32" else like.dtype,
            device=like.device,
        )
        for row in rows
    }
