"""How each field of the argument struct is filled from the spec's inputs.

The same binding serves G2's execution on the CPU, the GPU job and the packaged torch operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.cuir.nodes import Expr, names_in
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.spec.recipes.recipe import Input, in_kernel_order

SLOTS = 16  # tiles of a block of rows whose mask is kept as bits, where nobody asks for others
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
    dtype: str  # T, f32, i32 (which an i64 is read as), int64, bool
    output: bool = False


# The kernel's order of the dimensions of what every attention has, and what one place of it may be
# called: a spec that declares two sizes equal by giving them one name has that name in both places.
_ORDERS = {
    "q": ("B", "Hq", "Nq", "D"),
    "k": ("B", "Hkv", "Nk", "D"),
    "v": ("B", "Hkv", "Nk", "Dv"),
    "o": ("B", "Hq", "Nq", "Dv"),
}


def kernel_order(dims: tuple[str, ...], role: str) -> tuple[str, ...]:
    """The kernel's order in the source's own names; a dimension that it lacks keeps ours."""
    return in_kernel_order(dims, _ORDERS[role])


def own_tensors(
    fields: Mapping[str, str], inputs: Iterable[Input], output_dims: tuple[str, ...], lse: bool
) -> list[TensorField]:
    """q, k, v and the outputs in the kernel's own fields (by role)."""
    tensors = [
        TensorField(fields[i.role], i.name, i.dims, kernel_order(i.dims, i.role), "T")
        for i in inputs
        if i.role != "extra"
    ]
    order = kernel_order(output_dims, "o")
    tensors.append(TensorField(fields["o"], "O", output_dims, order, "T", output=True))
    if lse:
        dims = ("B", "Hq", "Nq")
        tensors.append(TensorField(fields["lse"], "LSE", dims, dims, "f32", output=True))
    return tensors


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
class Workspace:
    """`field` is a contiguous i32 tensor that the caller allocates and the kernel fills.

    `dims` are expressions over the sizes, over constants of the launcher (the rows and keys of a
    tile), which differ by arch and specialisation, and over the field `slots`: how many tiles of a
    block of rows may have their mask as bits, any number from 0 on. The field `planned` is 0 where
    the launch fills the workspace, 1 where it holds already what an earlier launch on the same
    inputs left in it.
    """

    field: str
    dims: tuple[str, ...]
    planned: str
    slots: str

    def constants(self) -> frozenset[str]:
        """The launcher's constants that the dims are made of."""
        names = names_in(*(parse_expr(dim, "dimension") for dim in self.dims))
        return names - {*SIZES, self.slots}


@dataclass(frozen=True, slots=True)
class Scratch:
    """`field` is a contiguous tensor that the caller allocates, with nothing in it, and that each
    launch fills and reads: `dims` are sizes, `dtype` is T or f32."""

    field: str
    dims: tuple[str, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Binding:
    tensors: tuple[TensorField, ...]
    sizes: tuple[SizeField, ...]
    scalars: tuple[ScalarField, ...]
    workspace: Workspace | None = None
    scratch: tuple[Scratch, ...] = ()

    def to_json(self) -> dict[str, object]:
        out = self._plain()
        if self.workspace is not None:
            space = self.workspace
            out["workspace"] = {
                "field": space.field, "dims": list(space.dims), "planned": space.planned,
                "slots": space.slots,
            }  # fmt: skip
        if self.scratch:
            out["scratch"] = [
                {"field": s.field, "dims": list(s.dims), "dtype": s.dtype} for s in self.scratch
            ]
        return out

    def _plain(self) -> dict[str, object]:
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
            _workspace(data.get("workspace")),
            tuple(
                Scratch(s["field"], tuple(s["dims"]), s["dtype"]) for s in data.get("scratch", ())
            ),
        )


def _workspace(data: Mapping[str, Any] | None) -> Workspace | None:
    if data is None:
        return None
    return Workspace(data["field"], tuple(data["dims"]), data["planned"], data["slots"])
