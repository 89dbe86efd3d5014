"""What happens to q and k before they are multiplied, in small kernels before the attention.

The attention reads q once but each key of K for every block of rows, and by bulk copies that no
arithmetic can stand in: so q and k are made ready once, rounded as the spec rounds them before its
product, in tensors of the caller's that the attention reads instead. A block takes a few rows of
some heads; what all heads share, such as rotary cosines, it loads once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Compare,
    Expr,
    Field,
    Function,
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
    Unary,
    free_names,
    map_stmt_exprs,
    walk_expr,
)
from engine.cuir.rewrite import (
    map_expr,
    map_statements,
    put_before,
    read_names,
    substitute,
    substitute_expr,
)
from engine.cuir.static.facts import own_names
from engine.cuir.static.kernel_names import Fresh
from engine.cuir.text.quote import assign, block, call, expr
from engine.errors import TransferError
from engine.scalar_algebra.evaluate import evaluate
from engine.spec.recipes.recipe import Input, Recipe, places_of, sums_over_heads
from engine.transfer.match import Attention
from engine.transfer.rules.base.input_views import scalar_inputs, size_of, view_of
from engine.transfer.rules.base.list_layout import launches
from engine.transfer.rules.base.prepared_operands import COLUMN, Prepared
from engine.transfer.rules.base.recipe_names import Words
from engine.transfer.rules.base.rule import Case, Rule

ROWS = 16  # of a block
WARPS = 4
HEADS = 4  # that a block goes through, so that what they share is loaded once
ARGS = Name("args")
HEAD = Name("%head")  # of a sum over all heads
PARTNER = Name("%partner")  # of a column: the other one of its pair
MOST = 256  # columns of a head
ZERO = Num(0)
FLOATS = ("T", "f16", "bf16", "f32")
REDUCED = ("sum_over", "max_over")


# --- the kernel ---------------------------------------------------------------------------------


@dataclass
class Writer:
    """The statements of one kernel: `before` those for all heads, `inside` those for one head. Its
    `loads` come first, so that all of them are on their way together.

    Of rows that have `landed` in a shared tile a register tile is the columns from `column` on."""

    item: Prepared
    raw: Input
    view: str  # of q or k itself
    inputs: Mapping[str, Input]
    fresh: Fresh
    layout: Expr
    h: Name
    row0: Expr
    all_heads: tuple[Expr, ...] = ()  # their number, as it may be written
    landed: Expr | None = None
    column: Expr = ZERO
    before: list[Stmt] = field(default_factory=list)
    loads: list[Assign] = field(default_factory=list)
    inside: list[Stmt] = field(default_factory=list)
    known: dict[Expr, Name] = field(default_factory=dict)
    tiles: set[str] = field(default_factory=set)  # the names of tiles
    rows: set[str] = field(default_factory=set)  # and of row vectors that were computed
    elements: dict[str, str] = field(default_factory=dict)  # what lambdas call an element of each

    def value(self, made: Expr) -> Name:
        """The tile of `made`, whose column is `dd`."""
        return self.mapped(self.reduced(made), "ready")

    def reduced(self, e: Expr) -> Expr:
        """`e` with each sum or maximum over columns as a row vector, innermost first."""

        def change(node: Expr) -> Expr | None:
            match node:
                case Call(_, (Lambda((head,), Call() as inner), extent)) if sums_over_heads(node):
                    return self.over_heads(head, inner, extent)
                case Call("sum_over" | "max_over" as fn, (Lambda((column,), body), extent)):
                    return self.reduction(fn, column, self.reduced(body), extent)
            return None

        return map_expr(e, change)

    def over_heads(self, head: str, inner: Call, extent: Expr) -> Name:
        """A sum over the columns of all heads, made before any of them is changed."""
        match inner.args:
            case (Lambda((column,), body), Name("D")) if extent in self.all_heads:
                # The names of what is bound say nothing.
                body = substitute(body, {head: HEAD, column: Name(COLUMN)})
            case _:
                raise TransferError("a sum over some of the heads is carried by no rule")
        if any(isinstance(e, Call) and e.fn in REDUCED for e in walk_expr(body)):
            raise TransferError(
                "a sum over all heads of what is made of sums, such as a variance about their "
                "mean, is carried by no rule: that of the elements or of their squares is"
            )
        key = Call("sum_over", (body, extent))
        if key in self.known:
            return self.known[key]
        g, total = Name(self.fresh("g")), Name(self.fresh("total"))
        one = replace(self, h=g, before=[], loads=[], inside=[], known={})
        terms = one.mapped(substitute(body, {HEAD.id: g}), "terms")
        rows = Index(Name("row_of"), (self.layout,))
        self.before += one.before
        self.before += block(
            """
            total = zeros(rows)
            for g in range(heads):
                *each
                total = row_sum(terms, total)
            total = row_reduce(total)
            """,
            total=total, rows=rows, g=g, heads=Attr(ARGS, self.item.heads),
            each=(*one.loads, *one.inside), terms=terms,
        )  # fmt: skip
        self.row_vector(total)
        self.known[key] = total
        return total

    def reduction(self, fn: str, column: str, body: Expr, extent: Expr) -> Name:
        # The names of bound columns say nothing.
        body = substitute(body, {column: Name(COLUMN)})
        key = Call(fn, (body, extent))
        if key in self.known:
            return self.known[key]
        add = fn == "sum_over"
        if extent != Name("D"):
            other = Num(0.0) if add else Unary("-", Name("inf"))
            inside = expr("c < extent", c=Name(COLUMN), extent=extent)
            body = expr("body if inside else other", body=body, inside=inside, other=other)
        tile = self.mapped(body, "terms")
        out = Name(self.fresh("total" if add else "most"))
        start = "zeros(rows)" if add else "fill(rows, -inf)"
        rows = Index(Name("row_of"), (self.layout,))
        self.inside.append(assign(f"out = {start}", out=out, rows=rows))
        step = "row_sum" if add else "row_max"
        self.inside.append(assign(f"out = {step}(tile, out)", out=out, tile=tile))
        if add:
            self.inside.append(assign("out = row_reduce(out)", out=out))
        self.row_vector(out)
        self.known[key] = out
        return out

    def mapped(self, body: Expr, wanted: str) -> Name:
        """A tile with an element of `body` for each row and column."""
        body = map_expr(_paired(body), self.of_row)
        operands: dict[str, str] = {}  # the names of tiles and vectors, and of their elements

        def element(tile: Name) -> Name:
            operands[tile.id] = self.elements[tile.id]
            return Name(operands[tile.id])

        def change(node: Expr) -> Expr | None:
            match node:
                case Name(id) if id in self.rows:
                    return element(node)
                case Index(Name() as base, (*outer, last)):
                    loaded = self.loaded(node)
                    if loaded is not None:
                        return element(loaded)
                    if PARTNER in walk_expr(last):
                        beside = expr("c + 1 - 2 * floor_mod(c, 2)", c=Name(COLUMN))
                        return Index(base, (*outer, substitute(last, {PARTNER.id: beside})))
            return None

        body = map_expr(body, change)
        body = self.shared(body, operands)
        return self.over(body, operands, wanted, self.inside)

    def over(self, body: Expr, operands: Mapping[str, str], wanted: str, into: list[Stmt]) -> Name:
        """A tile with an element of `body` for each row and column; `operands` are the names of
        tiles and vectors, and of their elements."""
        read = free_names(body)
        tiles = [n for n, e in operands.items() if n in self.tiles and e in read]
        vectors = [n for n, e in operands.items() if n not in self.tiles and e in read]
        if not tiles:
            raise TransferError(f"what {self.item.role} becomes does not read it")
        given = (*tiles, *vectors)
        places = self.item.row in read or COLUMN in read
        own = {self.item.row: Name("i"), COLUMN: Name("j")}
        params = (*(operands[n] for n in given), *(("i", "j") if places else ()))
        f = Lambda(params, substitute(body, own))
        at = (("at", Tuple((self.row0, self.column))),) if places else ()
        out = self.named(wanted, tiles, vectors)
        into.append(Assign(out.id, Call("map", (*map(Name, given), f), at)))
        self.tiles.add(out.id)
        self.elements[out.id] = self.fresh(f"{out.id}_at")
        return out

    def named(self, wanted: str, tiles: list[str], vectors: list[str]) -> Name:
        """What a tile made of these is called."""
        return Name(self.fresh(wanted))

    def shared(self, body: Expr, operands: dict[str, str]) -> Expr:
        """`body` with each product's factors that all heads share as one tile, made before them."""
        ready = {s.target for s in self.before if isinstance(s, Assign)}
        loaded = {e: n for n, e in operands.items() if n in ready}
        heads = {e for n, e in operands.items() if n not in ready} | {self.h.id}

        def change(node: Expr) -> Expr | None:
            if not isinstance(node, Binary) or node.op != "*":
                return None
            factors = _factors(node, heads)
            own = [f for f in factors if free_names(f) & heads]
            rest = [f for f in factors if not free_names(f) & heads]
            read = frozenset[str]().union(*map(free_names, rest)) & loaded.keys()
            if not own or len(read) < 2 or not any(loaded[e] in self.tiles for e in read):
                return None
            tile = self.over(_product(rest), operands, "common", self.before)
            operands[tile.id] = self.elements[tile.id]
            return _product([*own, Name(operands[tile.id])])

        return map_expr(body, change)

    def of_row(self, node: Expr) -> Expr | None:
        """What is made of sums and sizes alone is computed once for a row, as a row vector; so is
        the reciprocal of such a divisor."""
        match node:
            case Binary("/", left, right) if left != Num(1.0):
                shared = self.of_row(Binary("/", Num(1.0), right))
                if shared is not None:
                    return Binary("*", map_expr(left, self.of_row), shared)
        names = free_names(node)
        sums = names & self.rows
        if isinstance(node, Name) or len(sums) != 1 or not self.alone(node, sums):
            return None
        if node in self.known:
            return self.known[node]
        (total,) = sums
        element = self.elements[total]
        out = Name(self.fresh("factor"))
        f = Lambda((element,), substitute(node, {total: Name(element)}))
        self.inside.append(Assign(out.id, Call("map", (Name(total), f))))
        self.row_vector(out)
        self.known[node] = out
        return out

    def row_vector(self, name: Name) -> None:
        self.rows.add(name.id)
        self.elements[name.id] = self.fresh(f"{name.id}_at")

    def alone(self, node: Expr, sums: frozenset[str]) -> bool:
        loads = any(isinstance(e, Index) for e in walk_expr(node))
        return not loads and not free_names(node) & {self.item.row, COLUMN, "b", "h"}

    def loaded(self, load: Index) -> Name | None:
        """The tile or vector with the elements of `load`; None where each is loaded by itself."""
        assert isinstance(load.base, Name)
        *outer, last = load.index
        if PARTNER in walk_expr(last):
            own_place = substitute(last, {PARTNER.id: Name(COLUMN)})
            plain = self.loaded(Index(load.base, (*outer, own_place)))
            return None if plain is None else self.swapped(plain)
        row = Name(self.item.row)
        own = load.base.id == self.view
        item = self.raw if own else self.inputs[load.base.id]
        shift = _shift(last)
        bound = {self.item.row, COLUMN}
        made: Call | None = None
        if own and self.landed is not None:
            made = call("load_shared[layout](tile, column)", layout=self.layout, tile=self.landed,
                        column=self.column)  # fmt: skip
        elif shift is not None and len(outer) and outer[-1] == row and _free(outer[:-1], bound):
            if item.dtype in FLOATS:
                tile = self.region(load.base, outer[:-1], self.row0)
                columns = columns_of(item) if own else _size(item.dims[-1])
                made = call("load_lines[layout](tile, turn)", layout=self.layout, tile=tile,
                            turn=_turn(shift, columns))  # fmt: skip
        elif shift is not None and _free(outer, bound):
            first = self.column if shift == Num(0) else shift
            made = call("load_cols[layout](tile)", layout=self.layout,
                        tile=self.region(load.base, outer, first))  # fmt: skip
        elif last == row and _free(outer, bound):
            made = call("load_rows[layout](tile)", layout=self.layout,
                        tile=self.region(load.base, outer, self.row0))  # fmt: skip
        if made is None:
            return None
        names = ("row", "x") if own else (f"{load.base.id}_tile", f"{load.base.id}_at")
        inside = self.landed is not None or self.h.id in free_names(made)
        return self.once(made, *names, inside=inside, tile=made.fn in ("load_lines", "load_shared"))

    def swapped(self, plain: Name) -> Name:
        made = call("swap_neighbours(tile)", tile=plain)
        element = f"{self.elements[plain.id]}_beside"
        inside = any(s.target == plain.id for s in self.loads)
        return self.once(made, "swapped", element, inside=inside, tile=plain.id in self.tiles)

    def once(self, made: Call, wanted: str, element: str, *, inside: bool, tile: bool) -> Name:
        """The tile or vector that a call makes, which stands once: `inside` among the loads of one
        head."""
        if made in self.known:
            return self.known[made]
        out = Name(self.fresh(wanted))
        self.elements[out.id] = self.fresh(element)
        (self.loads if inside else self.before).append(Assign(out.id, made))
        if tile:
            self.tiles.add(out.id)
        self.known[made] = out
        return out

    def region(self, base: Expr, outer: list[Expr], first: Expr) -> Expr:
        return Index(base, (*outer, Slice(first)))


