"""Small pure helpers to edit CuIR trees: substitution, replacement by path, dead-code removal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
    Expr,
    Function,
    Lambda,
    Module,
    Name,
    Opaque,
    Path,
    Stmt,
    blocks,
    free_names,
    rebuild,
    stmt_exprs,
    with_blocks,
)  # fmt: skip

Block = tuple[Stmt, ...]


def map_expr(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """`expr` with every node for which `change` returns something replaced by it, outermost first.

    A replacement is taken as it is; `change` is not applied inside it.
    """
    changed = change(expr)
    if changed is not None:
        return changed
    return rebuild(expr, lambda child: map_expr(child, change))


def substitute(expr: Expr, names: Mapping[str, Expr]) -> Expr:
    """`expr` with free names replaced. Lambda parameters shadow."""

    def change(node: Expr) -> Expr | None:
        if isinstance(node, Name):
            return names.get(node.id)
        if isinstance(node, Lambda):
            inner = {k: v for k, v in names.items() if k not in node.params}
            return Lambda(node.params, substitute(node.body, inner))
        return None

    return map_expr(expr, change)


def stmt_reads(stmt: Stmt) -> frozenset[str]:
    """Names read by a statement and everything inside it."""
    own = frozenset().union(*(free_names(e) for e in stmt_exprs(stmt)))
    if isinstance(stmt, Opaque):
        own |= frozenset(stmt.reads) | frozenset(stmt.writes)
    for _, body in blocks(stmt):
        own |= frozenset().union(*(stmt_reads(s) for s in body))
    return own


def map_blocks(body: Block, change: Callable[[Block], Block]) -> Block:
    """`change` applied to every statement list, innermost first, unchanged objects kept."""
    out: list[Stmt] = []
    for stmt in body:
        for branch, inner in blocks(stmt):
            new = map_blocks(inner, change)
            if new is not inner and new != inner:
                stmt = with_blocks(stmt, {branch: new})
        out.append(stmt)
    done = tuple(out)
    return change(
        body if done == body and all(a is b for a, b in zip(done, body, strict=True)) else done
    )


def map_statements(module: Module, name: str, change: Callable[[Stmt], Stmt]) -> Module:
    """The module with `change` applied to every statement of one function, innermost first."""

    def edit(stmts: Block) -> Block:
        return tuple(map(change, stmts))

    return map_function(module, name, lambda f: replace(f, body=map_blocks(f.body, edit)))


def put_before(module: Module, name: str, new: Callable[[Stmt], Block]) -> Module:
    """In each statement list of one function, what `new` gives of a statement stands before it: of
    the first one that it gives something of."""

    def edit(stmts: Block) -> Block:
        for position, stmt in enumerate(stmts):
            made = new(stmt)
            if made:
                return (*stmts[:position], *made, *stmts[position:])
        return stmts

    return map_function(module, name, lambda f: replace(f, body=map_blocks(f.body, edit)))


def map_function(module: Module, name: str, change: Callable[[Function], Function]) -> Module:
    functions = tuple(change(f) if f.name == name else f for f in module.functions)
    return replace(module, functions=functions)


def get(module: Module, path: Path) -> Stmt:
    """The statement at `path`."""
    body: Block = module.function(str(path[0])).body
    stmt: Stmt | None = None
    for step in path[1:]:
        if isinstance(step, int):
            stmt = body[step]
        else:
            assert stmt is not None
            body = dict(blocks(stmt))[step]
    assert stmt is not None
    return stmt


def read_names(body: Block) -> frozenset[str]:
    """Every name read in `body`; a self-update such as `l = row_sum(s, l)` is no read of `l`."""
    out: set[str] = set()
    for stmt in body:
        own = frozenset().union(*(free_names(e) for e in stmt_exprs(stmt)))
        if isinstance(stmt, Assign):
            own -= {stmt.target}
        if isinstance(stmt, Opaque):
            own |= frozenset(stmt.reads) | frozenset(stmt.writes)
        out |= own
        for _, inner in blocks(stmt):
            out |= read_names(inner)
    return frozenset(out)


def drop_newly_dead(function: Function, was_read: frozenset[str]) -> Function:
    """Remove assignments of names that were read before an edit (`was_read`) and no longer are.

    Values in CuIR have no effects, so an unread assignment can go; what the expert left unread
    stays as it was.
    """
    while True:
        dead = was_read - read_names(function.body)

        def prune(body: Block, dead: frozenset[str] = dead) -> Block:
            kept = tuple(s for s in body if not (isinstance(s, Assign) and s.target in dead))
            return kept if len(kept) != len(body) else body

        body = map_blocks(function.body, prune)
        if body == function.body:
            return function
        function = replace(function, body=body)


def substitute_expr(expr: Expr, old: Expr, new: Expr) -> Expr:
    """`expr` with every occurrence of the subexpression `old` replaced."""
    return map_expr(expr, lambda node: new if node == old else None)
