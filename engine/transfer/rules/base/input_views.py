"""What functions read of extra inputs: views of tensors, fields of the argument struct."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Expr,
    Function,
    Module,
    Name,
    Num,
    Stmt,
)
from engine.cuir.rewrite import map_function, stmt_reads, substitute
from engine.cuir.static.facts import own_names
from engine.cuir.text.quote import assign
from engine.spec.recipes.recipe import Input, Recipe
from engine.transfer.binding import SIZES
from engine.transfer.match import Attention


def names_in(module: Module, found: Attention) -> set[str]:
    """Every name that a view in the kernel, or in the schedule's functions, would hide or be
    hidden by."""
    names = {"T", "args", *(name for name, _ in module.spec)}
    for function in module.functions:
        names.add(function.name)
        names.update(function.consts)
    kernel = module.function(found.kernel)
    names = names.union(*map(stmt_reads, kernel.body))
    schedule = found.schedule
    read_there = (schedule.count, schedule.index, schedule.full, schedule.lead, schedule.tail)
    functions = (kernel, *(module.function(name) for name in read_there if name is not None))
    return names.union(*map(own_names, functions))


_ELEMENTS = {"T": "T", "f32": "f32", "f16": "f16", "bf16": "bf16", "bool": "bool"}


def view_of(item: Input, columns: Expr | None = None) -> Assign:
    """The statement that makes a tensor input readable in a function; `columns` is what a row of
    the output has there."""
    own = {"D": columns, "Dv": columns} if columns is not None else {}
    field, sizes = Attr(Name("args"), item.name), tuple(own.get(d) or size_of(d) for d in item.dims)
    return assign(
        "view = gmem[element](field, *sizes)",
        view=item.name, element=_ELEMENTS.get(item.dtype, "i32"), field=field, sizes=sizes,
    )  # fmt: skip


def size_of(dim: str) -> Expr:
    """How a function reads a dimension of an input."""
    return Num(int(dim)) if dim.isdigit() else Attr(Name("args"), dim)


def is_view(stmt: Stmt) -> bool:
    """True for the statement that makes a view of a tensor."""
    return isinstance(stmt, Assign) and isinstance(stmt.value, Call) and stmt.value.fn == "gmem"


def behind_views(module: Module, function: str, new: Iterable[Stmt]) -> Module:
    """`new` statements right behind the function's own views."""

    def change(function: Function) -> Function:
        at = max(n for n, stmt in enumerate(function.body) if is_view(stmt)) + 1
        return replace(function, body=(*function.body[:at], *new, *function.body[at:]))

    return map_function(module, function, change)


def scalar_inputs(expr: Expr, recipe: Recipe) -> Expr:
    """Scalar inputs, and sizes that only an extra input has, are read from the argument struct."""
    extra = recipe.extra()
    scalars = {i.name for i in extra if not i.dims}
    sizes = {d for i in extra for d in i.dims if d.isidentifier()} - set(SIZES)
    return substitute(expr, {name: Attr(Name("args"), name) for name in scalars | sizes})