def _factors(product: Expr, heads: set[str]) -> list[Expr]:
    """The factors of a product. A choice among products gives those that all of it has and that
    read `heads`."""
    match product:
        case Binary("*", left, right):
            return [*_factors(left, heads), *_factors(right, heads)]
        case Unary("-", value):
            return [Num(-1.0), *_factors(value, heads)]
        case Select(cond, then, other) if not free_names(cond) & heads:
            first, second = _factors(then, heads), _factors(other, heads)
            common = [f for f in dict.fromkeys(first) if f in second and free_names(f) & heads]
            for factor in common:
                first.remove(factor)
                second.remove(factor)
            return [*common, Select(cond, _product(first), _product(second))]
    return [product]


def _product(factors: list[Expr]) -> Expr:
    return reduce(lambda a, b: Binary("*", a, b), factors) if factors else Num(1.0)


def _size(dim: str) -> Expr:
    return Name("D") if dim == "D" else size_of(dim)


def columns_of(raw: Input) -> Expr:
    """How many columns the input that is q or k has: all of the head's, or those of a part."""
    place = places_of(raw.dims)[-1]
    return Name("D") if place is None else _size(raw.dims[place])


def _free(parts: list[Expr], names: set[str]) -> bool:
    return not any(free_names(e) & names for e in parts)


