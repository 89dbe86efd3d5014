"""Tile lists: a mask that depends on data has its tiles found on the device, before the attention.

Three small kernels go before it in the stream. The first one says of every candidate tile of a
block of rows (those that the index part of the mask may keep) whether it holds a kept pair, and
whether only such; it looks at the pairs of a tile only where the ranges of the loads leave it open.
The second one writes the tiles that hold a kept pair one after another, in the order in which the
kernel visits them. The third one writes the masks of tiles that are kept in part as bits, once for
all heads. The tile schedule reads the list, and a tile's mask its bits. Nothing is allocated and no
host waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Compare,
    Expr,
    Field,
    For,
    Function,
    If,
    Index,
    Module,
    Name,
    Num,
    Return,
    Select,
    Slice,
    Stmt,
    Tuple,
    Unary,
    walk_block,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.errors import TransferError
from engine.spec.recipe import Recipe
from engine.transfer.binding import Workspace
from engine.transfer.linear import tidy
from engine.transfer.match import Attention
from engine.transfer.ranges import reads_pairs
from engine.transfer.rewrite import (
    Block,
    free_names,
    map_blocks,
    map_function,
    stmt_exprs,
    substitute,
)
from engine.transfer.rules.inputs import is_view, names_in
from engine.transfer.rules.names import Fresh, locals_for
from engine.transfer.rules.sharing import sharing_of
from engine.transfer.rules.stage import starts_matmul

LANES = 64  # blocks that share a block of rows' candidates, or its tiles' bits
SHARE = 8  # rows whose bits a block makes at a time: one word for each lane
WORDS = 4  # of bits for each row of a tile
WARP = 32
ARGS, SUCCESS = Name("args"), Name("success")
KEYS, QUERIES = Attr(ARGS, "Nk"), Attr(ARGS, "Nq")
BATCHES, HEADS = Attr(ARGS, "B"), Attr(ARGS, "Hq")
# The class of a tile; a partial one whose bits are in slot s has class BITS + s.
SKIP, PARTIAL, FULL, BITS = 0, 1, 2, 3


class Area(Enum):
    """What the words of a block of rows are, in their order, as (words before it) = a + b * tiles:
    how many tiles hold a kept pair, which, the class of every tile, how many are partial, which,
    the first key that partial ones keep and the one past the last (of the first and the last of
    them), the queue that blocks claim their work from (where they do), the bits."""

    COUNT = (0, 0)
    TILES = (1, 0)
    CLASSES = (1, 1)
    PARTIAL_COUNT = (1, 2)
    PARTIALS = (2, 2)
    KEY_BEGIN = (2, 3)
    KEY_END = (3, 3)
    QUEUE = (4, 3)
    BITS = (5, 3)

    def begin(self, tiles: Expr) -> Expr:
        """The place of its first word. `tiles` is the number of tiles in a row of keys."""
        before, times = self.value
        if not times:
            return Num(before)
        product = tiles if times == 1 else Binary("*", Num(times), tiles)
        return Binary("+", Num(before), product)


@dataclass(frozen=True, slots=True)
class Lists:
    """What the tile lists of one module are called, and the constants they are made for.

    `field`, `planned` and `slots` are fields of the argument struct, `count`, `index`, `slot` and
    `passed` device functions, `classes`, `lists` and `masks` kernels. `rows` and `keys` are the
    host's expressions of a tile's rows and keys, `consts` those of all the attention kernel's
    constants. With a `queue` the attention's blocks claim their work from a word (ticket.py).
    """

    field: str
    planned: str
    slots: str
    count: str
    index: str
    slot: str
    passed: str
    classes: str
    lists: str
    masks: str
    per_head: bool
    queue: bool
    rows: Expr
    keys: Expr
    consts: tuple[tuple[str, Expr], ...]

    @property
    def workspace(self) -> Workspace:
        """[B, Hq where the mask differs by head, blocks of rows, words]; the words are those of
        `Area`, one after another."""
        rows = print_expr(self.rows)
        dims = ("B", "Hq") if self.per_head else ("B",)
        begin = print_expr(self.bits_begin(Call("ceil_div", (Name("Nk"), self.keys))))
        words = f"{begin} + 4 * {rows} * {self.slots}"
        sizes = (f"ceil_div(Nq, {rows})", words)
        return Workspace(self.field, (*dims, *sizes), self.planned, self.slots)

    def bits_begin(self, tiles: Expr) -> Expr:
        """The place of the first word of bits; a queue takes a word before it."""
        return (Area.BITS if self.queue else Area.QUEUE).begin(tiles)


def lists_of(module: Module, found: Attention, recipe: Recipe) -> Lists | None:
    """The tile lists that a recipe's mask needs; None where indices alone decide."""
    if not reads_pairs(recipe.keep):
        return None
    fresh = Fresh(
        {f.name for f in module.fields}
        | {name for i in recipe.inputs for name in (i.name, *i.dims)}
        | names_in(module, found)
    )
    consts = _launch_consts(module, found)
    rows, keys = _tile_consts(module, found, consts)
    return Lists(
        field=fresh("lists"),
        planned=fresh("planned"),
        slots=fresh("slots"),
        count=fresh("candidate_count"),
        index=fresh("candidate_index"),
        slot=fresh("tile_slot"),
        passed=fresh("candidate_lead"),
        classes=fresh("class_tiles"),
        lists=fresh("list_tiles"),
        masks=fresh("mask_tiles"),
        per_head="h" in free_names(recipe.keep),
        queue=sharing_of(module, found) is not None,
        rows=rows,
        keys=keys,
        consts=tuple(consts.items()),
    )


