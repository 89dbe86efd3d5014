"""What lies under a mask: rows of V that no row of a block keeps are zeros to a matmul.

A masked pair has weight 0, and 0 times NaN is NaN: what a cache holds beyond a sequence's length
would reach the output wherever a length does not end on a tile. The keys that a block of rows keeps
lie in one range, which the mask's bounds give. The copies of V into shared memory take that range
and fill the other rows with zeros, as they do beyond the tensor. Tiles inside the range are copied
as ever: a NaN in a hole of the mask is PyTorch's NaN too. A masked score is replaced, so K needs
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.cuir.nodes import (
    Assign,
    Binary,
    Bool,
    Call,
    Compare,
    Do,
    Expr,
    Function,
    If,
    Index,
    Module,
    Name,
    Num,
    Param,
    Return,
    Stmt,
    Tuple,
    walk_block,
    walk_expr,
)
from engine.cuir.ops.traits import MATMULS
from engine.transfer import schedule as intervals
from engine.transfer.linear import tidy
from engine.transfer.match import Attention
from engine.transfer.rewrite import (
    Block,
    free_names,
    map_blocks,
    map_function,
    map_stmt_exprs,
    stmt_exprs,
    substitute_expr,
)
from engine.transfer.rules.inputs import view_of
from engine.transfer.rules.lists import (
    KEYS,
    QUERIES,
    Area,
    Lists,
    insert_after,
    word_of,
)
from engine.transfer.rules.names import Fresh, locals_for, own_names
from engine.transfer.rules.words import Words

ZERO = Num(0)


@dataclass(frozen=True, slots=True)
class Kept:
    """Device functions of a block of rows: its first kept key, and the one past its last. None
    where that is an end of the tensor, beyond which copies are zeros anyway."""

    begin: Function | None
    end: Function | None


def kept_range(module: Module, found: Attention, words: Words, keep: Expr) -> Kept:
    """The range of keys that a block of rows keeps, as the mask's index part bounds it."""
    count = module.function(found.schedule.count)
    fresh = locals_for(module, (count,), words.names)
    last = Name(fresh("last"))
    first = Name(count.params[3].name)
    ranges = intervals.key_ranges(words.of_schedule(keep, count), intervals.Rows(first, last), KEYS)
    found_ranges = [r for r in (ranges.prefix, ranges.rest) if r is not None]
    if not found_ranges:
        return Kept(None, None)

    def function(name: str, value: Expr) -> Function:
        end = Call("min", (Binary("+", first, Name(count.consts[0])), QUERIES))
        rows = (Assign(last.id, Binary("-", end, Num(1))),) if last.id in free_names(value) else ()
        views = tuple(view_of(i) for i in words.tensors if i.name in free_names(value))
        return replace(count, name=fresh(name), body=(*views, *rows, Return(value)))

    low = ZERO if ranges.prefix is not None else found_ranges[0].low
    high = tidy(Binary("+", found_ranges[0].high, Num(1)))
    for more in found_ranges[1:]:
        high = intervals.maximum(high, tidy(Binary("+", more.high, Num(1))))
    return Kept(
        None if low == ZERO else function("key_begin", low),
        None if high == KEYS else function("key_end", high),
    )


def listed_range(module: Module, found: Attention, lists: Lists) -> Kept:
    """The range of keys as the tile lists have it, found where the bits are made."""
    count = module.function(found.schedule.count)
    fresh = Fresh({f.name for f in module.functions} | own_names(count))
    begin, end = (
        replace(count, name=fresh(name), body=word_of(count, lists, area, ZERO))
        for name, area in (("key_begin", Area.KEY_BEGIN), ("key_end", Area.KEY_END))
    )
    return Kept(begin, end)


def leave_out(module: Module, found: Attention, kept: Kept) -> Module:
    """The module whose copies of V take each block's range of keys alone."""
    functions = tuple(f for f in (kept.begin, kept.end) if f is not None)
    if not functions:
        return module
    kernel, host = module.function(found.kernel), module.function(found.host)
    value, asked = _value_tile(kernel, found), _asked(kernel, found)
    taken = own_names(kernel) | own_names(host) | {f.name for f in (*module.functions, *functions)}
    fresh = Fresh(taken)
    named = {
        function.name: Name(fresh(name))
        for name, function in (("begin", kept.begin), ("end", kept.end))
        if function is not None
    }
    given = tuple(
        Assign(named[f.name].id, Call(f.name, asked.args, (), asked.params)) for f in functions
    )
    begin = named[kept.begin.name] if kept.begin is not None else ZERO
    end = named[kept.end.name] if kept.end is not None else KEYS
    copies = _Copies(value, asked.params[1], begin, end)
    order = [f.name for f in module.functions]
    schedule = (found.schedule.count, found.schedule.index, found.schedule.full)
    module = insert_after(module, max(schedule, key=order.index), functions)
    maps = {m for s in _statements(kernel) if (m := copies.map_of(s)) is not None}
    if maps:
        (whole,) = maps
        copies = replace(copies, eights=Name(fresh("v_eights")), ones=Name(fresh("v_ones")))
        module = _with_maps(module, found, whole, copies)

    def edit(body: Block) -> Block:
        return _after_count(copies.edit(body), copies, found, given)

    return map_function(module, kernel.name, lambda f: replace(f, body=map_blocks(f.body, edit)))


