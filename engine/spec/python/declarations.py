"""What a spec declares about itself, for specs that no recipe could be read from.

Only annotations count: which tensors, of which dimensions. What is computed stays unknown, so the
recipe made here says nothing about score, mask and normaliser, and must not be asked for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.cuir.nodes import Compare, Expr, Name, Num
from engine.cuir.static.kernel_names import meaning_of
from engine.errors import SpecError
from engine.spec.python.dimension_sizes import slots
from engine.spec.python.spec_file import SpecSource, roles_by_place
from engine.spec.recipes.recipe import Clause, Input, Recipe, Role

RENAME = "rename it in the spec"


def check_dims(source: SpecSource, name: str, dims: Iterable[str], line: int) -> None:
    """Raises `SpecError` for a dimension of an extra input that cannot bear its name."""
    for each in dims:
        found = None if each.isdigit() or each in ("D", "Dv") else meaning_of(each)
        if found is not None:
            raise source.error(
                f"the dimension of {name}, {each} cannot be called so in a kernel: it is {found}",
                line, RENAME,
            )  # fmt: skip


_FLEX = (
    Input("q", "q", "T", ("B", "Hq", "Nq", "D")),
    Input("k", "k", "T", ("B", "Hkv", "Nk", "D")),
    Input("v", "v", "T", ("B", "Hkv", "Nk", "D")),
)


@dataclass(frozen=True, slots=True)
class Declared:
    """Inputs, output and constraints. `scalars` are the spec's own constants by name."""

    inputs: tuple[Input, ...]
    output_dims: tuple[str, ...]
    constraints: tuple[Expr, ...]
    scalars: tuple[tuple[str, int | float | bool], ...]
    flex: bool

    def as_recipe(self, why: str) -> Recipe:
        """A recipe that only names inputs and output; `why` says why there is no real one."""
        return Recipe(
            "flex" if self.flex else "eager", self.inputs, Name("x"), Num(True), None, Name("h"),
            self.output_dims, "spec-defined", constraints=self.constraints,
            clauses=(Clause("unread", why),),
        )  # fmt: skip


def declared(source: SpecSource) -> Declared:
    """Read the declarations. Raises `SpecError` when q, k and v are not among them."""
    scalars = tuple((s.name, s.value) for s in source.scalars if isinstance(s.value, int | float))
    if source.kind == "flex":
        for t in source.tensors:
            check_dims(source, t.name, t.dims, t.line)
        extra = tuple(Input(t.name, "extra", t.dtype, t.dims) for t in source.tensors)
        return Declared((*_FLEX, *extra), ("B", "Hq", "Nq", "D"), (), scalars, True)
    if len(source.tensors) < 3:
        raise source.error(
            f"attention has {len(source.tensors)} annotated tensors; q, k and v are needed",
            source.line, 'annotate them, such as q: Float[Tensor, "B Hq Nq D"]',
        )  # fmt: skip
    usual = slots(source.tensors)
    named = roles_by_place(source.tensors)
    inputs: list[Input] = []
    for tensor in source.tensors:
        role: Role = named.get(tensor.name, "extra")  # type: ignore[assignment]
        dims = tuple(usual.get(d, d) for d in tensor.dims)
        if role == "extra":
            check_dims(source, tensor.name, dims, tensor.line)
        inputs.append(Input(tensor.name, role, tensor.dtype, dims))
    by_role = {i.role: i for i in inputs}
    for role in ("q", "k", "v"):
        if len(by_role[role].dims) not in (3, 4):
            raise SpecError(f"{role} has {len(by_role[role].dims)} dimensions, not 3 or 4")
    q, v = by_role["q"].dims, by_role["v"].dims
    constraints = tuple(
        Compare("==", Name(a), Name(b))
        for a, b in (("Nq", "Nk"), ("Hq", "Hkv"))
        if any(a in i.dims for i in inputs) and not any(b in i.dims for i in inputs)
    )
    # What the spec calls by one name has one size, so either name stands for it.
    output = (
        tuple(usual.get(d, d) for d in source.returns)
        if source.returns is not None
        else (*q[:-1], v[-1])
    )
    return Declared(tuple(inputs), output, constraints, scalars, False)
