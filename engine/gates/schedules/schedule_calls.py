"""How a kernel asks its tile schedule: for which rows, and over which steps.

The schedule's functions alone say what is computed only where the kernel asks them as it says here:
each part of a block goes over steps `lead` to `count - tail`, takes tile `index` of each, and masks
it where it is not `full`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    For,
    Function,
    If,
    Module,
    Name,
    Num,
    Path,
    Stmt,
    Tuple,
    Unary,
    walk_block,
)
from engine.cuir.ops.traits import MASKS, MATMULS
from engine.cuir.rewrite import get
from engine.cuir.static.device_scalars import DeviceScalars
from engine.cuir.static.host_constants import constants_of
from engine.errors import CuirError
from engine.prove.schedule import TileSchedule
from engine.transfer.match import block_at, definitions, is_transposed, parts_of_stop

OTHERWISE = "the kernel asks its tile schedule in another way"


@dataclass(frozen=True, slots=True)
class Masked:
    """Where a kernel masks a tile of scores: the statement list, the place in it of the `if` that
    ends with `keep`, and the tile's first row and key."""

    block: Path
    mask: int
    rows: Expr
    keys: Expr


def scoring_kernel(module: Module) -> Function:
    """The kernel that multiplies q and k. Raises `CuirError` where there is none, or several."""
    found = [
        f for f in module.functions
        if f.kind == "kernel" and any(_is_scores(s) for _, s in walk_block(f.body, ()))
    ]  # fmt: skip
    if len(found) != 1:
        raise CuirError(f"{len(found) or 'no'} kernels multiply q and k")
    return found[0]


def asked_schedule(module: Module) -> TileSchedule:
    """How `module` asks.

    Raises:
        CuBridgeError: there is no schedule of that form, and why.
    """
    kernel = scoring_kernel(module)
    statements = list(walk_block(kernel.body, (kernel.name,)))
    values, sites = definitions(statements), _sites(kernel)
    scores = sum(_is_scores(stmt) for _, stmt in statements)
    if scores != len(sites):
        raise CuirError("some of its score tiles are masked in another way")
    ways = [_at_site(module, site, values) for site in sites]
    if any(way != ways[0] for way in ways):
        raise CuirError("its score tiles are masked in several ways")
    return ways[0]


def _sites(kernel: Function) -> list[Masked]:
    out: list[Masked] = []
    for path, stmt in walk_block(kernel.body, (kernel.name,)):
        match stmt:
            case If(_, (*_, Assign(_, Call(fn, _, kwargs)))) if fn in MASKS:
                match dict(kwargs).get("at"):
                    case Tuple((rows, keys)):
                        out.append(Masked(path[:-1], int(path[-1]), rows, keys))
    return out


def _is_scores(stmt: Stmt) -> bool:
    """Whether a statement is the matmul of q and k: its right operand is taken by its rows."""
    match stmt:
        case Do(Call(fn, (_, _, right, *_))):
            return fn in MATMULS and is_transposed(right)
    return False


def _at_site(module: Module, site: Masked, values: Mapping[str, list[Expr]]) -> TileSchedule:
    device = set(module.devices)

    def call(expr: Expr) -> Call | None:
        found = _call(expr, values)
        return found if found is not None and found.fn in device else None

    mask = block_at(module, site.block)[site.mask]
    full = None
    if isinstance(mask, If) and isinstance(mask.cond, Unary) and not mask.other:
        full = call(mask.cond.operand) if mask.cond.op == "not" else None
    loop = _loop(module, site.block)
    if full is None or loop is None or len(full.args) != 5:
        raise CuirError(OTHERWISE)
    stop, less = parts_of_stop(loop.stop, values)
    count, index = call(stop), call(full.args[4])
    if count is None:
        raise CuirError(OTHERWISE)
    # What is passed over at either end: no steps, or as many as a function says of a part's rows.
    ends = [None if e in (None, Num(0)) else call(e) or e for e in (loop.start, less)]
    lead, tail = (e if isinstance(e, Call) else None for e in ends)
    tile = site.keys.left if isinstance(site.keys, Binary) and site.keys.op == "*" else None
    plain = (
        index is not None
        and len(count.args) == 4
        and index.args == (*count.args, Name(loop.var))
        and tile == full.args[4]
        and loop.step == Num(1)
        and all(
            e is None or (isinstance(e, Call) and e.args == (*count.args, site.rows)) for e in ends
        )
        and full.args[:3] == count.args[:3]
        and full.args[3] in (count.args[3], site.rows)
    )
    if not plain or index is None:
        raise CuirError(OTHERWISE)
    params = {count.fn: count.params, index.fn: index.params, full.fn: full.params}
    passing = [e for e in (lead, tail) if e is not None]
    params.update((e.fn, e.params) for e in passing)
    scalars = DeviceScalars({}, constants_of(module))
    sizes = [scalars.compile(p)({}) for p in count.params]
    parts = {
        scalars.compile(e.params[2])({}) if len(e.params) > 2 else sizes[0]
        for e in (passing or [full])
    }
    part = min(parts)
    numbers = (*sizes, part)
    if (
        len(sizes) != 2
        or len(parts) != 1
        or not all(isinstance(n, int) and n > 0 for n in numbers)
        or sizes[0] % part
    ):
        raise CuirError("the rows and keys of its tiles are no whole numbers at compile time")
    by_block = full.args[3] == count.args[3]
    return TileSchedule(
        count.fn, index.fn, full.fn, None if lead is None else lead.fn,
        None if tail is None else tail.fn, params, sizes[0], part, sizes[1], by_block,
    )  # fmt: skip


def _call(expr: Expr, values: Mapping[str, list[Expr]]) -> Call | None:
    """The call that an expression is, itself or by a name that stands for nothing else."""
    if isinstance(expr, Name):
        known = values.get(expr.id, [])
        if not known or any(value != known[0] for value in known):
            return None
        expr = known[0]
    return expr if isinstance(expr, Call) else None


def _loop(module: Module, block: Path) -> For | None:
    """The innermost loop around a statement list."""
    for end in range(len(block) - 1, 1, -1):
        node = get(module, block[:end]) if isinstance(block[end - 1], int) else None
        if isinstance(node, For):
            return node
    return None
