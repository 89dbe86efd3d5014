"""What lies under a mask: rows of V that no row of a block keeps are zeros to a matmul.

A masked pair has weight 0, and 0 times NaN is NaN: what a cache holds beyond a sequence's length
would reach the output wherever a length does not end on a tile. The keys that a block of rows keeps
lie in one range, which the mask's bounds give; of the tiles at its ends the rows outside are
cleared. Tiles inside it are left alone: a NaN in a hole of the mask is PyTorch's NaN too.

In a kernel whose warps copy for themselves all of them clear, and a barrier follows. Where
warpgroups take turns at the matmuls, the one whose turn is first clears before it: the turns order
its writes before everybody's matmuls, and no other barrier is needed.
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
    For,
    Function,
    If,
    Index,
    Module,
    Name,
    Num,
    Return,
    Stmt,
    walk_block,
    walk_expr,
)
from engine.cuir.ops.matmul import MATMULS
from engine.transfer import schedule as intervals
from engine.transfer.linear import tidy
from engine.transfer.match import Attention
from engine.transfer.rewrite import Block, free_names, map_blocks, map_function
from engine.transfer.rules.inputs import view_of
from engine.transfer.rules.lists import KEYS, QUERIES, Area, Lists, insert_after, word_of
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


def clear_under_mask(module: Module, found: Attention, kept: Kept) -> Module:
    """The module with the rows of V outside of each block's range cleared."""
    functions = tuple(f for f in (kept.begin, kept.end) if f is not None)
    if not functions:
        return module
    kernel = module.function(found.kernel)
    value = _value_tile(kernel, found)
    keys = found.sites[0].keys  # as it was: a weight that is no softmax leaves no site to find
    asked = _asked(kernel, found)
    fresh = Fresh(own_names(kernel) | {f.name for f in (*module.functions, *functions)})
    begin, end = (
        Name(fresh(name)) if function is not None else None
        for name, function in (("begin", kept.begin), ("end", kept.end))
    )
    edges = _Edges(asked.params[1], begin, end)
    given = tuple(
        Assign(name.id, Call(function.name, asked.args, (), asked.params))
        for name, function in ((begin, kept.begin), (end, kept.end))
        if name is not None and function is not None
    )
    order = [f.name for f in module.functions]
    schedule = (found.schedule.count, found.schedule.index, found.schedule.full)
    module = insert_after(module, max(schedule, key=order.index), functions)
    turns, number = _turns(kernel, found, value), fresh("passed")

    def edit(body: Block) -> Block:
        if turns is None:
            body = _before_matmul(body, found, keys, value, edges)
        else:
            body = _before_turn(body, found, asked, turns, edges, number)
        return _after_count(body, kernel, found, given)

    return map_function(module, kernel.name, lambda f: replace(f, body=map_blocks(f.body, edit)))


@dataclass(frozen=True, slots=True)
class _Edges:
    """A tile's keys, and the names of the first kept key and the one past the last."""

    keys: Expr
    begin: Name | None
    end: Name | None

    def crossed(self, first: Expr) -> Expr:
        """Whether a tile from key `first` on has keys outside."""
        sides = []
        if self.begin is not None:
            sides.append(Compare("<", first, self.begin))
        if self.end is not None:
            sides.append(Compare(">", Binary("+", first, self.keys), self.end))
        return sides[0] if len(sides) == 1 else Bool("or", *sides)

    def clear(self, tile: Expr, first: Expr) -> Do:
        begin = ZERO if self.begin is None else Binary("-", self.begin, first)
        end = self.keys if self.end is None else Binary("-", self.end, first)
        return Do(Call("clear_rows", (tile, begin, end)))


def _asked(kernel: Function, found: Attention) -> Call:
    """The call that gives a block's number of tiles."""
    return next(
        node
        for _, stmt in walk_block(kernel.body, (kernel.name,))
        if isinstance(stmt, Assign)
        for node in walk_expr(stmt.value)
        if isinstance(node, Call) and node.fn == found.schedule.count
    )


def _is_value_matmul(stmt: Stmt, found: Attention) -> bool:
    match stmt:
        case Do(Call(fn, (Name(acc), *_))) if fn in MATMULS:
            return acc == found.accumulator
    return False


