"""The three kernels that make tile lists: one classes the candidates, one writes down which to
visit, one keeps the masks of partial tiles as bits.

A block is one warp. In `class_tiles` several blocks share a block of rows: each looks at every n-th
candidate tile. The extremes of what the mask loads, over the rows and over a tile's keys, decide
most candidates; of the others the pairs are looked at, until some are kept and some are not. In
`mask_tiles` a block makes the bits of eight of a tile's rows at a time, and notes the first and the
last key that partial tiles keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.nodes import (
    Assign,
    Attr,
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
from engine.transfer import bounds, logic
from engine.transfer.linear import tidy
from engine.transfer.match import Attention
from engine.transfer.ranges import Range, with_ranges
from engine.transfer.rewrite import Block, free_names, stmt_exprs, substitute
from engine.transfer.rules.branches import unbranched
from engine.transfer.rules.inputs import view_of
from engine.transfer.rules.lists import (
    ARGS,
    BITS,
    FULL,
    HEADS,
    KEYS,
    PARTIAL,
    QUERIES,
    SHARE,
    SKIP,
    WARP,
    Area,
    Lists,
    bits_at,
    view_of_lists,
)
from engine.transfer.rules.names import Fresh
from engine.transfer.rules.words import Words
from engine.transfer.schedule import KEY, ROW


@dataclass(frozen=True, slots=True)
class _Place:
    """Names inside one of the kernels."""

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

    @property
    def tiles(self) -> Call:
        return Call("ceil_div", (KEYS, self.keys))

    def word(self, area: Area, place: Expr) -> Expr:
        """The place of a word in an area of this block of rows."""
        begin = area.begin(self.tiles)
        return begin if place == Num(0) else Binary("+", begin, place)

    def read(self, area: Area, place: Expr) -> Index:
        return Index(Name(self.lists.field), (*self.lead, self.word(area, place)))

    def write(self, area: Area, place: Expr) -> Index:
        return Index(Name(self.lists.field), (*self.lead, Slice(self.word(area, place))))

    def call(self, fn: str, *more: Expr) -> Call:
        return Call(fn, (*self.coordinates, *more), (), (self.rows, self.keys))


def kernels(
    module: Module, found: Attention, words: Words, keep: Expr, lists: Lists
) -> tuple[Function, ...]:
    """The kernels, in the order of their launches."""
    consts = module.function(found.schedule.count).consts[:2]
    taken = {lists.field, *consts, *(i.name for i in words.tensors), "i", "j", "args", "T"}
    taken |= {*(f.name for f in module.functions), lists.count, lists.index, lists.slot}
    taken |= {lists.classes, lists.lists, lists.masks}
    taken |= {c for f in module.functions for c in f.consts}
    own = [Fresh(taken) for _ in range(3)]
    classes, listing, masks = (_place(lists, consts, fresh) for fresh in own)
    return (
        _classes(module, found, words, keep, classes, own[0]),
        _list(listing, own[1]),
        _masks(module, found, words, keep, masks, own[2]),
    )


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
    first_key, kind = (Name(fresh(n)) for n in ("first_key", "kind"))
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
    may_hold = bounds.possible(bounded, spans, variables)
    must_hold = bounds.certain(bounded, spans, variables)
    whole = logic.normal(Bool("and", Compare("<=", beyond, KEYS), must_hold))
    pairs = substitute(predicate, {ROW.id: Call("min", (ROW, last))})
    looked = Call(
        "class_of",
        (Lambda(("i", "j"), unbranched(Bool("and", pairs, Compare("<", KEY, KEYS)))),),
        (("at", Tuple((place.first, first_key))),),
        (place.rows, place.keys),
    )
    count: Block = (Assign(kind.id, looked),)
    if may_hold != logic.TRUE:
        count = (If(may_hold, count),)
    if whole != logic.FALSE:
        count = (If(whole, (Assign(kind.id, Num(FULL)),), count),)
    body: Block = (
        Assign(tile.id, place.call(place.lists.index, step)),
        Assign(first_key.id, Binary("*", tile, place.keys)),
        *((Assign(last_key.id, _before(beyond, KEYS)),) if keys else ()),
        *_extremes(keys, place.keys, first_key, last_key),
        Assign(kind.id, Num(SKIP)),
        *count,
        Do(Call("put", (place.write(Area.CLASSES, tile), kind))),
    )
    loop = For(step.id, Call("block_id", (Num(1),)), tiles, Call("grid_dim", (Num(1),)), body)
    statements: Block = (
        *_views(words, predicate),
        *_block(place, fresh),
        Assign(last.id, _before(Binary("+", place.first, place.rows), QUERIES)),
        *_extremes(rows, place.rows, place.first, last),
        Assign(tiles.id, place.call(place.lists.count)),
        loop,
    )
    return _kernel(module, found, place.lists.classes, place.consts, statements)


def _views(words: Words, predicate: Expr) -> Block:
    read = free_names(predicate)
    return tuple(view_of(i) for i in words.tensors if i.name in read)


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
    step, found, partial = (Name(fresh(n)) for n in ("step", "found", "partial"))
    tile = place.call(place.lists.index, step)
    kind = place.read(Area.CLASSES, tile)

    def listed(area: Area, skipped: Compare) -> Call:
        value = Select(skipped, Num(-1), tile)
        return Call(
            "compact",
            (place.write(area, Num(0)), place.call(place.lists.count), Lambda((step.id,), value)),
            (("at", Tuple((Num(0),))),),
        )

    body: Block = (
        *_block(place, fresh),
        Assign(found.id, listed(Area.TILES, Compare("==", kind, Num(SKIP)))),
        Do(Call("put", (place.write(Area.COUNT, Num(0)), found))),
        Assign(partial.id, listed(Area.PARTIALS, Compare("!=", kind, Num(PARTIAL)))),
        Do(Call("put", (place.write(Area.PARTIAL_COUNT, Num(0)), partial))),
        # No key so far: `mask_tiles` widens the range.
        Do(Call("put", (place.write(Area.KEY_BEGIN, Num(0)), KEYS))),
        Do(Call("put", (place.write(Area.KEY_END, Num(0)), Num(0)))),
    )
    if place.lists.queue:
        body = (*body, Do(Call("put", (place.write(Area.QUEUE, Num(0)), Num(0)))))
    return Function(
        "kernel", place.lists.lists, (Param("args"),), place.consts, _OPTIONS, body
    )  # fmt: skip


def _masks(
    module: Module, found: Attention, words: Words, keep: Expr, place: _Place, fresh: Fresh
) -> Function:
    names = ("count", "last", "piece", "slot", "row", "n")
    count, last, piece, slot, row, tile = (Name(fresh(n)) for n in names)
    slots = Attr(ARGS, place.lists.slots)
    predicate = substitute(keep, {**words.sizes, "b": place.batch, "h": place.head})
    pairs = substitute(predicate, {ROW.id: Call("min", (ROW, last))})
    inside = unbranched(Bool("and", pairs, Compare("<", KEY, KEYS)))
    place_of_bits = bits_at(
        place.lists, (place.batch, place.head, place.first), place.consts, slot, row
    )
    parts = Binary("//", place.rows, Num(SHARE))
    put = Call(
        "put_bits",
        (place_of_bits, place.write(Area.KEY_BEGIN, Num(0)), Lambda(("i", "j"), inside)),
        (("at", Tuple((Binary("+", place.first, row), Binary("*", tile, place.keys)))),),
        (Num(SHARE), place.keys),
    )
    # Past the slots goes the last partial tile: its bits lie past the vector's end and are written
    # nowhere, but the range of keys needs them.
    has_slot = Compare("<", slot, slots)
    which = Select(has_slot, slot, Binary("-", count, Num(1)))
    body: Block = (
        Assign(slot.id, Binary("//", piece, parts)),
        Assign(row.id, Binary("*", Binary("%", piece, parts), Num(SHARE))),
        Assign(tile.id, place.read(Area.PARTIALS, which)),
        Do(put),
        If(
            Bool("and", Compare("==", row, Num(0)), has_slot),
            (Do(Call("put", (place.write(Area.CLASSES, tile), Binary("+", Num(BITS), slot)))),),
        ),
    )
    first, lanes = (Call(fn, (Num(1),)) for fn in ("block_id", "grid_dim"))
    tiles = Call("min", (count, Binary("+", slots, Num(1))))
    statements: Block = (
        *_views(words, predicate),
        *_block(place, fresh),
        Assign(last.id, _before(Binary("+", place.first, place.rows), QUERIES)),
        Assign(count.id, place.read(Area.PARTIAL_COUNT, Num(0))),
        For(piece.id, first, Binary("*", tiles, parts), lanes, body),
    )
    return _kernel(module, found, place.lists.masks, place.consts, statements)


_OPTIONS: tuple[tuple[str, Expr], ...] = (("threads", Num(WARP)),)


def _kernel(
    module: Module, found: Attention, name: str, consts: tuple[str, ...], body: Block
) -> Function:
    """The kernel, with the constants of the attention's that its body reads before the tile's."""
    used = frozenset[str]().union(
        *(free_names(e) for _, s in walk_block(body, ()) for e in stmt_exprs(s))
    )
    more = [c for c in module.function(found.kernel).consts if c in used - set(consts)]
    return Function("kernel", name, (Param("args"),), (*more, *consts), _OPTIONS, body)
