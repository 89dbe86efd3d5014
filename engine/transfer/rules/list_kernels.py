"""The two kernels that make tile lists: one classes the candidates, one writes down which to visit.

A block is one warp. In `class_tiles` several blocks share a block of rows: each looks at every n-th
candidate tile. The extremes of what the mask loads, over the rows and over a tile's keys, decide
most candidates; the pairs of the others are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    Lambda,
    Module,
    Name,
    Num,
    Param,
    Select,
    Slice,
    Stmt,
    Tuple,
    walk_block,
)
from engine.transfer import schedule as intervals
from engine.transfer.linear import tidy
from engine.transfer.match import Attention
from engine.transfer.ranges import Range, with_ranges
from engine.transfer.rewrite import Block, free_names, stmt_exprs, substitute
from engine.transfer.rules.inputs import view_of
from engine.transfer.rules.lists import (
    ARGS,
    FULL,
    HEADS,
    KEYS,
    PARTIAL,
    QUERIES,
    SKIP,
    WARP,
    Fresh,
    Lists,
    classes_begin,
    view_of_lists,
)
from engine.transfer.rules.words import Words

ROW, KEY = intervals.ROW, intervals.KEY


@dataclass(frozen=True, slots=True)
class _Place:
    """Names inside one of the two kernels."""

    lists: Lists
    consts: tuple[str, ...]
    batch: Name
    head: Expr
    first: Name  # first row of the block
    row_block: Name

    @property
    def rows(self) -> Name:
        return Name(self.consts[0])

    @property
    def keys(self) -> Name:
        return Name(self.consts[1])

    @property
    def lead(self) -> tuple[Expr, ...]:
        heads = (self.head,) if self.lists.per_head else ()
        return (self.batch, *heads, self.row_block)

    @property
    def coordinates(self) -> tuple[Expr, ...]:
        return (ARGS, self.batch, self.head, self.first)

    def tile(self, place: Expr) -> Index:
        return Index(Name(self.lists.field), (*self.lead, Slice(place)))

    def call(self, fn: str, *more: Expr) -> Call:
        return Call(fn, (*self.coordinates, *more), (), (self.rows, self.keys))


def kernels(
    module: Module, found: Attention, words: Words, keep: Expr, lists: Lists
) -> tuple[Function, Function]:
    """The kernel that classes the candidate tiles and the one that lists them."""
    consts = module.function(found.schedule.count).consts[:2]
    taken = {lists.field, *consts, *(i.name for i in words.tensors), "i", "j", "args", "T"}
    taken |= {*(f.name for f in module.functions), lists.count, lists.index}
    taken |= {lists.classes, lists.lists, *(c for f in module.functions for c in f.consts)}
    own = [Fresh(taken), Fresh(taken)]
    places = [_place(lists, consts, fresh) for fresh in own]
    classes = _classes(module, found, words, keep, places[0], own[0])
    return classes, _list(places[1], own[1])


def _place(lists: Lists, consts: tuple[str, ...], fresh: Fresh) -> _Place:
    head: Expr = Name(fresh("h")) if lists.per_head else Num(0)
    names = (Name(fresh(name)) for name in ("b", "q0", "row_block"))
    batch, first, row_block = names
    return _Place(lists, consts, batch, head, first, row_block)


def _block(place: _Place, fresh: Fresh) -> Block:
    """Which block of rows this is: neighbours are blocks of rows of one batch."""
    row_blocks = Name(fresh("row_blocks"))
    block: Expr = Call("block_id", (Num(0),))
    outer = Binary("//", block, row_blocks)
    out: list[Stmt] = [
        Assign(place.lists.field, view_of_lists(place.lists, place.consts)),
        Assign(row_blocks.id, Call("ceil_div", (QUERIES, place.rows))),
        Assign(place.row_block.id, Binary("%", block, row_blocks)),
    ]
    if isinstance(place.head, Name):
        out.append(Assign(place.head.id, Binary("%", outer, HEADS)))
        outer = Binary("//", outer, HEADS)
    out += [
        Assign(place.batch.id, outer),
        Assign(place.first.id, Binary("*", place.row_block, place.rows)),
    ]
    return tuple(out)


def _classes(
    module: Module, found: Attention, words: Words, keep: Expr, place: _Place, fresh: Fresh
) -> Function:
    last, tiles, step, tile = (Name(fresh(n)) for n in ("last", "tiles", "step", "n"))
    first_key, kept, kind = (Name(fresh(n)) for n in ("first_key", "kept", "kind"))
    last_key = Name(fresh("last_key"))
    kernel_names = {**words.sizes, "b": place.batch, "h": place.head}
    predicate = substitute(keep, kernel_names)
    bounded, ranges = with_ranges(predicate, {i.name: i.dtype for i in words.tensors}, fresh)
    rows = [r for r in ranges if r.axis == ROW]
    keys = [r for r in ranges if r.axis == KEY]
    beyond = tidy(Binary("+", first_key, place.keys))
    spans = (
        *(r.span for r in ranges),
        (KEY, first_key, tidy(Binary("-", beyond, Num(1)))),
        (ROW, place.first, last),
    )
    variables = frozenset(r.variable.id for r in ranges)
    may_hold = intervals.possible(bounded, spans, variables)
    must_hold = intervals.certain(bounded, spans)
    whole = intervals.normal(Bool("and", Compare("<=", beyond, KEYS), must_hold))
    inside = Bool("and", Compare("<", ROW, QUERIES), Compare("<", KEY, KEYS))
    counted = Call(
        "count_kept",
        (Lambda(("i", "j"), intervals.conjunction(inside, predicate)),),
        (("at", Tuple((place.first, first_key))),),
        (place.rows, place.keys),
    )
    pairs = Binary("*", tidy(Binary("+", Binary("-", last, place.first), Num(1))), place.keys)
    outcome = Select(
        Compare("==", kept, pairs),
        Num(FULL),
        Select(Compare(">", kept, Num(0)), Num(PARTIAL), Num(SKIP)),
    )
    count: Block = (Assign(kept.id, counted), Assign(kind.id, outcome))
    if may_hold != intervals.TRUE:
        count = (If(may_hold, count),)
    if whole != intervals.FALSE:
        count = (If(whole, (Assign(kind.id, Num(FULL)),), count),)
    body: Block = (
        Assign(tile.id, place.call(place.lists.index, step)),
        Assign(first_key.id, Binary("*", tile, place.keys)),
        *((Assign(last_key.id, _before(beyond, KEYS)),) if keys else ()),
        *_extremes(keys, place.keys, first_key, last_key),
        Assign(kind.id, Num(SKIP)),
        *count,
        Do(Call("put", (place.tile(Binary("+", classes_begin(place.consts), tile)), kind))),
    )
    read = free_names(predicate)
    views = tuple(view_of(i) for i in words.tensors if i.name in read)
    loop = For(step.id, Call("block_id", (Num(1),)), tiles, Call("grid_dim", (Num(1),)), body)
    statements: Block = (
        *views,
        *_block(place, fresh),
        Assign(last.id, _before(Binary("+", place.first, place.rows), QUERIES)),
        *_extremes(rows, place.rows, place.first, last),
        Assign(tiles.id, place.call(place.lists.count)),
        loop,
    )
    used = frozenset[str]().union(
        *(free_names(e) for _, s in walk_block(statements, ()) for e in stmt_exprs(s))
    )
    more = [c for c in module.function(found.kernel).consts if c in used - set(place.consts)]
    consts = (*more, *place.consts)
    return _kernel(place.lists.classes, consts, statements)


def _before(end: Expr, size: Expr) -> Expr:
    """The last row or key below both."""
    return Binary("-", Call("min", (end, size)), Num(1))


def _extremes(ranges: list[Range], count: Name, first: Expr, last: Expr) -> Block:
    """The least and the largest value of each load, over the rows or keys that there are."""
    out: list[Stmt] = []
    for item in ranges:
        inside = {item.axis.id: Call("min", (item.axis, last))}
        body = Lambda((item.axis.id,), substitute(item.value, inside))
        at = (("at", Tuple((first,))),)
        for fn, name in (("least", item.low), ("greatest", item.high)):
            out.append(Assign(name.id, Call(fn, (body,), at, (count,))))
    return tuple(out)


def _list(place: _Place, fresh: Fresh) -> Function:
    step, found = fresh("step"), Name(fresh("found"))
    tile = place.call(place.lists.index, Name(step))
    kind = Index(
        Name(place.lists.field), (*place.lead, Binary("+", classes_begin(place.consts), tile))
    )
    value = Select(Compare("==", kind, Num(SKIP)), Num(-1), tile)
    listed = Call(
        "compact",
        (place.tile(Num(1)), place.call(place.lists.count), Lambda((step,), value)),
        (("at", Tuple((Num(0),))),),
    )
    body = (
        *_block(place, fresh),
        Assign(found.id, listed),
        Do(Call("put", (place.tile(Num(0)), found))),
    )
    return _kernel(place.lists.lists, place.consts, body)


def _kernel(name: str, consts: tuple[str, ...], body: Block) -> Function:
    return Function("kernel", name, (Param("args"),), consts, (("threads", Num(WARP)),), body)
