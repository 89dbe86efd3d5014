"""How a kernel asks its tile schedule: for which rows, and over which steps.

The schedule's functions alone say what is computed only where the kernel asks them as it says here:
each part of a block goes over steps `lead` to `count`, takes tile `index` of each, and masks it
where it is not `full`.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.cuir.device_scalars import DeviceScalars, constants_of
from engine.cuir.nodes import (
    Binary,
    Call,
    Expr,
    For,
    If,
    Module,
    Name,
    Num,
    Path,
    Unary,
    walk_block,
)
from engine.errors import CuirError
from engine.prove.schedule import TileSchedule
from engine.transfer.match import Attention, Site, block_at, definitions, find_attention
from engine.transfer.rewrite import get


def asked_schedule(module: Module) -> TileSchedule:
    """How `module` asks.

    Raises:
        CuBridgeError: there is no schedule of that form, and why.
    """
    found = find_attention(module)
    kernel = module.function(found.kernel)
    values = definitions(list(walk_block(kernel.body, (kernel.name,))))
    ways = [_at_site(module, found, site, values) for site in found.sites]
    if any(way != ways[0] for way in ways):
        raise CuirError("its score tiles are masked in several ways")
    return ways[0]


def _at_site(
    module: Module, found: Attention, site: Site, values: Mapping[str, list[Expr]]
) -> TileSchedule:
    names = found.schedule
    mask = block_at(module, site.block)[site.mask] if site.mask is not None else None
    full = None
    if isinstance(mask, If) and isinstance(mask.cond, Unary) and mask.cond.op == "not":
        full = _call(mask.cond.operand, names.full, values)
    loop = _loop(module, site.block)
    count = None if loop is None else _call(loop.stop, names.count, values)
    if full is None or loop is None or count is None or len(full.args) != 5 or mask.other:  # type: ignore[union-attr]
        raise CuirError("the kernel asks its tile schedule in another way")
    index = _call(full.args[4], names.index, values)
    lead = None if loop.start == Num(0) else _call(loop.start, names.lead or "", values)
    tile = site.keys.left if isinstance(site.keys, Binary) and site.keys.op == "*" else None
    plain = (
        index is not None
        and len(count.args) == 4
        and index.args == (*count.args, Name(loop.var))
        and tile == full.args[4]
        and loop.step == Num(1)
        and (loop.start == Num(0) or (lead is not None and lead.args == (*count.args, site.rows)))
        and full.args[:3] == count.args[:3]
        and full.args[3] in (count.args[3], site.rows)
    )
    if not plain or index is None:
        raise CuirError("the kernel asks its tile schedule in another way")
    params = {names.count: count.params, names.index: index.params, names.full: full.params}
    if lead is not None:
        params[lead.fn] = lead.params
    scalars = DeviceScalars({}, constants_of(module))
    sizes = [scalars.compile(p)({}) for p in count.params]
    parts = lead.params if lead is not None else full.params
    part = scalars.compile(parts[2])({}) if len(parts) > 2 else sizes[0]
    numbers = (*sizes, part)
    if len(sizes) != 2 or not all(isinstance(n, int) and n > 0 for n in numbers) or sizes[0] % part:
        raise CuirError("the rows and keys of its tiles are no whole numbers at compile time")
    by_block = full.args[3] == count.args[3]
    return TileSchedule(
        names.count, names.index, names.full, None if lead is None else lead.fn, params,
        sizes[0], part, sizes[1], by_block,
    )  # fmt: skip


def _call(expr: Expr, name: str, values: Mapping[str, list[Expr]]) -> Call | None:
    """The call that an expression is, itself or by a name that stands for nothing else."""
    if isinstance(expr, Name):
        known = values.get(expr.id, [])
        if not known or any(value != known[0] for value in known):
            return None
        expr = known[0]
    return expr if isinstance(expr, Call) and expr.fn == name else None


def _loop(module: Module, block: Path) -> For | None:
    """The innermost loop around a statement list."""
    for end in range(len(block) - 1, 1, -1):
        node = get(module, block[:end]) if isinstance(block[end - 1], int) else None
        if isinstance(node, For):
            return node
    return None
