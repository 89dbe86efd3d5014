"""What a free hand writes in a way that no primitive has and that means one thing: written as the
primitives have it.

1. A value of each row or column is loaded for a tile's layout: `load_cols[col_of[L]]` is
   `load_cols[L]`.
2. What was loaded stays in memory until it is taken up, a type of its own in C++. Where its name
   goes on as something computed (`x = load_lines[L](..)`, then `x = map(x, ..)`), what was loaded
   gets a name of its own until there.
"""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
    Call,
    Expr,
    For,
    Function,
    Index,
    Module,
    Name,
    Opaque,
    Stmt,
    blocks,
    map_stmt_exprs,
    walk_block,
    with_blocks,
)
from engine.cuir.ops.traits import COLUMN_LOADS, LATER, ROW_LOADS
from engine.cuir.rewrite import map_expr, substitute
from engine.cuir.static.facts import statements
from engine.cuir.static.kernel_names import Fresh, locals_for

_VECTORS = dict.fromkeys(ROW_LOADS, "row_of") | dict.fromkeys(COLUMN_LOADS, "col_of")


def spelled(module: Module) -> Module:
    """The module as the primitives have it; paths stay, and no value changes."""
    functions = tuple(_function(module, function) for function in module.functions)
    return replace(module, functions=functions)


def _function(module: Module, function: Function) -> Function:
    opaque = {n for s in statements(function) if isinstance(s, Opaque) for n in s.reads + s.writes}
    fresh = locals_for(module, (function,), opaque)
    return replace(function, body=_block(function.body, fresh))


def _block(body: tuple[Stmt, ...], fresh: Fresh) -> tuple[Stmt, ...]:
    out = [
        with_blocks(map_stmt_exprs(s, _vectors), {b: _block(i, fresh) for b, i in blocks(s)})
        for s in body
    ]
    for at, stmt in enumerate(out):
        match stmt:
            case Assign(target, Call(fn)) if fn in LATER:
                end = _goes_on(out, at, target)
                if end is not None:
                    name = fresh(f"{target}_read")
                    out[at] = replace(stmt, target=name)
                    out[at + 1 : end] = [_renamed(s, target, name) for s in out[at + 1 : end]]
                    out[end] = _renamed(out[end], target, name)
    return tuple(out)


def _vectors(expr: Expr) -> Expr:
    def change(node: Expr) -> Expr | None:
        match node:
            case Call(fn, args, kwargs, (Index(Name(of), (layout,)),)) if _VECTORS.get(fn) == of:
                return Call(fn, tuple(map(_vectors, args)), kwargs, (layout,))
        return None

    return map_expr(expr, change)


def _goes_on(body: list[Stmt], at: int, name: str) -> int | None:
    """The next statement of the block that gives the name something computed, if none before it
    gives it anything in a block of its own."""
    for end in range(at + 1, len(body)):
        match body[end]:
            case Assign(target, value) if target == name:
                later = isinstance(value, Call) and value.fn in LATER
                return None if later else end
        for _, stmt in walk_block((body[end],), ()):
            match stmt:
                case Opaque():
                    return None
                case Assign(given) | For(given) if given == name:
                    return None
    return None


def _renamed(stmt: Stmt, old: str, new: str) -> Stmt:
    inner = {b: tuple(_renamed(s, old, new) for s in body) for b, body in blocks(stmt)}
    stmt = with_blocks(stmt, inner)
    return map_stmt_exprs(stmt, lambda e: substitute(e, {old: Name(new)}))
