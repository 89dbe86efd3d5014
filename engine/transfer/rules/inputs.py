"""Extra inputs: a field of the argument struct and a view in the kernel."""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Expr,
    Field,
    Function,
    Module,
    Name,
    Num,
    Stmt,
    walk_block,
)
from engine.errors import TransferError
from engine.spec.recipe import Input, Recipe
from engine.transfer.match import Attention
from engine.transfer.rewrite import map_function, stmt_reads, substitute
from engine.transfer.rules.names import meaning_of, own_names

RENAME = "rename the dimension in the spec"


def add_inputs(module: Module, found: Attention, used: list[Input]) -> Module:
    have = {f.name for f in module.fields}
    fields = list(module.fields)
    views: list[Stmt] = []
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
        if item.dims:
            views.append(view_of(item))

    def change(function: Function) -> Function:
        last = max(i for i, s in enumerate(function.body) if is_view(s))
        body = function.body[: last + 1] + tuple(views) + function.body[last + 1 :]
        return replace(function, body=body)

    return map_function(replace(module, fields=tuple(fields)), found.kernel, change)


def names_in(module: Module, found: Attention) -> set[str]:
    """Every name that a view in the kernel, or in the schedule's functions, would hide or be
    hidden by."""
    names = {"T", "args", *(name for name, _ in module.spec)}
    for function in module.functions:
        names.add(function.name)
        names.update(function.consts)
    kernel = module.function(found.kernel)
    for _, stmt in walk_block(kernel.body, (kernel.name,)):
        names |= stmt_reads(stmt)
    schedule = found.schedule
    read_there = (schedule.count, schedule.index, schedule.full, schedule.lead)
    functions = (kernel, *(module.function(name) for name in read_there if name is not None))
    return names.union(*map(own_names, functions))


def view_of(item: Input) -> Assign:
    """The statement that makes a tensor input readable in a function."""
    args = (Attr(Name("args"), item.name), *map(_size, item.dims))
    return Assign(item.name, Call("gmem", args, (), (_element(item.dtype),)))


def _field_type(item: Input) -> str:
    return (
        "tensor"
        if item.dims
        else {"i32": "i32", "i64": "i64", "bool": "i32"}.get(item.dtype, "f32")
    )


def _element(dtype: str) -> Expr:
    return Name(
        {"T": "T", "f32": "f32", "f16": "f16", "bf16": "bf16", "bool": "bool"}.get(dtype, "i32")
    )


def _size(dim: str) -> Expr:
    return Num(int(dim)) if dim.isdigit() else Attr(Name("args"), dim)


def is_view(stmt: Stmt) -> bool:
    """True for the statement that makes a view of a tensor."""
    return isinstance(stmt, Assign) and isinstance(stmt.value, Call) and stmt.value.fn == "gmem"


def scalar_inputs(expr: Expr, recipe: Recipe) -> Expr:
    """Scalar inputs are read from the argument struct."""
    scalars = {i.name: Attr(Name("args"), i.name) for i in recipe.extra() if not i.dims}
    return substitute(expr, scalars)