def _launch_consts(module: Module, found: Attention) -> dict[str, Expr]:
    """The host's expression of each of the attention kernel's constants."""
    kernel = module.function(found.kernel)
    run = next(c for _, c in _launches(module.function(found.host), found.kernel))
    items = run.args[0].index if isinstance(run.args[0], Index) else ()
    return dict(zip(kernel.consts, items, strict=True))


def _launches(host: Function, kernel: str) -> list[tuple[Stmt, Call]]:
    out: list[tuple[Stmt, Call]] = []
    for _, stmt in walk_block(host.body, (host.name,)):
        for expr in stmt_exprs(stmt):
            match expr:
                case Call("run", (Index(Name(name), _) | Name(name), *_)) if name == kernel:
                    out.append((stmt, expr))
    if not out:
        raise TransferError(f"no launch of {kernel} was found on the host")
    return out


def _tile_consts(module: Module, found: Attention, consts: dict[str, Expr]) -> tuple[Expr, Expr]:
    """The host's expressions of a tile's rows and keys, from the call of the schedule."""
    kernel = module.function(found.kernel)
    for _, stmt in walk_block(kernel.body, (kernel.name,)):
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                if isinstance(node, Call) and node.fn == found.schedule.count:
                    rows, keys = (substitute(p, consts) for p in node.params[:2])
                    return rows, keys
    raise TransferError(f"the kernel never calls {found.schedule.count}")


# --- the schedule -------------------------------------------------------------------------------


def from_lists(module: Module, found: Attention, lists: Lists) -> dict[str, Function]:
    """The schedule's three functions, reading what the list says."""
    names = found.schedule
    count, index, full = (module.function(n) for n in (names.count, names.index, names.full))

    step, tile = Name(index.params[4].name), Name(full.params[4].name)
    view, last = word_of(full, lists, Area.CLASSES, tile)
    assert isinstance(last, Return) and last.value is not None
    kept = Return(Compare("==", last.value, Num(FULL)))
    slot = Return(Binary("-", last.value, Num(BITS)))
    return _passed(module, found, lists) | {
        count.name: replace(count, body=word_of(count, lists, Area.COUNT, Num(0))),
        index.name: replace(index, body=word_of(index, lists, Area.TILES, step)),
        full.name: replace(full, body=(view, kept)),
        lists.slot: replace(full, name=lists.slot, consts=full.consts[:2], body=(view, slot)),
    }


