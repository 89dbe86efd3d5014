"""Extra inputs: a field of the argument struct and a view in the kernel."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from engine.cuir.nodes import Assign, Attr, Call, Expr, Field, Module, Name, Stmt, names_in
from engine.cuir.static.kernel_names import meaning_of
from engine.errors import TransferError
from engine.spec.recipes.recipe import Input
from engine.transfer.match import Attention
from engine.transfer.rules.base.input_views import behind_views, view_of
from engine.transfer.rules.base.rule import Case, Rule

RENAME = "rename the dimension in the spec"


def add_inputs(
    module: Module, found: Attention, used: list[Input], inside: Set[str], of_q: Set[str]
) -> Module:
    """A field for each input, and a view in the attention's kernel for those in `inside`; those in
    `of_q` have the columns of q, the others the output's."""
    have = {f.name for f in module.fields}
    fields = list(module.fields)
    views: list[Stmt] = []
    columns = _columns(module, found)
    for item in used:
        for name in item.dims:
            meaning = None if name.isdigit() else meaning_of(name)
            if meaning is not None and name not in ("D", "Dv"):
                raise TransferError(
                    f"the dimension {name} of the spec's {item.name} cannot be called so in a "
                    f"kernel: it is {meaning}",
                    fix=RENAME,
                )
        for dim in item.dims:
            if not dim.isdigit() and dim not in have and dim not in ("D", "Dv"):
                fields.append(Field(dim, "i32"))
                have.add(dim)
        fields.append(Field(item.name, _field_type(item)))
        have.add(item.name)
        if item.dims and item.name in inside:
            views.append(view_of(item, Name("D") if item.name in of_q else columns))

    return behind_views(replace(module, fields=tuple(fields)), found.kernel, views)


def _columns(module: Module, found: Attention) -> Expr | None:
    """How many columns the output has, as the kernel's own view of it says."""
    output = Attr(Name("args"), found.fields["o"])
    for stmt in module.function(found.kernel).body:
        match stmt:
            case Assign(_, Call("gmem", (field, *_, columns))) if field == output:
                return columns
    return None


def _field_type(item: Input) -> str:
    return (
        "tensor"
        if item.dims
        else {"i32": "i32", "i64": "i64", "bool": "i32"}.get(item.dtype, "f32")
    )


def with_columns(module: Module, names: Sequence[str]) -> Module:
    """A field for each of these numbers of columns."""
    return replace(module, fields=(*module.fields, *(Field(name, "i32") for name in names)))


def _title(case: Case) -> str:
    names = (*case.columns, *(case.theirs.get(i.name, i.name) for i in case.used))
    return "Pass " + ", ".join(names) + " to the kernel"


RULE = Rule(
    "inputs",
    _title,
    lambda case: (
        "the spec reads inputs that the expert's kernel has not: each gets a field in the argument "
        "struct, and a view (the tensor with its shape) where it is read"
        if case.used
        else "the mask reads the number of columns, which the schedule's functions have no "
        "parameter for: it gets a field in the argument struct"
    ),
    "input",
    applies=lambda case: bool(case.used or case.columns),
    edit=lambda module, case: add_inputs(
        with_columns(module, case.columns),
        case.found,
        case.used,
        {i.name for i in case.used if case.reads_inside(i.name)},
        set() if case.landed is None else names_in(case.landed),
    ),
)