def _value_tile(kernel: Function, found: Attention) -> Expr:
    """The shared tile of V in the second matmul, whole."""
    for _, stmt in walk_block(kernel.body, (kernel.name,)):
        if _is_value_matmul(stmt, found):
            assert isinstance(stmt, Do)
            return _whole(stmt.call.args[2])
    raise AssertionError("an attention has a second matmul")


def _whole(operand: Expr) -> Expr:
    match operand:
        case Call("columns", (inner,)):
            return _whole(inner)
    return operand


def _after_count(body: Block, kernel: Function, found: Attention, given: Block) -> Block:
    """`given` behind each question for the number of tiles where the second matmul follows."""
    for position, stmt in enumerate(body):
        match stmt:
            case Assign(_, Call(fn)) if fn == found.schedule.count and any(
                _is_value_matmul(inner, found)
                for _, inner in walk_block(body[position + 1 :], (kernel.name,))
            ):
                return (*body[: position + 1], *given, *body[position + 1 :])
    return body


# --- a block's warps copy for themselves --------------------------------------------------------


def _before_matmul(body: Block, found: Attention, keys: Expr, value: Expr, edges: _Edges) -> Block:
    out: list[Stmt] = []
    for stmt in body:
        if _is_value_matmul(stmt, found):
            cleared = (edges.clear(value, keys), Do(Call("sync", ())))
            out.append(If(edges.crossed(keys), cleared))
        out.append(stmt)
    return tuple(out)


# --- warpgroups take turns ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Turns:
    """The named barrier that gives a warpgroup its turn, the number of the first one, and the
    mbarrier of V's stages with the tiles that it speaks of."""

    own: Expr
    first: Expr
    barrier: str
    tiles: str


def _turns(kernel: Function, found: Attention, value: Expr) -> _Turns | None:
    calls = [s.call for _, s in walk_block(kernel.body, (kernel.name,)) if isinstance(s, Do)]
    own = next((c.args[0] for c in calls if c.fn == "named_sync"), None)
    arrivals = (c.args[0] for c in calls if c.fn == "named_arrive")
    first = next((number for number in arrivals if isinstance(number, Num)), None)
    if own is None or first is None:
        return None
    for call in calls:
        match call:
            case Call("tma_load", (Index(Name(tiles) as base, _), _, _, Index(Name(bar), _))):
                if isinstance(value, Index) and value.base == base:
                    return _Turns(own, first, bar, tiles)
    return None


def _is(stmt: Stmt, fn: str) -> bool:
    return isinstance(stmt, Do) and stmt.call.fn == fn


def _before_turn(
    body: Block, found: Attention, asked: Call, turns: _Turns, edges: _Edges, number: str
) -> Block:
    """The body with the loops over tiles, of which each asks for a turn, clearing before it."""

    def loop(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For):
            return stmt
        turn = next((n for n, s in enumerate(stmt.body) if _is(s, "named_sync")), None)
        landed = _landed(stmt.body, turns)
        if turn is None or landed is None:
            return stmt
        stage = landed.call.args[0]
        assert isinstance(stage, Index)
        tile, before = Index(Name(turns.tiles), stage.index), stmt.body[:turn]
        tile_at = _tile(before, found)
        if tile_at is None:
            tile_at = Name(number)
            given = Call(found.schedule.index, (*asked.args, Name(stmt.var)), (), asked.params)
            before = (Assign(number, given), *before)
        first = Binary("*", tile_at, asked.params[1])
        clear = If(
            Bool("and", Compare("==", turns.own, turns.first), edges.crossed(first)),
            (
                *(() if landed in before else (landed,)),
                edges.clear(tile, first),
                Do(Call("fence_async", ())),
            ),
        )
        return replace(stmt, body=(*before, clear, *stmt.body[turn:]))

    return tuple(map(loop, body))


def _landed(body: Block, turns: _Turns) -> Do | None:
    """The wait for V's tile of a round."""
    for _, stmt in walk_block(body, ("",)):
        match stmt:
            case Do(Call("wait", (Index(Name(bar), _), _))) if bar == turns.barrier:
                return stmt
    return None


def _tile(before: Block, found: Attention) -> Name | None:
    """The name of a round's tile."""
    for inner in before:
        match inner:
            case Assign(name, Call(fn)) if fn == found.schedule.index:
                return Name(name)
    return None