def word_of(function: Function, lists: Lists, area: Area, place: Expr) -> tuple[Stmt, Stmt]:
    """The body of a function of the schedule that gives a word of its block of rows."""
    rows, _ = (Name(c) for c in function.consts[:2])
    b, h, q0 = (Name(p.name) for p in function.params[1:4])
    block = Binary("//", q0, rows)
    view = Assign(lists.field, view_of_lists(lists, function.consts))
    lead = (b, h, block) if lists.per_head else (b, block)
    begin = area.begin(Call("ceil_div", (KEYS, Name(function.consts[1]))))
    item = tidy(begin) if place == Num(0) else place
    if Num(0) not in (begin, place):
        item = Binary("+", begin, place)
    return view, Return(Index(Name(lists.field), (*lead, item)))


def _passed(module: Module, found: Attention, lists: Lists) -> dict[str, Function]:
    """How many of a list's first tiles lie behind what some of the rows may keep by indices."""
    if found.schedule.lead is None or lists.passed not in {f.name for f in module.functions}:
        return {}
    lead = module.function(found.schedule.lead)
    b, h, q0, row = (Name(p.name) for p in lead.params[1:5])
    rows, keys = (Name(c) for c in lead.consts[:2])
    block = Binary("//", q0, rows)
    at = (b, h, block) if lists.per_head else (b, block)
    passed = Call(lists.passed, (ARGS, b, h, q0, row), (), tuple(Name(c) for c in lead.consts))
    fresh = locals_for(module, (lead,), {lists.field, lists.passed, lists.index})
    first, step = Name(fresh("first")), Name(fresh("step"))
    tile = Index(Name(lists.field), (*at, Binary("+", Num(1), step)))
    count = Index(Name(lists.field), (*at, Num(0)))
    body = (
        Assign(lists.field, view_of_lists(lists, lead.consts)),
        Assign(first.id, Call(lists.index, (ARGS, b, h, q0, passed), (), (rows, keys))),
        For(
            step.id, Num(0), count, Num(1),
            (If(Compare("<=", tile, first), (Return(step),)),),
        ),
        Return(count),
    )  # fmt: skip
    return {lead.name: replace(lead, body=body)}


def view_of_lists(lists: Lists, consts: tuple[str, ...]) -> Call:
    rows, keys = (Name(c) for c in consts[:2])
    heads = (HEADS,) if lists.per_head else ()
    words = lists.bits_begin(Call("ceil_div", (KEYS, keys)))
    bits = Binary("*", Binary("*", Num(WORDS), rows), Attr(ARGS, lists.slots))
    sizes = (BATCHES, *heads, Call("ceil_div", (QUERIES, rows)), Binary("+", words, bits))
    return Call("gmem", (Attr(ARGS, lists.field), *sizes), (), (Name("i32"),))


def queue_of(lists: Lists, consts: tuple[str, ...]) -> Index:
    """The word that blocks claim from: that of the first block of rows. The others have one too."""
    place = Area.QUEUE.begin(Call("ceil_div", (KEYS, Name(consts[1]))))
    first = (Num(0),) * (3 if lists.per_head else 2)
    return Index(Name(lists.field), (*first, Slice(place)))


def bits_at(
    lists: Lists, coordinates: tuple[Expr, ...], consts: tuple[str, ...], slot: Expr, row: Expr
) -> Index:
    """The bits of a tile in a slot, from its row `row` on. `coordinates` are b, h, q0."""
    b, h, q0 = coordinates
    rows, keys = (Name(c) for c in consts[:2])
    block = Binary("//", q0, rows)
    lead = (b, h, block) if lists.per_head else (b, block)
    begin = lists.bits_begin(Call("ceil_div", (KEYS, keys)))
    inside = Binary("*", Num(WORDS), Binary("+", Binary("*", slot, rows), row))
    return Index(Name(lists.field), (*lead, Slice(Binary("+", begin, inside))))


