"""The order of the pieces of work and the number of blocks that take them, by list scheduling.

A piece of work is a head's block of rows; it is as long as its key tiles. Where these numbers
follow from sizes alone, dealing the pieces out to a card's multiprocessors says when the last one
ends: long pieces must begin early, and where pieces are nearly even, a fixed share for each
multiprocessor ends sooner than blocks that are handed out.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Expr,
    Function,
    Module,
    Name,
    Num,
    Return,
    Tuple,
    walk_expr,
)
from engine.cuir.rewrite import map_function
from engine.cuir.static.facts import expressions, statements
from engine.cuir.static.host_constants import constants_of, scalars_of
from engine.errors import CuBridgeError
from engine.transfer.match import Attention

PROCESSORS = 132
# Heads in the batch and queries (as many as keys): a launch of some ten pieces per multiprocessor.
SHAPES = ((64, 8192), (128, 4096), (256, 2048))
# In key tiles: what a block takes to begin, and a piece for its first loads, its epilogue and a
# pipeline that runs empty. With them grids come out as measured: docs/kernels/flash_fwd_sm90.md.
BLOCK = 1
PIECE = 1
WORTH = 0.02  # of the time: by less the kernel's own order stays
EVEN = 1.5  # longest over mean row: beyond it what a fixed share does hangs on how sizes divide


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """The device function `rows` that gives a piece's first row: the last rows first, or not.

    `beginning` is the expression of the row block counted from the beginning of the order.
    """

    rows: str
    section: int  # heads whose blocks of rows are taken turn by turn
    last_first: bool
    beginning: Expr


def first_rows_first(module: Module, found: Attention, pieces: int) -> Module:
    """The work order turned round where the first rows are the ones with most key tiles.

    `pieces` is how many a block takes where blocks are handed out. The module stays as it is when
    its order has another form, or when tiles depend on more than sizes.
    """
    order = work_order(module, found)
    tiles = tiles_by_rows(module, found)
    if order is None or tiles is None or not order.last_first:
        return module
    now, turned = (ends(tiles, order.section, last, pieces) for last in (True, False))
    if turned > now - WORTH:
        return module

    def edit(function: Function) -> Function:
        *head, last = function.body
        assert isinstance(last, Return) and isinstance(last.value, Binary)
        return replace(function, body=(*head, Return(replace(last.value, left=order.beginning))))

    return map_function(module, order.rows, edit)


def share_is_even(module: Module, found: Attention, pieces: int) -> bool:
    """True when rows are nearly even and a share of the work that is fixed before the launch ends
    as soon as blocks of `pieces` pieces, handed out. False where sizes do not say so."""
    order = work_order(module, found)
    tiles = tiles_by_rows(module, found)
    if order is None or tiles is None:
        return False
    if any(max(rows) > EVEN * sum(rows) / len(rows) for rows in tiles):
        return False
    fixed, handed = (ends(tiles, order.section, order.last_first, n) for n in (None, pieces))
    return fixed <= handed


def ends(
    tiles: Sequence[Sequence[int]], section: int, last_first: bool, pieces: int | None
) -> float:
    """When the last multiprocessor ends, over all of them ending at once; the mean of the shapes.

    `tiles` are those of each block of rows, for each of `SHAPES`. Blocks take `pieces` pieces each
    and are handed out; None: a fixed share for each multiprocessor.
    """
    total = 0.0
    for (heads, _), by_rows in zip(SHAPES, tiles, strict=True):
        rows = [t + PIECE for t in (by_rows[::-1] if last_first else by_rows)]
        works = [
            length
            for first in range(0, heads, section)
            for length in rows
            for _ in range(min(section, heads - first))
        ]
        total += makespan(works, pieces) * PROCESSORS / sum(works)
    return total / len(SHAPES)


def makespan(works: list[int], pieces: int | None) -> int:
    """The time until all works are done: block x of n takes works x, x + n, ..., and the next block
    goes to the multiprocessor that is free first."""
    blocks = min(len(works), PROCESSORS)
    if pieces is not None:
        blocks = max(blocks, -(-len(works) // pieces))
    free = [0] * PROCESSORS
    for block in range(blocks):
        heapq.heapreplace(free, free[0] + BLOCK + sum(works[block::blocks]))
    return max(free)


def tiles_by_rows(module: Module, found: Attention) -> list[list[int]] | None:
    """The key tiles of every block of rows for each of `SHAPES`; None where they depend on data,
    the head, or a number that only the caller knows."""
    count = module.function(found.schedule.count)
    if {Name(p.name) for p in count.params[1:3]} & set(expressions(count)):
        return None
    try:
        consts = constants_of(module)
        tile = tuple(Name(c) for c in count.consts)
        call = Call(count.name, tuple(map(Name, ("args", "b", "h", "q0"))), (), tile)
        run = scalars_of(module).compile(call)
        block = int(consts[count.consts[0]])
        return [
            [
                int(run({"args": {"Nq": n, "Nk": n}, "b": 0, "h": 0, "q0": q0}))
                for q0 in range(0, n, block)
            ]
            for _, n in SHAPES
        ]
    except (CuBridgeError, ArithmeticError, LookupError, TypeError, ValueError):
        return None


def work_order(module: Module, found: Attention) -> WorkOrder | None:
    """The order of the kernel's pieces of work, if it is one of sections of heads, by blocks of
    rows from one end to the other."""
    call = _first_row_of(module, found)
    if call is None or len(call.args) != 3:
        return None
    function = module.function(call.fn)
    last = function.body[-1]
    match last:
        case Return(Binary("*", Binary("-", Binary("-", Name(), Num(1)), beginning), Name())):
            last_first = True
        case Return(Binary("*", beginning, Name())):
            last_first = False
        case _:
            return None
    section = _given(module, found, call.args[1])
    if section is None or section < 1:
        return None
    order = WorkOrder(call.fn, section, last_first, beginning)
    return order if _holds(module, function, order) else None


def _first_row_of(module: Module, found: Attention) -> Call | None:
    """The call of a device function that gives the first row of a piece of work."""
    kernel = module.function(found.kernel)
    device = set(module.devices)
    rows = {
        node.args[3]
        for node in expressions(kernel)
        if isinstance(node, Call) and node.fn == found.schedule.count
    }
    calls = {
        stmt.value
        for stmt in statements(kernel)
        if isinstance(stmt, Assign)
        and Name(stmt.target) in rows
        and isinstance(stmt.value, Call)
        and stmt.value.fn in device
    }
    return next(iter(calls)) if len(calls) == 1 else None


def _given(module: Module, found: Attention, operand: Expr) -> int | None:
    """The whole number that the host passes for a parameter of the kernel."""
    places = [n for n, p in enumerate(module.function(found.kernel).params)
              if Name(p.name) == operand]  # fmt: skip
    if not places:
        return None
    value: object = None
    for expr in expressions(module.function(found.host)):
        match expr:
            case Call("run", (target, Tuple(operands))) if Name(found.kernel) in walk_expr(target):
                value = operands[places[0]]
    try:
        number = constants_of(module).get(value.id) if isinstance(value, Name) else None
    except CuBridgeError:
        return None
    return number if isinstance(number, int) else None


def _holds(module: Module, function: Function, order: WorkOrder) -> bool:
    """Whether the function gives the rows that the order says, looked at for every piece of work of
    a small launch with a section that is not whole."""
    blocks, heads, section = 3, 5, 2
    try:
        consts = constants_of(module)
        scalars = scalars_of(module)
        size = int(consts[function.consts[0]])
        names = tuple(Name(n) for n in ("args", "section", "work"))
        run = scalars.compile(Call(function.name, names, (), (Name(function.consts[0]),)))
        env = {"args": {"Nq": blocks * size, "B": 1, "Hq": heads}, "section": section}
        rows = [int(run(env | {"work": work})) for work in range(blocks * heads)]
    except (CuBridgeError, ArithmeticError, LookupError, TypeError, ValueError):
        return False
    wanted = [
        (blocks - 1 - row if order.last_first else row) * size
        for first in range(0, heads, section)
        for row in range(blocks)
        for _ in range(min(section, heads - first))
    ]
    return rows == wanted
