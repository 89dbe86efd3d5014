"""How many rows and keys a kernel's tiles have: its constants, and their values at launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.cuir.nodes import Assign, Call, Expr, Function, Index, Module, Name, Num, Select, Stmt
from engine.cuir.rewrite import map_statements
from engine.cuir.static.facts import expressions
from engine.transfer.match import Attention


def tile_const(kernel: Function, found: Attention, place: int) -> str | None:
    """The kernel's constant that says how many rows (0) or keys (1) a tile has."""
    for node in expressions(kernel):
        match node:
            case Call(fn, _, _, (*sizes,)) if fn == found.schedule.count:
                size = sizes[place] if len(sizes) > place else None
                return size.id if isinstance(size, Name) and size.id in kernel.consts else None
    return None


def with_tile(
    module: Module, found: Attention, const: str, change: Callable[[Expr], Expr]
) -> Module:
    """The module whose launcher gives the kernel another value of `const`: what `change` makes of
    its own."""
    kernel, host = module.function(found.kernel), module.function(found.host)
    place = kernel.consts.index(const)
    given = {
        node.index[place]
        for node in expressions(host)
        if isinstance(node, Index) and node.base == Name(found.kernel)
    }

    def edit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Assign) and Name(stmt.target) in given:
            return replace(stmt, value=change(stmt.value))
        return stmt

    return map_statements(module, host.name, edit)


def chosen(value: Expr, change: Callable[[int], int]) -> Expr:
    """A choice among numbers, each of them changed."""
    match value:
        case Select(cond, then, other):
            return Select(cond, chosen(then, change), chosen(other, change))
        case Num(int() as number):
            return Num(change(number))
    return value