def mask_by_bits(module: Module, found: Attention, lists: Lists) -> Module:
    """Where the kernel masks a partial tile it takes the bits, if the tile has a slot."""
    kernel = module.function(found.kernel)
    fresh = Fresh({lists.field} | names_in(module, found))
    slot, full, bits = (Name(fresh(n)) for n in ("slot", "full", "bits"))

    def edit(stmts: Block) -> Block:
        return _by_bits(stmts, found, lists, slot, full, bits)

    edited = map_blocks(kernel.body, edit)
    if edited == kernel.body:
        return module
    body, _ = with_view(edited, found, lists)
    return map_function(module, kernel.name, lambda f: replace(f, body=body))


def with_view(body: Block, found: Attention, lists: Lists) -> tuple[Block, tuple[str, ...]]:
    """The kernel's body with a view of the lists, behind its other views where it had none; and the
    kernel's own names of a tile's rows and keys."""
    consts = _schedule_consts(body, found)
    view = Assign(lists.field, view_of_lists(lists, consts))
    if view in body:
        return body, consts
    at = max(n for n, stmt in enumerate(body) if is_view(stmt)) + 1
    return (*body[:at], view, *body[at:]), consts


def _schedule_consts(body: Block, found: Attention) -> tuple[str, ...]:
    """The kernel's own names of a tile's rows and keys."""
    for _, stmt in walk_block(body, ()):
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                if isinstance(node, Call) and node.fn == found.schedule.count:
                    return tuple(p.id for p in node.params if isinstance(p, Name))
    return ()


def _by_bits(
    stmts: Block, found: Attention, lists: Lists, slot: Name, full: Name, bits: Name
) -> Block:
    """A tile's class is asked for as soon as the tile is known, so that the mask need not wait.

    Beside an asynchronous matmul its bits are too: their latency passes under the matmul. A tile
    without a slot has them past the vector's end, which loads nothing.
    """
    at = next((n for n, stmt in enumerate(stmts) if _masks_partial(stmt, found)), None)
    known = [
        n for n, stmt in enumerate(stmts[:at])
        if isinstance(stmt, Assign) and isinstance(stmt.value, Call)
        and stmt.value.fn == found.schedule.index
    ]  # fmt: skip
    layout = found.score_layout
    if at is None or not known or layout is None:
        return stmts
    mask = stmts[at]
    assert isinstance(mask, If) and isinstance(mask.cond, Unary)
    ask, (*before, last) = mask.cond.operand, mask.then
    assert isinstance(ask, Call) and isinstance(last, Assign) and isinstance(last.value, Call)
    where = dict(last.value.kwargs)["at"]
    assert isinstance(where, Tuple)
    consts = tuple(p.id for p in ask.params[:2] if isinstance(p, Name))
    row = Binary("%", ask.args[3], Name(consts[0]))
    below = tidy(Binary("-", where.items[0], ask.args[3]))

    def load(place: Expr) -> Assign:
        words = bits_at(lists, ask.args[1:4], consts, place, tidy(Binary("+", row, below)))
        return Assign(bits.id, Call("load_bits", (words,), (), (layout,)))

    has_bits = Compare(">=", slot, Num(0))
    masked = Assign(last.target, Call("keep_bits", (Name(last.target), bits)))
    asked: Block = (Assign(slot.id, Call(lists.slot, ask.args, (), ask.params[:2])),)
    if any(map(starts_matmul, stmts[known[-1] : at])):
        past = Attr(ARGS, lists.slots)
        asked += (Assign(full.id, ask), load(Select(has_bits, slot, past)))
        partial = If(Unary("not", full), (If(has_bits, (masked,), (*before, last)),))
    else:
        partial = If(mask.cond, (If(has_bits, (load(slot), masked), (*before, last)),))
    first = known[-1] + 1
    return (*stmts[:first], *asked, *stmts[first:at], partial, *stmts[at + 1 :])


