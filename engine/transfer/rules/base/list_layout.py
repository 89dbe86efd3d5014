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
    Expr,
    Function,
    Index,
    Module,
    Name,
    Num,
    Return,
    Slice,
    Stmt,
    free_names,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.cuir.rewrite import Block, substitute
from engine.cuir.static.facts import expressions, statements
from engine.cuir.static.kernel_names import Fresh, locals_for
from engine.cuir.text.quote import block, call, expr
from engine.errors import TransferError
from engine.spec.recipes.recipe import Recipe
from engine.transfer.binding import Workspace
from engine.transfer.bounds import reads_pairs
from engine.transfer.linear import tidy
from engine.transfer.match import Attention
from engine.transfer.rules.base.input_views import is_view, names_in
from engine.transfer.rules.base.work_sharing import sharing_of

LANES = 64  # blocks that share a block of rows' candidates, or its tiles' bits
SHARE = 8  # rows whose bits a block makes at a time: one word for each lane
WORDS = 4  # of bits for each row of a tile
WARP = 32
ARGS = Name("args")
ZERO = Num(0)
KEYS, QUERIES = Attr(ARGS, "Nk"), Attr(ARGS, "Nq")
HEADS = Attr(ARGS, "Hq")
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
        product = tiles if times == 1 else expr("times * tiles", times=times, tiles=tiles)
        return expr("before + product", before=before, product=product)


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
        begin = print_expr(self.bits_begin(expr("ceil_div(n, keys)", n="Nk", keys=self.keys)))
        words = f"{begin} + 4 * {rows} * {self.slots}"
        sizes = (f"ceil_div(Nq, {rows})", words)
        return Workspace(self.field, (*dims, *sizes), self.planned, self.slots)

    def of_block(self, b: Expr, h: Expr, block: Expr, place: Expr, *, many: bool = False) -> Index:
        """A word of a block of rows; with `many` those from there on."""
        lead = (b, h, block) if self.per_head else (b, block)
        return Index(Name(self.field), (*lead, Slice(place) if many else place))

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
    _, run = launches(module.function(found.host), found.kernel)[0]
    items = run.args[0].index if isinstance(run.args[0], Index) else ()
    return dict(zip(kernel.consts, items, strict=True))


def launches(host: Function, kernel: str) -> list[tuple[Stmt, Call]]:
    """The statements of the host that run the kernel, at least one, and their calls."""
    out: list[tuple[Stmt, Call]] = []
    for one in statements(host):
        for inner in stmt_exprs(one):
            match inner:
                case Call("run", (Index(Name(name), _) | Name(name), *_)) if name == kernel:
                    out.append((one, inner))
    if not out:
        raise TransferError(f"no launch of {kernel} was found on the host")
    return out


def _tile_consts(module: Module, found: Attention, consts: dict[str, Expr]) -> tuple[Expr, Expr]:
    """The host's expressions of a tile's rows and keys, from the call of the schedule."""
    for node in expressions(module.function(found.kernel)):
        if isinstance(node, Call) and node.fn == found.schedule.count:
            rows, keys = (substitute(p, consts) for p in node.params[:2])
            return rows, keys
    raise TransferError(f"the kernel never calls {found.schedule.count}")


# --- the schedule -------------------------------------------------------------------------------


def from_lists(module: Module, found: Attention, lists: Lists) -> dict[str, Function]:
    """The schedule's functions, reading what the list says, and the one for a tile's slot."""
    names = found.schedule
    count, index, full = (module.function(n) for n in (names.count, names.index, names.full))
    step, tile = Name(index.params[4].name), Name(full.params[4].name)

    def giving(function: Function, value: Expr) -> Function:
        view = Assign(lists.field, view_of_lists(lists, function.consts))
        return replace(function, body=(view, Return(value)))

    kind = word_of(full, lists, Area.CLASSES, tile)
    slot = replace(full, name=lists.slot, consts=full.consts[:2])
    return _passed(module, found, lists) | {
        count.name: giving(count, word_of(count, lists, Area.COUNT)),
        index.name: giving(index, word_of(index, lists, Area.TILES, step)),
        full.name: giving(full, expr("kind == full", kind=kind, full=FULL)),
        lists.slot: giving(slot, expr("kind - bits", kind=kind, bits=BITS)),
    }