def _shift(index: Expr) -> Expr | None:
    """s where `index` is the column plus s."""
    match index:
        case Name(id) if id == COLUMN:
            return Num(0)
        case Binary("+", inner, s) if COLUMN not in free_names(s):
            return _plus(_shift(inner), s)
        case Binary("-", inner, s) if COLUMN not in free_names(s):
            return _plus(_shift(inner), Num(-s.value) if isinstance(s, Num) else Unary("-", s))
    return None


def _plus(shift: Expr | None, more: Expr) -> Expr | None:
    match shift, more:
        case Num(a), Num(b):
            return Num(a + b)
        case Num(0), _:
            return more
    return None


def _paired(body: Expr) -> Expr:
    """`body` where an element beside the column is read as that, in its pair of columns."""

    def change(node: Expr) -> Expr | None:
        match node:
            case Select(Compare("==", Call("floor_mod", (at, Num(2))), Num(parity)) as cond,
                        then, other):  # fmt: skip
                shift = _shift(at)
                if isinstance(shift, Num):  # of a part, which begins at another column
                    own = int(parity + shift.value) % 2
                    return Select(cond, beside(then, own), beside(other, 1 - own))
        return None

    def beside(arm: Expr, parity: int) -> Expr:
        """What it is at even (0) or odd (1) columns."""

        def moved(node: Expr) -> Expr | None:
            match node:
                case Index(base, (*outer, last)) if free_names(last) == {COLUMN}:
                    for column, xor in ((Name(COLUMN), 0), (PARTNER, 1)):
                        at = [
                            evaluate(last, {COLUMN: n}) - (n ^ xor) for n in range(parity, MOST, 2)
                        ]
                        if len(set(at)) == 1:
                            place = column if at[0] == 0 else Binary("+", column, Num(int(at[0])))
                            return Index(base, (*outer, place))
            return None

        return map_expr(arm, moved)

    return map_expr(body, change)


