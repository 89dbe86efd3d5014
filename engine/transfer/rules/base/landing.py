"""Where a kernel's rows of q have landed in shared memory, before the loop that multiplies them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.nodes import (
    Assign,
    Call,
    Do,
    Expr,
    For,
    Index,
    Module,
    Name,
    Path,
    Stmt,
    free_names,
    walk_block,
)
from engine.cuir.ops import OPS
from engine.cuir.ops.spec import Pending, Who
from engine.cuir.ops.traits import MATMULS, NAMED_BARRIERS, ORDERS, PLACES
from engine.cuir.types import FAMILIES
from engine.transfer.match import Attention, base_name, block_at, find_sites, is_transposed


@dataclass(frozen=True, slots=True)
class Landing:
    """A tile of q's rows that a warpgroup alone multiplies, and the first statement behind the wait
    for it. Between there and the matmul, in the loop over keys, its warps wait for each other."""

    block: Path  # the statement list
    position: int  # in it
    tile: Expr
    accumulator: str  # the layout's name
    rows: Expr  # of the tile
    columns: Expr  # of it, with those that fill its last 128 bytes
    loop: For  # over keys


def landing_of(module: Module, found: Attention) -> Landing | None:
    """Where it is in the module as it stands; None where the kernel has no such place."""
    kernel = module.function(found.kernel)
    statements = list(walk_block(kernel.body, (kernel.name,)))
    match found.score_layout:
        case Index(Name(accumulator), (rows, _)) if any(
            f.acc == accumulator and f.unit == "warpgroup" for f in FAMILIES
        ):
            pass
        case _:
            return None
    product = next(
        s.call for _, s in statements
        if isinstance(s, Do) and s.call.fn in MATMULS and is_transposed(s.call.args[2])
    )  # fmt: skip
    tile = _whole(product.args[1])
    shape = next(
        (s.value.params[-2:] for _, s in statements
         if isinstance(s, Assign) and s.target == base_name(tile)
         and isinstance(s.value, Call) and s.value.fn in PLACES),
        (),
    )  # fmt: skip
    barriers = {_barrier(s, base_name(tile)) for _, s in statements} - {None}
    if len(shape) != 2 or shape[0] != rows or len(barriers) != 1:
        return None
    site = find_sites(module, found.kernel)[0].block
    for path, stmt in statements:
        block, position = path[:-1], path[-1]
        if not isinstance(position, int) or _waited(stmt) not in barriers:
            continue
        if site[: len(block)] != block or len(site) == len(block):
            continue
        at = site[len(block)]
        assert isinstance(at, int)
        loop = block_at(module, block)[at]
        between = block_at(module, block)[position + 1 : at]
        if (
            position < at
            and isinstance(loop, For)
            and _meets(loop, product)
            and not {s.target for s in between if isinstance(s, Assign)}
            & (free_names(loop.start) | free_names(loop.stop))
        ):
            return Landing(block, position + 1, tile, accumulator, *shape, loop)
    return None


def _whole(operand: Expr) -> Expr:
    match operand:
        case Call("columns", (tile,)):
            return tile
    return operand


def _barrier(stmt: Stmt, tile: str | None) -> str | None:
    """The barrier that a bulk copy to `tile` completes."""
    if not isinstance(stmt, Do) or OPS[stmt.call.fn].pending is not Pending.BULK_LOAD:
        return None
    names = [o.name for o in OPS[stmt.call.fn].operands if o.place == "args"]
    given = dict(zip(names, stmt.call.args, strict=True))
    return base_name(given["bar"]) if base_name(given["dst"]) == tile else None


def _waited(stmt: Stmt) -> str | None:
    match stmt:
        case Do(Call(op, (barrier, *_))) if op in ORDERS:
            return base_name(barrier)
    return None


def _meets(loop: For, product: Call) -> bool:
    """Whether the warps wait for each other in each round before this product."""
    for _, stmt in walk_block(loop.body, ("",)):
        if isinstance(stmt, Do):
            if stmt.call == product:
                return False
            op = stmt.call.fn
            if op in ORDERS and (op in NAMED_BARRIERS or OPS[op].who is Who.BLOCK):
                return True
    return False
