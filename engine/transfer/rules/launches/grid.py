"""The launch grid where rows of work are uneven.

A persistent kernel starts one block per multiprocessor, and each takes every gridDim-th piece of
work: its share is fixed before the first block runs. Pieces of different lengths then leave
multiprocessors idle at the end. With more blocks, of about two pieces each, the hardware hands out
the work as multiprocessors become free, in the kernel's own order of pieces (longest first), and a
block's start is still paid once per two pieces only. Where pieces are nearly even, as those of a
window are, the fixed share ends sooner and stays.
"""

from __future__ import annotations

from engine.cuir.nodes import (
    Assign,
    Call,
    Expr,
    Function,
    Module,
    Name,
    Stmt,
    free_names,
    map_stmt_exprs,
    walk_expr,
)
from engine.cuir.rewrite import map_expr, map_statements, read_names
from engine.cuir.static.facts import expressions, statements
from engine.cuir.text.quote import expr as quoted
from engine.cuir.text.quote import matched
from engine.transfer.match import Attention
from engine.transfer.rules.base.rule import Rule
from engine.transfer.rules.base.work_sharing import steps_by_the_grid
from engine.transfer.rules.launches.work_order import first_rows_first, share_is_even

PIECES = 2  # of work per block: with 1 each pays a block's start, with 3 the end is longer


def spread_uneven_rows(module: Module, found: Attention) -> Module:
    """`min(pieces, sm_count())` blocks become one per two pieces, if pieces differ in their tiles.

    The module stays as it is when its tile count is the same for every piece of work, when a fixed
    share ends as soon, or when its blocks do not share work by such a grid.
    """
    kernel, host = module.function(found.kernel), module.function(found.host)
    if not work_is_uneven(module, found) or not _steps_by_the_grid(kernel):
        return module
    if share_is_even(module, found, PIECES):
        return module
    grid = _grid_names(host, kernel.name)

    def edit(stmt: Stmt) -> Stmt:
        mine = isinstance(stmt, Assign) and stmt.target in grid
        return map_stmt_exprs(stmt, lambda e: map_expr(e, _spread)) if mine else stmt

    return map_statements(module, host.name, edit)


def begin_with_the_longest(module: Module, found: Attention) -> Module:
    """The first rows first, in a kernel that begins with the last ones, where that ends sooner."""
    if not _steps_by_the_grid(module.function(found.kernel)):
        return module
    return first_rows_first(module, found, PIECES)


def work_is_uneven(module: Module, found: Attention) -> bool:
    """True when the number of key tiles depends on the batch, the head or the block of rows."""
    count = module.function(found.schedule.count)
    return bool({p.name for p in count.params[1:]} & read_names(count.body))


def _steps_by_the_grid(kernel: Function) -> bool:
    """True when a loop of the kernel starts at the block's number and steps by their number."""
    return any(map(steps_by_the_grid, statements(kernel)))


def _grid_names(host: Function, kernel: str) -> frozenset[str]:
    """The names that the launch of `kernel` takes its number of blocks from."""
    calls = (
        call
        for call in expressions(host)
        if isinstance(call, Call) and call.fn == "run" and _launches(call, kernel)
    )
    return frozenset().union(*(free_names(dict(call.kwargs)["grid"]) for call in calls))


def _launches(run: Call, kernel: str) -> bool:
    return any(
        node == Name(kernel) or (isinstance(node, Call) and node.fn == kernel)
        for node in walk_expr(run.args[0])
    )


def _spread(expr: Expr) -> Expr | None:
    """At least a block per multiprocessor as before, and one per PIECES pieces of work."""
    for blocks in ("min(works, sm_count())", "min(sm_count(), works)"):
        holes = matched(blocks, expr)
        if holes is not None:
            return quoted(f"max({blocks}, ceil_div(works, {PIECES}))", **holes)
    return None


LONGEST = Rule(
    "longest",
    "Begin with the longest rows",
    "the mask makes the first rows the longest: begun last, each would hold the launch "
    "up alone when all others are done",
    "mask",
    applies=lambda case: case.masked,
    edit=lambda module, case: begin_with_the_longest(module, case.found),
    after=("launch_lists",),
)
SPREAD = Rule(
    "spread",
    "Hand out uneven rows as multiprocessors become free",
    "the mask makes some rows longer than others: a share of the work that is "
    "fixed before the launch would leave multiprocessors idle at the end",
    "mask",
    applies=lambda case: case.masked and not case.queue,
    edit=lambda module, case: spread_uneven_rows(module, case.found),
    after=("longest",),
)