def _turn(shift: Expr, columns: Expr) -> Expr:
    """By how much a row of so many columns is turned left for its element at column + shift. A
    spec reads no element beside a row, so what comes round its end is read by none."""
    half = Binary("//", columns, Num(2))
    match shift, columns:
        case Num(by), Num(count):  # a table may have less columns than what is taken off
            return Num(by % count)
        case Unary("-", by), _ if by == half:
            return half  # rows have a multiple of eight columns: it is as much either way
        case Num(by), _ if by >= 0:
            return shift
        case Num() | Unary("-", _), _:
            return Call("floor_mod", (shift, columns))
    return shift


def canonical(made: Expr, raw: Input, view: str) -> Expr:
    """`made` with loads of q or k from its view [B, heads, rows, columns]."""
    order = places_of(raw.dims)

    def change(node: Expr) -> Expr | None:
        match node:
            case Index(Name(id), index) if id == raw.name:
                items = (Num(0) if n is None else index[n] for n in order)
                return Index(Name(view), tuple(map_expr(e, change) for e in items))
        return None

    return map_expr(made, change)


def kernel_of(
    module: Module, found: Attention, recipe: Recipe, words: Words, item: Prepared
) -> Function:
    """The kernel that fills the item's field."""
    if words.sizes.get("D") != Name("D"):
        raise TransferError("the kernel does not know its head size, which rows of q and k have")
    raw = next(i for i in recipe.inputs if i.role == item.role)
    extra = {i.name: i for i in words.tensors}
    taken = {f.name for f in module.functions} | set(extra) | {"i", "j", "args", "T", "D"}
    fresh = Fresh(taken | {c for f in module.functions for c in f.consts} | {raw.name})
    view, ready = fresh(item.role.upper()), fresh(item.field)
    tiles, b, h, row0 = (Name(fresh(n)) for n in ("row_tiles", "b", "h", "row0"))
    layout = Index(Name("lines"), (Num(ROWS), Name("D"), Num(WARPS)))
    heads, rows = Attr(ARGS, item.heads), Attr(ARGS, item.rows)
    made = canonical(scalar_inputs(item.made, recipe), raw, view)
    made = words.of_before(made, {"b": b, "h": h})
    one_each = Compare("==", Name("Hq"), Name("Hkv")) in recipe.constraints
    numbers = {item.heads, *(("Hq", "Hkv") if one_each else ())}
    all_heads = tuple(Attr(ARGS, n) for n in sorted(numbers))
    writer = Writer(item, raw, view, extra, fresh, layout, h, row0, all_heads)
    value = writer.value(made)
    inside = (*writer.loads, *writer.inside)
    read = read_names((*writer.before, *inside))
    body = block(
        """
        view = gmem[T](raw, args.B, heads, rows, width)
        ready = gmem[T](field, args.B, heads, rows, D)
        *views
        tiles = max(1, ceil_div(rows, count))
        b = block_id(0) // tiles
        row0 = block_id(0) % tiles * count
        *before
        for h in range(block_id(1), heads, grid_dim(1)):
            *inside
            store(place, value)
        """,
        view=view, raw=Attr(ARGS, found.fields[item.role]), heads=heads, rows=rows, D=Name("D"),
        width=columns_of(raw), ready=ready, field=Attr(ARGS, item.field),
        views=tuple(view_of(i, Name("D")) for i in words.tensors if i.name in read),
        tiles=tiles, count=ROWS, b=b, row0=row0, before=tuple(writer.before), h=h, inside=inside,
        place=Index(Name(ready), (b, h, Slice(row0))), value=value,
    )  # fmt: skip
    options = (("threads", Num(32 * WARPS)),)
    return Function("kernel", item.kernel, (Param("args"),), ("T", "D"), options, body)


