"""What goes into a spec's function and what comes out of it: all that is known without a recipe.

A recipe has one; so has what a spec declares in its annotations alone. Who needs the mathematics
(which pairs are kept, LSE, FlexAttention's mods) asks for a recipe; who needs names, dimensions and
types is content with this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from engine.cuir.nodes import Compare, Expr, Name, Num
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.errors import CuirError
from engine.spec.recipes.recipe import Input, Recipe

SCHEMA = 1


class Described(Protocol):
    """A recipe, a signature, or what a spec declares."""

    @property
    def inputs(self) -> tuple[Input, ...]: ...

    @property
    def output_dims(self) -> tuple[str, ...]: ...

    @property
    def constraints(self) -> tuple[Expr, ...]: ...


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs with their roles, dimensions and types, the output's dimensions, and which sizes the
    declarations make equal."""

    inputs: tuple[Input, ...]
    output_dims: tuple[str, ...]
    constraints: tuple[Expr, ...] = ()

    @staticmethod
    def of(described: Described) -> Signature:
        return Signature(described.inputs, described.output_dims, described.constraints)

    def role(self, role: str) -> Input:
        """The input that is q, k or v."""
        return next(i for i in self.inputs if i.role == role)

    @property
    def fixed(self) -> dict[str, int]:
        """The sizes that the declarations give as numbers."""
        return fixed_sizes(self.constraints)

    @property
    def grouped(self) -> bool:
        """Whether query heads may share key heads: both counts are sizes of their own."""
        dims = {d for i in self.inputs for d in i.dims}
        return {"Hq", "Hkv"} <= dims


Asked = Recipe | Signature
"""What is asked of a kernel: by a recipe where one could be read, else by the function alone."""


def fixed_sizes(constraints: Iterable[Expr]) -> dict[str, int]:
    """The sizes that are numbers, such as those of `Nk == 49`."""
    return {
        c.left.id: c.right.value
        for c in constraints
        if isinstance(c, Compare) and c.op == "=="
        and isinstance(c.left, Name) and isinstance(c.right, Num) and isinstance(c.right.value, int)
    }  # fmt: skip


def recipe_of(asked: Asked) -> Recipe | None:
    """The recipe, where there is one."""
    return asked if isinstance(asked, Recipe) else None


def signature_of(asked: Asked) -> Signature:
    return asked if isinstance(asked, Signature) else Signature.of(asked)


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """Plain JSON values; `signature_from_json` gives the equal signature."""
    return {
        "schema": SCHEMA,
        "inputs": [
            {"name": i.name, "role": i.role, "dtype": i.dtype, "dims": list(i.dims)}
            for i in signature.inputs
        ],
        "output_dims": list(signature.output_dims),
        "constraints": [print_expr(c) for c in signature.constraints],
    }


def signature_from_json(data: Mapping[str, Any]) -> Signature:
    """The signature in `data`. Raises `ValueError` on anything else."""
    try:
        if data["schema"] != SCHEMA:
            raise ValueError(f"signature schema {data['schema']!r} is not {SCHEMA}")
        inputs = []
        for row in data["inputs"]:
            if row["role"] not in ("q", "k", "v", "extra"):
                raise ValueError(f"{row['role']!r} is no role")
            dims = tuple(map(str, row["dims"]))
            inputs.append(Input(str(row["name"]), row["role"], str(row["dtype"]), dims))
        return Signature(
            tuple(inputs),
            tuple(map(str, data["output_dims"])),
            tuple(parse_expr(c, "signature") for c in data["constraints"]),
        )
    except (KeyError, TypeError, CuirError) as error:
        raise ValueError(f"not a signature: {error}") from None
