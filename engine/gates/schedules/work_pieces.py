"""Which block of rows each piece of a kernel's work is, read off the kernel and its launcher."""

from __future__ import annotations

from engine.cuir.nodes import (
    Assign,
    Call,
    Expr,
    For,
    Function,
    Module,
    Name,
    Num,
    Path,
    Return,
    Stmt,
    free_names,
    next_of,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.rewrite import get, substitute, substitute_expr
from engine.cuir.static.calls import launched
from engine.cuir.static.device_scalars import DeviceScalars
from engine.cuir.static.host_constants import constants_of
from engine.errors import CuirError
from engine.gates.schedules.schedule_calls import scoring_kernel
from engine.prove.work_order import PIECE, WorkOrder
from engine.transfer.match import block_at, definitions

_BLOCK, _GRID = Call("block_id", (Num(0),)), Call("grid_dim", (Num(0),))
_OTHERWISE = "the kernel takes its work in another way"


def asked_work(module: Module) -> tuple[WorkOrder, ...]:
    """The order of work at each place where the kernel asks for a block's count of tiles, once
    where several places agree.

    Raises:
        CuBridgeError: a piece does not follow from a number that blocks count, and why.
    """
    kernel = scoring_kernel(module)
    count = _count(module, kernel)
    given, grid = _launch(module, kernel.name)
    params = dict(zip((p.name for p in kernel.params), given, strict=False))
    numbers = DeviceScalars({}, constants_of(module))
    orders: dict[WorkOrder, None] = {}
    for path, stmt in walk_block(kernel.body, (kernel.name,)):
        for node in (n for e in stmt_exprs(stmt) for n in walk_expr(e)):
            match node:
                case Call(fn, (_, *place), (), (rows, *_)) if fn == count and len(place) == 3:
                    b, h, row = (resolved(module, path, e) for e in place)
                    pieces: Expr = grid
                    number: Expr = _BLOCK
                    loop = _counting(module, path, (b, h, row))
                    if loop is not None:
                        pieces, number = resolved(module, loop[0], loop[1].stop), Name(loop[1].var)
                    b, h, row = (substitute_expr(e, number, Name(PIECE)) for e in (b, h, row))
                    read = frozenset().union(*map(free_names, (b, h, row, pieces)))
                    known = tuple((n, e) for n, e in params.items() if n in read and n != "args")
                    size = int(numbers.compile(rows)({}))
                    orders[WorkOrder(b, h, row, pieces, size, known)] = None
    if not orders:
        raise CuirError(_OTHERWISE)
    return tuple(orders)


def resolved(module: Module, path: Path, expr: Expr, known: frozenset[str] = frozenset()) -> Expr:
    """`expr` as it is at a statement, by the assignments that lead to it. A name stays that is
    known, that a loop around the statement counts, or that nothing in its function gives a value.

    Raises:
        CuirError: a name has its value from a branch or a loop.
    """
    for name in free_names(expr) - known:
        at = _assigned(module, path, name)
        stmt = None if at is None else get(module, at)
        if at is not None and isinstance(stmt, Assign):
            expr = substitute(expr, {name: resolved(module, at, stmt.value, known)})
    return expr


def _assigned(module: Module, path: Path, name: str) -> Path | None:
    """The assignment that gives a name the value that it has at a statement."""
    for end in range(len(path) - 1, 0, -2):
        block, number = path[:end], int(path[end])
        above = block_at(module, block)[:number]
        for position in range(len(above) - 1, -1, -1):
            here = (*block, position)
            match above[position]:
                case Assign(target) if target == name:
                    return here
                case stmt if any(_gives(s, name) for _, s in _inside(stmt, here)):
                    raise CuirError(_OTHERWISE)
        if end > 1 and isinstance(path[end - 2], int):
            outer = get(module, path[: end - 1])
            if isinstance(outer, For):
                if outer.var == name:
                    return None
                if any(_gives(s, name) for _, s in walk_block(outer.body, block)):
                    raise CuirError(_OTHERWISE)
    return None


def _inside(stmt: Stmt, path: Path) -> list[tuple[Path, Stmt]]:
    return list(walk_block((stmt,), path))


def _gives(stmt: Stmt, name: str) -> bool:
    return (isinstance(stmt, Assign) and stmt.target == name) or (
        isinstance(stmt, For) and stmt.var == name
    )


def _counting(module: Module, path: Path, read: tuple[Expr, ...]) -> tuple[Path, For] | None:
    """The loop around a statement that counts the block's pieces of work, if there is one: each
    block goes from its own number on, by as many as there are blocks or to what it claims next."""
    names = frozenset().union(*map(free_names, read))
    for end in range(len(path) - 1, 1, -2):
        stmt = get(module, path[: end - 1])
        if isinstance(stmt, For) and stmt.var in names:
            if stmt.start != _BLOCK or not (stmt.step == _GRID or next_of(stmt.step)):
                raise CuirError(_OTHERWISE)
            return path[: end - 1], stmt
    return None


def _count(module: Module, kernel: Function) -> str:
    """The device function that the loops over a block's tiles end at: it alone is asked for a
    batch, a head and a block, and for nothing else."""
    device = {f.name for f in module.functions if f.kind == "device" and len(f.params) == 4}
    stops = [s.stop for _, s in walk_block(kernel.body, ()) if isinstance(s, For)]
    values = definitions(list(walk_block(kernel.body, ())))
    ends = [v for stop in stops for v in (stop, *values.get(getattr(stop, "id", ""), ()))]
    found = {e.fn for e in ends if isinstance(e, Call) and e.fn in device}
    if len(found) != 1:
        raise CuirError(_OTHERWISE)
    return found.pop()


def _launch(module: Module, kernel: str) -> tuple[tuple[Expr, ...], Expr]:
    """What the launcher gives the kernel, and its number of blocks."""
    known = frozenset(constants_of(module))
    hosts = [f for f in module.functions if f.kind == "host"]
    for path, stmt in (at for f in hosts for at in walk_block(f.body, (f.name,))):
        found = launched(stmt.value) if isinstance(stmt, Return) else None
        if found is not None and found.name == kernel and len(found.grid) == 1:
            values = tuple(resolved(module, path, e, known) for e in found.args)
            return values, resolved(module, path, found.grid[0], known)
    raise CuirError("its launch has another form than one row of blocks")