# --- the module ---------------------------------------------------------------------------------


def prepare(module: Module, case: Case) -> Module:
    """The kernels, their launches before the attention's, and the attention on what they fill."""
    found, items = case.found, case.before
    kernels = tuple(kernel_of(module, found, case.recipe, case.words, i) for i in items)
    for item in items:
        old, new = Attr(ARGS, found.fields[item.role]), Attr(ARGS, item.field)
        for name in (found.kernel, found.host):
            module = map_statements(module, name, _instead(old, new))
    fields = (*module.fields, *(Field(i.field, "tensor") for i in items))
    at = next(n for n, f in enumerate(module.functions) if f.name == found.kernel)
    functions = (*module.functions[:at], *kernels, *module.functions[at:])
    return launched_before(replace(module, fields=fields, functions=functions), found, items)


def _instead(old: Expr, new: Expr) -> Callable[[Stmt], Stmt]:
    return lambda stmt: map_stmt_exprs(stmt, lambda e: substitute_expr(e, old, new))


def launched_before(module: Module, found: Attention, items: tuple[Prepared, ...]) -> Module:
    """The module with a launch for each item's kernel before the attention's."""
    host = module.function(found.host)
    fresh = Fresh(own_names(host) | {f.name for f in module.functions})
    new: list[Stmt] = []
    for item in items:
        new += block(
            """
            status = run(kernel[T, D], [args], grid=[tiles * args.B, lanes], threads=t, shared=0)
            if status != success:
                return status
            """,
            status=fresh(item.status), kernel=item.kernel, D=Name("D"),
            tiles=expr("max(1, ceil_div(rows, count))", rows=Attr(ARGS, item.rows), count=ROWS),
            lanes=Num(1) if any(map(sums_over_heads, walk_expr(item.made)))
            else expr("ceil_div(heads, most)", heads=Attr(ARGS, item.heads), most=HEADS),
            t=32 * WARPS,
        )  # fmt: skip
    first = launches(host, found.kernel)[0][0]
    return put_before(module, host.name, lambda s: tuple(new) if s is first else ())


def _title(case: Case) -> str:
    return f"Make {' and '.join(i.role for i in case.before)} ready before the product"


RULE = Rule(
    "prepare",
    _title,
    "what happens to q and k before they are multiplied is done once, in a small kernel before the "
    "attention, which reads each key for every block of rows: the attention then runs at its own "
    "speed, and the small kernel at that of a copy",
    "before",
    applies=lambda case: bool(case.before),
    edit=prepare,
    after=("inputs",),
)
