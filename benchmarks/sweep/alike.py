"""Whether a mutant is the same program in another writing: rewrites that change no value.

Operands of what commutes in either order, comparisons mirrored, arguments that no function reads,
and neighbouring assignments that do nothing else and do not read each other, in either order.
"""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.canonical import canonical
from engine.cuir.functions import FUNCTIONS
from engine.cuir.nodes import (
    MIRRORED,
    Assign,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Function,
    Module,
    Num,
    Stmt,
    map_stmt_exprs,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.cuir.rewrite import (
    map_blocks,
    map_expr,
    read_names,
    stmt_reads,
)

COMMUTES = frozenset("+*&|^")
READS = frozenset(("block_id", "grid_dim", "shared_limit", "sizeof", "map", "mbarriers"))


def alike(a: Module, b: Module) -> bool:
    """Whether both are one program after the rewrites."""
    return canonical(_plain(a)) == canonical(_plain(b))


def _plain(module: Module) -> Module:
    unread = {f.name: _unread(f) for f in module.functions if f.kind == "device"}
    device = frozenset(unread)

    def ordered(expr: Expr) -> Expr | None:
        found = reordered(expr)
        return None if found == expr else found

    def reordered(expr: Expr) -> Expr | None:
        match expr:
            case Binary(op, left, right) if op in COMMUTES:
                return Binary(op, *sorted((left, right), key=print_expr))
            case Bool(op, left, right):
                return Bool(op, *sorted((left, right), key=print_expr))
            case Compare(op, left, right) if print_expr(right) < print_expr(left):
                return Compare(MIRRORED[op], right, left)
            case Call("min" | "max" as fn, (left, right), (), ()):
                return Call(fn, tuple(sorted((left, right), key=print_expr)))
            case Call(fn, args) if unread.get(fn):
                return replace(
                    expr, args=tuple(Num(0) if n in unread[fn] else x for n, x in enumerate(args))
                )
        return None

    def function(one: Function) -> Function:
        return replace(one, body=map_blocks(one.body, in_order))

    def settled(expr: Expr) -> Expr:
        while (now := map_expr(expr, ordered)) != expr:  # what was replaced is not looked into
            expr = now
        return expr

    def in_order(block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return _sorted(tuple(map_stmt_exprs(s, settled) for s in block), device)

    return replace(module, functions=tuple(map(function, module.functions)))


def _unread(function: Function) -> frozenset[int]:
    """The places of parameters that the function does not read."""
    read = read_names(function.body)
    return frozenset(n for n, p in enumerate(function.params) if p.name not in read)


def _sorted(block: tuple[Stmt, ...], device: frozenset[str]) -> tuple[Stmt, ...]:
    """Neighbours that are plain assignments and do not read each other, by what they compute."""
    out = list(block)
    for last in range(len(out) - 1, 0, -1):
        for at in range(last):
            one, two = out[at], out[at + 1]
            if _swaps(one, two, device):
                out[at], out[at + 1] = two, one
    return tuple(out)


def _swaps(one: Stmt, two: Stmt, device: frozenset[str]) -> bool:
    match one, two:
        case Assign(a, x), Assign(b, y) if a != b and _is_plain(x, device) and _is_plain(y, device):
            free = a not in stmt_reads(two) and b not in stmt_reads(one)
            return free and print_expr(y) < print_expr(x)
    return False


def _is_plain(expr: Expr, device: frozenset[str]) -> bool:
    """Whether evaluating it does nothing else: it calls scalar and device functions, and READS."""
    known = device | READS | FUNCTIONS.keys()
    return all(not isinstance(e, Call) or e.fn in known for e in walk_expr(expr))