def _masks_partial(stmt: Stmt, found: Attention) -> bool:
    match stmt:
        case If(Unary("not", Call(full)), (*_, Assign(score, Call("keep", (Name(name), *_)))), ()):
            return full == found.schedule.full and score == name
    return False


# --- the host -----------------------------------------------------------------------------------


def launch_lists(module: Module, found: Attention, lists: Lists) -> Module:
    """The argument struct's three fields, and the three launches before the attention's."""
    numbers = (Field(lists.planned, "i32"), Field(lists.slots, "i32"))
    fields = (*module.fields, Field(lists.field, "tensor"), *numbers)
    host = module.function(found.host)
    fresh = Fresh(
        {s.target for _, s in walk_block(host.body, ()) if isinstance(s, Assign)}
        | {*host.consts, *(p.name for p in host.params)}
        | {f.name for f in module.functions}
    )
    blocks, lanes = Name(fresh("row_blocks")), Name(fresh("lanes"))
    classed, listed, masked = (Name(fresh(n)) for n in ("classed", "listed", "masked"))
    consts = dict(lists.consts)

    def run(kernel: str, *grid: Expr) -> Call:
        given = tuple(
            lists.rows if at == 0 else lists.keys if at == 1 else consts[name]
            for name, at in _const_places(module.function(kernel).consts)
        )
        return Call(
            "run", (Index(Name(kernel), given), Tuple((ARGS,))),
            (("grid", Tuple(grid)), ("threads", Num(WARP)), ("shared", Num(0))),
        )  # fmt: skip

    heads = Binary("*", BATCHES, HEADS) if lists.per_head else BATCHES
    tiles = Call("ceil_div", (KEYS, lists.keys))
    shares = Call("min", (Binary("*", Num(4), lanes), Num(LANES)))
    build: Block = (
        Assign(blocks.id, Binary("*", Call("ceil_div", (QUERIES, lists.rows)), heads)),
        Assign(lanes.id, Call("max", (Num(1), Call("min", (tiles, Num(LANES)))))),
        Assign(classed.id, run(lists.classes, blocks, lanes)),
        _or_return(classed),
        Assign(listed.id, run(lists.lists, blocks)),
        _or_return(listed),
        Assign(masked.id, run(lists.masks, blocks, shares)),
        _or_return(masked),
    )
    statement = If(Compare("==", Attr(ARGS, lists.planned), Num(0)), build)
    places = _launches(host, found.kernel)
    if len(places) > 1:
        raise TransferError(f"{host.name} launches {found.kernel} in {len(places)} places")
    first = places[0][0]

    def before(stmts: Block) -> Block:
        at = next((n for n, s in enumerate(stmts) if s is first), None)
        return stmts if at is None else (*stmts[:at], statement, *stmts[at:])

    module = replace(module, fields=fields)
    return map_function(module, host.name, lambda f: replace(f, body=map_blocks(f.body, before)))


def _const_places(consts: tuple[str, ...]) -> list[tuple[str, int]]:
    """Each constant of a list kernel, the tile's rows and keys (its last two) as 0 and 1."""
    return [(name, at - len(consts) + 2) for at, name in enumerate(consts)]


def _or_return(status: Name) -> If:
    return If(Compare("!=", status, SUCCESS), (Return(status),))


def insert_after(module: Module, after: str, new: tuple[Function, ...]) -> Module:
    """`new` functions right behind the one called `after`."""
    out: list[Function] = []
    for function in module.functions:
        out.append(function)
        if function.name == after:
            out += new
    return replace(module, functions=tuple(out))