@dataclass(frozen=True, slots=True)
class _Copies:
    """The copies into the shared tiles called `tiles`, of `keys` keys each, and the range that they
    take: its first key and the one past its last. `eights` and `ones` are the maps of a bulk copy's
    rows."""

    tiles: str
    keys: Expr
    begin: Expr
    end: Expr
    eights: Name | None = None
    ones: Name | None = None

    def map_of(self, stmt: Stmt) -> Name | None:
        """The tensor map of a bulk copy into these tiles."""
        match stmt:
            case Do(Call("tma_load", (tile, Name() as whole, *_))) if _base(tile) == self.tiles:
                return whole
        return None

    def is_one(self, stmt: Stmt) -> bool:
        match stmt:
            case Do(Call("copy_async" | "copy_async_rows" | "tma_load", (tile, *_))):
                return _base(tile) == self.tiles
        return False

    def edit(self, body: Block) -> Block:
        return tuple(self._edited(s) if self.is_one(s) else s for s in body)

    def _edited(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Do(Call("copy_async", (tile, rows))):
                return Do(Call("copy_async_rows", (tile, rows, self.begin, self.end)))
            case Do(Call("tma_load", (tile, _, Tuple((_, first, *_)) as at, bar))):
                assert self.eights is not None and self.ones is not None
                part = (tile, self.eights, self.ones, at, bar, self.begin, self.end)
                return If(self._crossed(first), (Do(Call("tma_load_rows", part)),), (stmt,))
        return stmt

    def _crossed(self, first: Expr) -> Expr:
        """Whether a tile from key `first` on has keys outside, beside those past the tensor."""
        sides = []
        if self.begin != ZERO:
            sides.append(Compare("<", first, self.begin))
        if self.end != KEYS:
            sides.append(Compare(">", Binary("+", first, self.keys), self.end))
        return sides[0] if len(sides) == 1 else Bool("or", *sides)


def _statements(function: Function) -> tuple[Stmt, ...]:
    return tuple(s for _, s in walk_block(function.body, (function.name,)))


def _base(tile: Expr) -> str | None:
    match tile:
        case Name(id):
            return id
        case Index(base, _) | Call("columns", (base,)):
            return _base(base)
    return None


def _asked(kernel: Function, found: Attention) -> Call:
    """The call that gives a block's number of tiles."""
    return next(
        node
        for stmt in _statements(kernel)
        if isinstance(stmt, Assign)
        for node in walk_expr(stmt.value)
        if isinstance(node, Call) and node.fn == found.schedule.count
    )


def _value_tile(kernel: Function, found: Attention) -> str:
    """The name of V's shared tiles: what the second matmul takes."""
    for stmt in _statements(kernel):
        match stmt:
            case Do(Call(fn, (Name(acc), _, right))) if fn in MATMULS and acc == found.accumulator:
                name = _base(right)
                if name is not None:
                    return name
    raise AssertionError("an attention has a second matmul")


def _after_count(body: Block, copies: _Copies, found: Attention, given: Block) -> Block:
    """`given` behind the question for the number of tiles where V's copies follow."""
    for position, stmt in enumerate(body):
        match stmt:
            case Assign(_, Call(fn)) if fn == found.schedule.count:
                rest = body[position + 1 :]
                if any(copies.is_one(inner) for _, inner in walk_block(rest, ("",))):
                    return (*body[: position + 1], *given, *rest)
    return body


# --- tensor maps --------------------------------------------------------------------------------


def _with_maps(module: Module, found: Attention, whole: Name, copies: _Copies) -> Module:
    """The host makes two more maps of the tensor of `whole` and hands them to the kernel."""
    assert copies.eights is not None and copies.ones is not None
    more = (copies.eights, copies.ones)
    kernel, host = module.function(found.kernel), module.function(found.host)
    at = next(n for n, p in enumerate(kernel.params) if p.name == whole.id)
    params = tuple(Param(name.id, kernel.params[at].type) for name in more)
    launch = next(
        node
        for stmt in _statements(host)
        for expr in stmt_exprs(stmt)
        for node in walk_expr(expr)
        if isinstance(node, Call)
        and node.fn == "run"
        and Name(kernel.name) in walk_expr(node.args[0])
    )
    given = launch.args[1]
    assert isinstance(given, Tuple)
    handed = given.items[at]
    items = (*given.items[: at + 1], *more, *given.items[at + 1 :])
    changed = replace(launch, args=(launch.args[0], Tuple(items)))

    def edit(body: Block) -> Block:
        out: list[Stmt] = []
        for stmt in body:
            out.append(map_stmt_exprs(stmt, lambda e: substitute_expr(e, launch, changed)))
            match stmt:
                case Assign(name, Call("tensor_map", _, kwargs) as made) if Name(name) == handed:
                    box = dict(kwargs)["box"]
                    assert isinstance(box, Tuple)
                    for map, rows in zip(more, (8, 1), strict=True):
                        new = Tuple((Num(rows), *box.items[1:]))
                        options = tuple((k, new if k == "box" else v) for k, v in kwargs)
                        out.append(Assign(map.id, replace(made, kwargs=options)))
        return tuple(out)

    module = map_function(
        module, kernel.name,
        lambda f: replace(f, params=(*f.params[: at + 1], *params, *f.params[at + 1 :])),
    )  # fmt: skip
    return map_function(module, host.name, lambda f: replace(f, body=map_blocks(f.body, edit)))
