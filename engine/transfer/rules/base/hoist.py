"""Values that are computed once, before the place that reads them."""

from __future__ import annotations

from collections.abc import Iterator

from engine.cuir.nodes import (
    Assign,
    Expr,
    Function,
    Module,
    Name,
    Path,
    Stmt,
    free_names,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.static.facts import own_names
from engine.cuir.static.kernel_names import Fresh
from engine.transfer.match import block_at
from engine.transfer.rules.base.input_views import is_view
from engine.transfer.rules.base.score_sites import put_block


class Labels:
    """A name for every computed value: one value has one name, and no two have the same."""

    def __init__(self, kernel: Function) -> None:
        self._of: dict[Expr, str] = {}
        self._fresh = Fresh(own_names(kernel))

    def of(self, value: Expr, wanted: str) -> str:
        if value not in self._of:
            self._of[value] = self._fresh(wanted)
        return self._of[value]


def hoist(module: Module, kernel: str, statement: Assign) -> Module:
    """`statement` after the last definition that it needs, on the way to its first reader; after
    the views of the kernel at the earliest."""
    body = module.function(kernel).body
    use = next(path for path, stmt in walk_block(body, (kernel,)) if _reads(stmt, statement.target))
    needs = free_names(statement.value)
    views = [n + 1 for n, stmt in enumerate(body) if is_view(stmt)]
    place: tuple[Path, int] = ((kernel,), min(max(views, default=0), int(use[1])))
    for block in _ancestors(use[:-1]):
        limit = use[len(block)]
        assert isinstance(limit, int)
        for position, stmt in enumerate(block_at(module, block)[:limit]):
            if isinstance(stmt, Assign) and stmt.target in needs:
                place = (block, position + 1)
    block, position = place
    stmts = block_at(module, block)
    return put_block(module, block, (*stmts[:position], statement, *stmts[position:]))


def _reads(stmt: Stmt, name: str) -> bool:
    return any(node == Name(name) for e in stmt_exprs(stmt) for node in walk_expr(e))


def _ancestors(block: Path) -> Iterator[Path]:
    """The statement lists from the function's body down to `block`."""
    yield block[:1]
    for end in range(3, len(block) + 1, 2):
        yield block[:end]
