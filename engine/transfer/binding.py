"""How each field of the argument struct is filled from the spec's inputs.

The same binding serves G2's execution on the CPU, the GPU job and the packaged torch operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.cuir.nodes import Expr
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr

SIZES = ("B", "Hq", "Hkv", "Nq", "Nk", "D", "Dv")


@dataclass(frozen=True, slots=True)
class TensorField:
    """`field` views input `source`, its dimensions permuted to `dims` (the kernel's order).

    `"1"` in `dims` is a broadcast dimension; `source` of an output is its role ("O", "LSE").
    """

    field: str
    source: str
    source_dims: tuple[str, ...]
    dims: tuple[str, ...]
    dtype: str  # T, f32, i32, bool
    output: bool = False


@dataclass(frozen=True, slots=True)
class SizeField:
    field: str
    size: str


@dataclass(frozen=True, slots=True)
class ScalarField:
    """`field` gets the value of an expression over the sizes, e.g. 1 / sqrt(D)."""

    field: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Binding:
    tensors: tuple[TensorField, ...]
    sizes: tuple[SizeField, ...]
    scalars: tuple[ScalarField, ...]

    def to_json(self) -> dict[str, object]:
        return {
            "tensors": [
                {"field": t.field, "source": t.source, "source_dims": list(t.source_dims),
                 "dims": list(t.dims), "dtype": t.dtype, "output": t.output}
                for t in self.tensors
            ],
            "sizes": [{"field": s.field, "size": s.size} for s in self.sizes],
            "scalars": [{"field": s.field, "value": print_expr(s.value)} for s in self.scalars],
        }  # fmt: skip

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Binding:
        return Binding(
            tuple(
                TensorField(
                    t["field"],
                    t["source"],
                    tuple(t["source_dims"]),
                    tuple(t["dims"]),
                    t["dtype"],
                    bool(t["output"]),
                )
                for t in data["tensors"]
            ),
            tuple(SizeField(s["field"], s["size"]) for s in data["sizes"]),
            tuple(ScalarField(s["field"], parse_expr(s["value"])) for s in data["scalars"]),
        )
