"""The three kernels that make tile lists: one classes the candidates, one writes down which to
visit, one keeps the masks of partial tiles as bits.

A block is one warp. In `class_tiles` several blocks share a block of rows: each looks at every n-th
candidate tile. The extremes of what the mask loads, over the rows and over a tile's keys, decide
most candidates; of the others the pairs are looked at, until some are kept and some are not. In
`mask_tiles` a block makes the bits of eight of a tile's rows at a time, and notes the first and the
last key that partial tiles keep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Expr,
    Field,
    Function,
    If,
    Index,
    Module,
    Name,
    Num,
    Param,
    Stmt,
    free_names,
)
from engine.cuir.rewrite import Block, put_before, stmt_reads, substitute
from engine.cuir.static.facts import own_names
from engine.cuir.static.kernel_names import Fresh
from engine.cuir.text.quote import block, call, expr, stmt
from engine.errors import TransferError
from engine.scalar_algebra.rewrite import FALSE, TRUE
from engine.transfer import bounds, logic
from engine.transfer.bounds import Range, with_ranges
from engine.transfer.linear import tidy
from engine.transfer.match import Attention
from engine.transfer.rules.base.input_views import view_of
from engine.transfer.rules.base.list_layout import (
    ARGS,
    BITS,
    FULL,
    KEYS,
    LANES,
    PARTIAL,
    SHARE,
    SKIP,
    WARP,
    ZERO,
    Area,
    Lists,
    bits_at,
    launches,
    view_of_lists,
)
from engine.transfer.rules.base.recipe_names import Words
from engine.transfer.rules.base.rule import Rule
from engine.transfer.rules.elements.branchless import unbranched
from engine.transfer.schedule import KEY, ROW


@dataclass(frozen=True, slots=True)
class _Place:
    """Names inside one of the kernels, whose block has the rows `q0` on of batch `b` (and of head
    `h` where the mask differs by head)."""

    lists: Lists
    rows: str  # constants: a tile's rows and keys
    keys: str
    b: Name
    h: Expr
    q0: Name
    row_block: Name

    @property
    def consts(self) -> tuple[str, str]:
        return self.rows, self.keys

    def word(self, area: Area, place: Expr, *, many: bool = False) -> Index:
        """A word in an area of this block of rows; with `many` those from there on."""
        begin = area.begin(expr("ceil_div(args.Nk, keys)", keys=self.keys))
        at = begin if place == ZERO else expr("begin + place", begin=begin, place=place)
        return self.lists.of_block(self.b, self.h, self.row_block, at, many=many)

    def put(self, area: Area, place: Expr, value: Expr | int) -> Stmt:
        return stmt("put(word, value)", word=self.word(area, place, many=True), value=value)

    def call(self, fn: str, *more: Expr) -> Call:
        """A device function of the candidates: how many there are, or the one at a step."""
        return call(
            "fn[rows, keys](args, b, h, q0, *more)",
            fn=fn, rows=self.rows, keys=self.keys, b=self.b, h=self.h, q0=self.q0, more=more,
        )  # fmt: skip

    def predicate(self, keep: Expr, words: Words) -> Expr:
        return substitute(keep, {**words.sizes, "b": self.b, "h": self.h})

    def last_row(self, last: Name) -> Stmt:
        text = "last = min(q0 + rows, args.Nq) - 1"
        return stmt(text, last=last, q0=self.q0, rows=self.rows)


def kernels(
    module: Module, found: Attention, words: Words, keep: Expr, lists: Lists
) -> tuple[Function, ...]:
    """The kernels, in the order of their launches."""
    rows, keys = module.function(found.schedule.count).consts[:2]
    taken = {lists.field, rows, keys, *(i.name for i in words.tensors), "i", "j", "args", "T"}
    taken |= {*(f.name for f in module.functions), lists.count, lists.index, lists.slot}
    taken |= {lists.classes, lists.lists, lists.masks}
    taken |= {c for f in module.functions for c in f.consts}
    own = module.function(found.kernel).consts
    bodies: dict[str, Callable[[_Place, Fresh], Block]] = {
        lists.classes: lambda place, fresh: _classes(words, keep, place, fresh),
        lists.lists: _list,
        lists.masks: lambda place, fresh: _masks(words, keep, place, fresh),
    }
    out: list[Function] = []
    for name, body_of in bodies.items():
        fresh = Fresh(taken)
        h: Expr = Name(fresh("h")) if lists.per_head else ZERO
        b, q0, row_block = (Name(fresh(n)) for n in ("b", "q0", "row_block"))
        body = body_of(_Place(lists, rows, keys, b, h, q0, row_block), fresh)
        # The constants of the attention's that the body reads come before the tile's.
        read = frozenset[str]().union(*map(stmt_reads, body))
        consts = (*(c for c in own if c in read - {rows, keys}), rows, keys)
        options = (("threads", Num(WARP)),)
        out.append(Function("kernel", name, (Param("args"),), consts, options, body))
    return tuple(out)


def _block(place: _Place, fresh: Fresh) -> Block:
    """Which block of rows this is: neighbours are blocks of rows of one batch."""
    row_blocks = fresh("row_blocks")
    outer = expr("block_id(0) // row_blocks", row_blocks=row_blocks)
    head: Block = ()
    if place.lists.per_head:
        head = block("h = outer % args.Hq", h=place.h, outer=outer)
        outer = expr("outer // args.Hq", outer=outer)
    return block(
        """
        lists = view
        row_blocks = ceil_div(args.Nq, rows)
        row_block = block_id(0) % row_blocks
        *head
        b = outer
        q0 = row_block * rows
        """,
        lists=place.lists.field, view=view_of_lists(place.lists, place.consts), rows=place.rows,
        row_blocks=row_blocks, row_block=place.row_block, head=head, b=place.b, outer=outer,
        q0=place.q0,
    )  # fmt: skip


def _classes(words: Words, keep: Expr, place: _Place, fresh: Fresh) -> Block:
    last, tiles, step, tile = (Name(fresh(n)) for n in ("last", "tiles", "step", "n"))
    first_key, kind = (Name(fresh(n)) for n in ("first_key", "kind"))
    last_key = Name(fresh("last_key"))
    predicate = place.predicate(keep, words)
    bounded, ranges = with_ranges(predicate, {i.name: i.dtype for i in words.tensors}, fresh)
    rows = [r for r in ranges if r.axis == ROW]
    keys = [r for r in ranges if r.axis == KEY]
    beyond = tidy(expr("first + keys", first=first_key, keys=place.keys))
    spans = (
        *(r.span for r in ranges),
        (KEY, first_key, tidy(expr("beyond - 1", beyond=beyond))),
        (ROW, place.q0, last),
    )
    variables = frozenset(r.variable.id for r in ranges)
    may_hold = bounds.possible(bounded, spans, variables)
    must_hold = bounds.certain(bounded, spans, variables)
    whole = expr("beyond <= args.Nk and must_hold", beyond=beyond, must_hold=must_hold)
    whole = logic.normal(whole)
    count = block(
        "kind = class_of[rows, keys](lambda i, j: inside, at=[q0, first_key])",
        kind=kind, rows=place.rows, keys=place.keys, inside=_inside(predicate, last), q0=place.q0,
        first_key=first_key,
    )  # fmt: skip
    if may_hold != TRUE:
        count = (If(may_hold, count),)
    if whole != FALSE:
        count = (If(whole, (Assign(kind.id, Num(FULL)),), count),)
    text = "last_key = min(beyond, args.Nk) - 1"
    return block(
        """
        *views
        *where
        *last_row
        *row_extremes
        tiles = count
        for step in range(block_id(1), tiles, grid_dim(1)):
            tile = index
            first_key = tile * keys
            *key_extremes
            kind = skip
            *classed
            *put
        """,
        views=_views(words, predicate), where=_block(place, fresh), last_row=place.last_row(last),
        row_extremes=_extremes(rows, place.rows, place.q0, last), tiles=tiles, keys=place.keys,
        count=place.call(place.lists.count), step=step, tile=tile, first_key=first_key,
        index=place.call(place.lists.index, step), kind=kind, skip=SKIP, classed=count,
        key_extremes=(
            *((stmt(text, last_key=last_key, beyond=beyond),) if keys else ()),
            *_extremes(keys, place.keys, first_key, last_key),
        ),
        put=place.put(Area.CLASSES, tile, kind),
    )  # fmt: skip


def _views(words: Words, predicate: Expr) -> Block:
    read = free_names(predicate)
    return tuple(view_of(i) for i in words.tensors if i.name in read)


def _inside(predicate: Expr, last: Name) -> Expr:
    """What is kept of the rows and keys that there are."""
    pairs = substitute(predicate, {ROW.id: expr("min(i, last)", i=ROW, last=last)})
    return unbranched(expr("pairs and j < args.Nk", pairs=pairs, j=KEY))


def _extremes(ranges: list[Range], count: str, first: Expr, last: Expr) -> Block:
    """The least and the largest value of each load, over the rows or keys that there are."""
    out: list[Stmt] = []
    for item in ranges:
        axis = item.axis
        inside = substitute(item.value, {axis.id: expr("min(n, last)", n=axis, last=last)})
        for fn, name in (("least", item.low), ("greatest", item.high)):
            out += block(
                f"name = {fn}[count](lambda *axis: inside, at=[first])",
                name=name, count=count, axis=(axis,), inside=inside, first=first,
            )  # fmt: skip
    return tuple(out)


def _list(place: _Place, fresh: Fresh) -> Block:
    step, found, partial = (Name(fresh(n)) for n in ("step", "found", "partial"))
    tile = place.call(place.lists.index, step)
    return block(
        """
        *where
        found = compact(tile_words, count, lambda *step: -1 if kind == skip else tile, at=[0])
        *put_found
        partial = compact(partial_words, count, lambda *step: -1 if kind != part else tile, at=[0])
        *put_partial
        *put_range
        *put_queue
        """,
        where=_block(place, fresh), found=found, count=place.call(place.lists.count), step=(step,),
        kind=place.word(Area.CLASSES, tile), skip=SKIP, tile=tile,
        tile_words=place.word(Area.TILES, ZERO, many=True),
        put_found=place.put(Area.COUNT, ZERO, found), partial=partial, part=PARTIAL,
        partial_words=place.word(Area.PARTIALS, ZERO, many=True),
        put_partial=place.put(Area.PARTIAL_COUNT, ZERO, partial),
        # No key so far: `mask_tiles` widens the range.
        put_range=(place.put(Area.KEY_BEGIN, ZERO, KEYS), place.put(Area.KEY_END, ZERO, 0)),
        put_queue=(place.put(Area.QUEUE, ZERO, 0),) if place.lists.queue else (),
    )  # fmt: skip


def _masks(words: Words, keep: Expr, place: _Place, fresh: Fresh) -> Block:
    names = ("count", "last", "piece", "slot", "row", "n")
    count, last, piece, slot, row, tile = (Name(fresh(n)) for n in names)
    slots = Attr(ARGS, place.lists.slots)
    predicate = place.predicate(keep, words)
    # Past the slots goes the last partial tile: its bits lie past the vector's end and are written
    # nowhere, but the range of keys needs them.
    which = expr("slot if slot < slots else count - 1", slot=slot, slots=slots, count=count)
    kind = expr("bits + slot", bits=BITS, slot=slot)
    return block(
        """
        *views
        *where
        *last_row
        count = all_partial
        for piece in range(block_id(1), min(count, slots + 1) * (rows // share), grid_dim(1)):
            slot = piece // (rows // share)
            row = piece % (rows // share) * share
            tile = listed
            put_bits[share, keys](
                bits, range_words, lambda i, j: inside, at=[q0 + row, tile * keys]
            )
            if row == 0 and slot < slots:
                *put_class
        """,
        views=_views(words, predicate), where=_block(place, fresh), last_row=place.last_row(last),
        slots=slots, count=count, piece=piece, rows=place.rows, share=SHARE, slot=slot, row=row,
        all_partial=place.word(Area.PARTIAL_COUNT, ZERO), tile=tile, keys=place.keys, q0=place.q0,
        listed=place.word(Area.PARTIALS, which),
        bits=bits_at(place.lists, (place.b, place.h, place.q0), place.consts, slot, row),
        range_words=place.word(Area.KEY_BEGIN, ZERO, many=True), inside=_inside(predicate, last),
        put_class=place.put(Area.CLASSES, tile, kind),
    )  # fmt: skip


# --- the host -----------------------------------------------------------------------------------


def launch_lists(module: Module, found: Attention, lists: Lists) -> Module:
    """The argument struct's three fields, and the three launches before the attention's."""
    numbers = (Field(lists.planned, "i32"), Field(lists.slots, "i32"))
    fields = (*module.fields, Field(lists.field, "tensor"), *numbers)
    host = module.function(found.host)
    fresh = Fresh(own_names(host) | {f.name for f in module.functions})
    blocks, lanes, classed, listed, masked = map(
        fresh, ("row_blocks", "lanes", "classed", "listed", "masked")
    )
    own = dict(lists.consts)

    def consts(kernel: str) -> tuple[Expr, ...]:
        """The host's expressions of a list kernel's constants, of which the tile's are last."""
        names = module.function(kernel).consts[:-2]
        return (*(own[name] for name in names), lists.rows, lists.keys)

    statement = stmt(
        """
        if planned == 0:
            blocks = ceil_div(args.Nq, rows) * heads
            lanes = max(1, min(ceil_div(args.Nk, keys), most))
            classed = run(classes[*c], [args], grid=[blocks, lanes], threads=warp, shared=0)
            if classed != success:
                return classed
            listed = run(lists[*l], [args], grid=[blocks], threads=warp, shared=0)
            if listed != success:
                return listed
            masked = run(masks[*m], [args], grid=[blocks, shares], threads=warp, shared=0)
            if masked != success:
                return masked
        """,
        planned=Attr(ARGS, lists.planned), blocks=blocks, rows=lists.rows, keys=lists.keys,
        heads=expr("args.B * args.Hq" if lists.per_head else "args.B"), lanes=lanes, most=LANES,
        classed=classed, classes=lists.classes, c=consts(lists.classes), warp=WARP, listed=listed,
        lists=lists.lists, l=consts(lists.lists), masked=masked, masks=lists.masks,
        m=consts(lists.masks), shares=expr("min(4 * lanes, most)", lanes=lanes, most=LANES),
    )  # fmt: skip
    places = launches(host, found.kernel)
    if len(places) > 1:
        raise TransferError(f"{host.name} launches {found.kernel} in {len(places)} places")
    first = places[0][0]
    module = replace(module, fields=fields)
    return put_before(module, host.name, lambda s: (statement,) if s is first else ())


LAUNCH = Rule(
    "launch_lists",
    "Make the lists before the attention",
    "three small kernels make the lists in the attention's stream: the host does not wait and "
    "allocates nothing; the caller gives the memory, and may say that it holds the lists already",
    "mask",
    applies=lambda case: case.lists is not None,
    edit=lambda module, case: launch_lists(module, case.found, case.the_lists()),
    after=("listed",),
)