def word_of(function: Function, lists: Lists, area: Area, place: Expr = ZERO) -> Index:
    """A word of the block of rows that a function of the schedule is asked about."""
    b, h, q0 = (Name(p.name) for p in function.params[1:4])
    rows, keys = function.consts[:2]
    begin = area.begin(_tiles(keys))
    item = tidy(begin) if place == ZERO else place
    if ZERO not in (begin, place):
        item = Binary("+", begin, place)
    return lists.of_block(b, h, expr("q0 // rows", q0=q0, rows=rows), item)


def _passed(module: Module, found: Attention, lists: Lists) -> dict[str, Function]:
    """How many of a list's first tiles lie behind what some of the rows may keep by indices."""
    if found.schedule.lead is None or lists.passed not in {f.name for f in module.functions}:
        return {}
    lead = module.function(found.schedule.lead)
    b, h, q0, row = (Name(p.name) for p in lead.params[1:5])
    rows, keys = lead.consts[:2]
    fresh = locals_for(module, (lead,), {lists.field, lists.passed, lists.index})
    first, step = fresh("first"), fresh("step")
    own = expr("q0 // rows", q0=q0, rows=rows)
    body = block(
        """
        lists = view
        first = index[rows, keys](args, b, h, q0, passed[*consts](args, b, h, q0, row))
        for step in range(count):
            if tile <= first:
                return step
        return count
        """,
        lists=lists.field, view=view_of_lists(lists, lead.consts), first=first, index=lists.index,
        rows=rows, keys=keys, b=b, h=h, q0=q0, passed=lists.passed, row=row, step=step,
        consts=tuple(map(Name, lead.consts)), count=lists.of_block(b, h, own, ZERO),
        tile=lists.of_block(b, h, own, expr("1 + step", step=step)),
    )  # fmt: skip
    return {lead.name: replace(lead, body=body)}


def _tiles(keys: str) -> Expr:
    """How many tiles of so many keys a row of keys has."""
    return expr("ceil_div(args.Nk, keys)", keys=keys)


def view_of_lists(lists: Lists, consts: tuple[str, ...]) -> Call:
    rows, keys = consts[:2]
    return call(
        "gmem[i32](field, args.B, *heads, ceil_div(args.Nq, rows), begin + words * rows * slots)",
        field=Attr(ARGS, lists.field), heads=(HEADS,) if lists.per_head else (), rows=rows,
        begin=lists.bits_begin(_tiles(keys)), words=WORDS,
        slots=Attr(ARGS, lists.slots),
    )  # fmt: skip


def queue_of(lists: Lists, consts: tuple[str, ...]) -> Index:
    """The word that blocks claim from: that of the first block of rows. The others have one too."""
    place = Area.QUEUE.begin(_tiles(consts[1]))
    return lists.of_block(ZERO, ZERO, ZERO, place, many=True)


def bits_at(
    lists: Lists, coordinates: tuple[Expr, ...], consts: tuple[str, ...], slot: Expr, row: Expr
) -> Index:
    """The bits of a tile in a slot, from its row `row` on. `coordinates` are b, h, q0."""
    b, h, q0 = coordinates
    rows, keys = consts[:2]
    place = expr(
        "begin + words * (slot * rows + row)",
        begin=lists.bits_begin(_tiles(keys)), words=WORDS,
        slot=slot, rows=rows, row=row,
    )  # fmt: skip
    return lists.of_block(b, h, expr("q0 // rows", q0=q0, rows=rows), place, many=True)


def with_view(body: Block, found: Attention, lists: Lists) -> tuple[Block, tuple[str, ...]]:
    """The kernel's body with a view of the lists, behind its other views where it had none; and the
    kernel's own names of a tile's rows and keys."""
    consts = next(
        tuple(p.id for p in node.params if isinstance(p, Name))
        for _, one in walk_block(body, ())
        for whole in stmt_exprs(one)
        for node in walk_expr(whole)
        if isinstance(node, Call) and node.fn == found.schedule.count
    )
    view = Assign(lists.field, view_of_lists(lists, consts))
    if view in body:
        return body, consts
    at = max(n for n, stmt in enumerate(body) if is_view(stmt)) + 1
    return (*body[:at], view, *body[at:]), consts


def insert_after(module: Module, after: str, new: tuple[Function, ...]) -> Module:
    """`new` functions right behind the one called `after`."""
    out: list[Function] = []
    for function in module.functions:
        out.append(function)
        if function.name == after:
            out += new
    return replace(module, functions=tuple(out))
