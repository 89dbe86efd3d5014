"""Tile lists: a mask that depends on data has its tiles found on the device, before the attention.

Two small kernels go before it in the stream. The first one says of every candidate tile of a block
of rows (those that the index part of the mask may keep) whether it holds a kept pair, and whether
only such; it counts the pairs of a tile only where the ranges of the loads leave it open. The
second one writes the tiles that hold a kept pair one after another, in the order in which the
kernel visits them. The tile schedule reads the list. Nothing is allocated and no host waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Do,
    Expr,
    Field,
    For,
    Function,
    If,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Param,
    Return,
    Select,
    Slice,
    Stmt,
    Tuple,
    walk_block,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.errors import TransferError
from engine.spec.recipe import Recipe
from engine.transfer import schedule as intervals
from engine.transfer.binding import Workspace
from engine.transfer.linear import tidy
from engine.transfer.match import Attention
from engine.transfer.ranges import Range, reads_pairs, with_ranges
from engine.transfer.rewrite import (
    Block,
    free_names,
    map_blocks,
    map_function,
    stmt_exprs,
    substitute,
)
from engine.transfer.rules.inputs import view_of
from engine.transfer.rules.words import Words

LANES = 32  # blocks that share a block of rows' candidates
WARP = 32
ARGS, SUCCESS = Name("args"), Name("success")
KEYS, QUERIES = Attr(ARGS, "Nk"), Attr(ARGS, "Nq")
BATCHES, HEADS = Attr(ARGS, "B"), Attr(ARGS, "Hq")
ROW, KEY = intervals.ROW, intervals.KEY
SKIP, PARTIAL, FULL = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Lists:
    """What the tile lists of one module are called, and the constants they are made for.

    `rows` and `keys` are the host's expressions of a tile's rows and keys, `consts` those of all
    the attention kernel's constants.
    """

    field: str
    planned: str
    count: str
    index: str
    classes: str
    lists: str
    per_head: bool
    rows: Expr
    keys: Expr
    consts: tuple[tuple[str, Expr], ...]

    @property
    def workspace(self) -> Workspace:
        """[B, Hq where the mask differs by head, blocks of rows, 1 + 2 * tiles]: how many tiles,
        which, and the class of every candidate."""
        rows, keys = print_expr(self.rows), print_expr(self.keys)
        dims = ("B", "Hq") if self.per_head else ("B",)
        sizes = (f"ceil_div(Nq, {rows})", f"1 + 2 * ceil_div(Nk, {keys})")
        return Workspace(self.field, (*dims, *sizes), self.planned)


def lists_of(module: Module, found: Attention, recipe: Recipe) -> Lists | None:
    """The tile lists that a recipe's mask needs; None where indices alone decide."""
    if not reads_pairs(recipe.keep):
        return None
    fresh = Fresh(
        {f.name for f in module.fields}
        | {f.name for f in module.functions}
        | {i.name for i in recipe.inputs}
        | {c for f in module.functions for c in f.consts}
    )
    consts = _launch_consts(module, found)
    rows, keys = _tile_consts(module, found, consts)
    return Lists(
        fresh("lists"), fresh("planned"), fresh("candidate_count"), fresh("candidate_index"),
        fresh("class_tiles"), fresh("list_tiles"), "h" in free_names(recipe.keep), rows, keys,
        tuple(consts.items()),
    )  # fmt: skip


class Fresh:
    """Names that nothing has yet."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)

    def __call__(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self.taken:
            name, number = f"{wanted}_{number}", number + 1
        self.taken.add(name)
        return name


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

    def at(function: Function, place: Expr) -> Block:
        rows, _ = (Name(c) for c in function.consts[:2])
        b, h, q0 = (Name(p.name) for p in function.params[1:4])
        block = Binary("//", q0, rows)
        view = Assign(lists.field, _view(lists, function.consts))
        lead = (b, h, block) if lists.per_head else (b, block)
        return view, Return(Index(Name(lists.field), (*lead, place)))

    step, tile = Name(index.params[4].name), Name(full.params[4].name)
    made = {
        count.name: replace(count, body=at(count, Num(0))),
        index.name: replace(index, body=at(index, Binary("+", Num(1), step))),
    }
    view, last = at(full, Binary("+", _class_at(full.consts), tile))
    assert isinstance(last, Return) and last.value is not None
    kept = Return(Compare("==", last.value, Num(FULL)))
    made[full.name] = replace(full, body=(view, kept))
    return made


def _view(lists: Lists, consts: tuple[str, ...]) -> Call:
    rows, keys = (Name(c) for c in consts[:2])
    heads = (HEADS,) if lists.per_head else ()
    width = Binary("+", Num(1), Binary("*", Num(2), Call("ceil_div", (KEYS, keys))))
    sizes = (BATCHES, *heads, Call("ceil_div", (QUERIES, rows)), width)
    return Call("gmem", (Attr(ARGS, lists.field), *sizes), (), (Name("i32"),))


def _class_at(consts: tuple[str, ...]) -> Expr:
    """Where a row's classes begin: behind the number and the tiles."""
    return Binary("+", Num(1), Call("ceil_div", (KEYS, Name(consts[1]))))


# --- the kernels --------------------------------------------------------------------------------


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
        Assign(place.lists.field, _view(place.lists, place.consts)),
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
        Do(Call("put", (place.tile(Binary("+", _class_at(place.consts), tile)), kind))),
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
    kind = Index(Name(place.lists.field), (*place.lead, Binary("+", _class_at(place.consts), tile)))
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


# --- the host -----------------------------------------------------------------------------------


def launch_lists(module: Module, found: Attention, lists: Lists) -> Module:
    """The argument struct's two fields, and the two launches before the attention's."""
    fields = (*module.fields, Field(lists.field, "tensor"), Field(lists.planned, "i32"))
    host = module.function(found.host)
    fresh = Fresh(
        {s.target for _, s in walk_block(host.body, ()) if isinstance(s, Assign)}
        | set(host.consts)
        | {f.name for f in module.functions}
    )
    blocks, lanes = Name(fresh("row_blocks")), Name(fresh("lanes"))
    classed, listed = Name(fresh("classed")), Name(fresh("listed"))
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
    build: Block = (
        Assign(blocks.id, Binary("*", Call("ceil_div", (QUERIES, lists.rows)), heads)),
        Assign(lanes.id, Call("max", (Num(1), Call("min", (tiles, Num(LANES)))))),
        Assign(classed.id, run(lists.classes, blocks, lanes)),
        _or_return(classed),
        Assign(listed.id, run(lists.lists, blocks)),
        _or_return(listed),
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
