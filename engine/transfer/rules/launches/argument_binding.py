"""How the target's arguments are filled from the spec's inputs."""

from __future__ import annotations

from engine.cuir.nodes import Module, Name
from engine.cuir.static.host_constants import head_sizes
from engine.errors import InputError
from engine.spec.python.signature import fixed_sizes
from engine.spec.recipes.recipe import Recipe
from engine.transfer.binding import (
    SIZES,
    Binding,
    ScalarField,
    Scratch,
    SizeField,
    TensorField,
    kernel_order,
    own_tensors,
)
from engine.transfer.rules.base.prepared_operands import Prepared
from engine.transfer.rules.base.rule import Case


def binding_of(case: Case) -> Binding:
    """What fills each field of the target's arguments."""
    module, found, recipe, theirs = case.module, case.found, case.recipe, case.theirs
    _columns_fit(module, recipe)
    lse = case.softmax and "lse" in found.fields
    tensors = own_tensors(found.fields, recipe.inputs, recipe.output_dims, lse)
    scalars = [ScalarField(found.fields["scale"], case.factor)]
    fields = {f.name for f in module.fields}
    new_sizes: list[str] = []
    other = {} if recipe.other is None else {recipe.other.q: "q", recipe.other.k: "k"}
    for item in case.used:
        if item.made is not None:
            continue
        if item.dims:
            source = theirs.get(item.name, item.name)
            dims = tuple(theirs.get(d, d) for d in item.dims)
            own = case.orders.get(source, dims)
            if item.name in other:
                dims = kernel_order(dims, other[item.name])
            tensors.append(TensorField(item.name, source, own, dims, item.dtype))
            new_sizes += [
                d for d in item.dims if not d.isdigit() and d not in fields and d not in new_sizes
            ]
        else:
            scalars.append(ScalarField(item.name, Name(theirs.get(item.name, item.name))))
    sizes = [
        SizeField(f.name, f.name) for f in module.fields if f.type == "i32" and f.name in SIZES
    ]
    sizes += [SizeField(d, theirs.get(d, d)) for d in new_sizes if d not in ("D", "Dv")]
    sizes += [SizeField(d, d) for d in case.columns]
    workspace = None if case.lists is None else case.lists.workspace
    dims_of = {i.role: i.dims for i in recipe.inputs}
    scratch = tuple(_scratch(item, dims_of[item.role]) for item in case.before)
    scratch += tuple(Scratch(i.name, i.dims, i.dtype) for i in case.used if i.made is not None)
    return Binding(tuple(tensors), tuple(sizes), tuple(scalars), workspace, scratch)


def _scratch(item: Prepared, dims: tuple[str, ...]) -> Scratch:
    """What holds q or k as it is multiplied: of the input's heads and rows, and all D columns."""
    outer = kernel_order(dims, item.role)[:-1]
    return Scratch(item.field, (*(d if d in dims else "1" for d in outer), "D"), "T")


def _columns_fit(module: Module, recipe: Recipe) -> None:
    """Raises InputError where the kernel has other columns than the spec's numbers say, and where
    the spec's v has as many as q and the kernel's has not."""
    sizes = head_sizes(module)
    fixed = fixed_sizes(recipe.constraints)
    for name, own in zip(("D", "Dv"), sizes or (), strict=False):
        if fixed.get(name, own) != own:
            what = "queries and keys" if name == "D" else "values"
            raise InputError(
                f"the spec's {what} have {fixed[name]} columns, and this specialisation of the "
                f"kernel has {own}",
                fix=f"take the specialisation for them: --head-dim {fixed['D']}"
                if "D" in fixed else "take a kernel that is built for these sizes",
            )  # fmt: skip
    values = next((i for i in recipe.inputs if i.role == "v"), None)
    if sizes is None or sizes[0] == sizes[1] or values is None or "D" not in values.dims:
        return
    raise InputError(
        f"at head size {sizes[0]} the kernel's values and output have {sizes[1]} columns, and the "
        f"spec declares {values.name} with as many as the queries",
        fix=f"annotate {values.name} and the output with Dv instead of D, or take another size",
    )
