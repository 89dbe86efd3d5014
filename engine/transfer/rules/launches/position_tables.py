"""Products of q or k with embeddings of positions, which a score adds to q.k.

A pair reads one product of its row with one of a few embeddings. The products of every row with
all of them are made once, in a small kernel before the attention, in float32: the attention then
reads a table, as it reads any other input.
"""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import (
    Attr,
    Call,
    Expr,
    Function,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Param,
    Slice,
)
from engine.cuir.rewrite import read_names
from engine.cuir.static.kernel_names import Fresh
from engine.cuir.text.quote import block
from engine.errors import TransferError
from engine.scalar_algebra.rewrite import map_children
from engine.spec.attention.relative import PLACE, relative_of
from engine.spec.recipes.recipe import Input, Recipe, Role
from engine.transfer.match import Attention
from engine.transfer.rules.base.input_views import scalar_inputs, size_of, view_of
from engine.transfer.rules.base.prepared_operands import Prepared
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.launches.prepare import (
    ARGS,
    ROWS,
    WARPS,
    Writer,
    canonical,
    columns_of,
    launched_before,
)

_OF_ROLE = {"q": ("i", "Nq"), "k": ("j", "Nk")}


def with_tables(recipe: Recipe, module: Module) -> Recipe:
    """The recipe with a table for each such product: an input that the launch itself fills."""
    q, k = (next(i.name for i in recipe.inputs if i.role == role) for role in ("q", "k"))
    taken = {f.name for f in module.fields} | {f.name for f in module.functions}
    fresh = Fresh(taken | {n for i in recipe.inputs for n in (i.name, *i.dims)})
    dims = {i.name: i.dims for i in recipe.inputs}
    made: dict[Expr, Input] = {}

    def read(e: Expr) -> Expr:
        found = relative_of(e, q, k)
        if found is None:
            return map_children(e, read)
        row, rows = _OF_ROLE[found.role]
        value = Call("sum_over", (Lambda((found.column,), found.body), found.extent))
        if value not in made:
            name = fresh(f"{found.role}_{found.table}")
            width = dims[found.table][found.axis]
            made[value] = Input(name, "extra", "f32", ("B", "Hq", width, rows), made=value)
        at = (Name("b"), Name("h"), found.place, Name(row))
        return Index(Name(made[value].name), at)

    score = read(recipe.score)
    return replace(recipe, score=score, inputs=(*recipe.inputs, *made.values()))


def _item(table: Input) -> Prepared:
    """What the writer of kernels before the product asks of a table."""
    role: Role = "q" if table.dims[-1] == "Nq" else "k"
    assert table.made is not None
    row, rows = _OF_ROLE[role]
    return Prepared(role, table.made, row, "Hq", rows, table.name, f"fill_{table.name}")


def kernel_of(module: Module, found: Attention, case: Case, table: Input) -> Function:
    """The kernel that fills a table: a row at a time with every embedding."""
    words, item = case.words, _item(table)
    if words.sizes.get("D") != Name("D"):
        raise TransferError("the kernel does not know its head size, which rows of q and k have")
    raw = next(i for i in case.recipe.inputs if i.role == item.role)
    extra = {i.name: i for i in words.tensors}
    taken = {f.name for f in module.functions} | set(extra) | {"i", "j", "args", "T", "D"}
    fresh = Fresh(taken | {c for f in module.functions for c in f.consts} | {raw.name})
    view = fresh(item.role.upper())
    tiles, b, h, row0, place = (Name(fresh(n)) for n in ("row_tiles", "b", "h", "row0", "place"))
    layout = Index(Name("lines"), (Num(ROWS), Name("D"), Num(WARPS)))
    made = canonical(scalar_inputs(item.made, case.recipe), raw, view)
    made = words.of_before(made, {"b": b, "h": h, PLACE: place})
    assert isinstance(made, Call) and isinstance(made.args[0], Lambda)
    writer = Writer(item, raw, view, extra, fresh, layout, place, row0)
    total = writer.reduction("sum_over", made.args[0].params[0], made.args[0].body, made.args[1])
    inside = (*writer.loads, *writer.inside)
    read = read_names((*writer.before, *inside)) | {table.name}
    heads, rows = Attr(ARGS, item.heads), Attr(ARGS, item.rows)
    own = Attr(ARGS, "Hkv" if item.role == "k" and "Hkv" in words.sizes else "Hq")
    body = block(
        """
        view = gmem[T](raw, args.B, own, rows, width)
        *views
        tiles = max(1, ceil_div(rows, count))
        b = block_id(0) // tiles
        row0 = block_id(0) % tiles * count
        for h in range(block_id(1), heads, grid_dim(1)):
            *before
            for place in range(places):
                *inside
                store_rows(at, total)
        """,
        view=view, raw=Attr(ARGS, found.fields[item.role]), own=own, heads=heads, rows=rows,
        width=columns_of(raw), tiles=tiles, count=ROWS, b=b, row0=row0, h=h, place=place,
        places=size_of(table.dims[2]), before=tuple(writer.before), inside=inside, total=total,
        views=tuple(view_of(i, Name("D")) for i in words.tensors if i.name in read),
        at=Index(Name(table.name), (b, h, place, Slice(row0))),
    )  # fmt: skip
    options = (("threads", Num(32 * WARPS)),)
    return Function("kernel", item.kernel, (Param("args"),), ("T", "D"), options, body)


def fill(module: Module, case: Case) -> Module:
    """The kernels that fill the tables, and their launches before the attention's."""
    found = case.found
    kernels = tuple(kernel_of(module, found, case, table) for table in case.tables)
    at = next(n for n, f in enumerate(module.functions) if f.name == found.kernel)
    functions = (*module.functions[:at], *kernels, *module.functions[at:])
    items = tuple(map(_item, case.tables))
    return launched_before(replace(module, functions=functions), found, items)


def _title(case: Case) -> str:
    of = [case.theirs.get(t.name, t.name) for t in case.tables]
    return f"Fill the table{'s' * (len(of) > 1)} {' and '.join(of)} before the attention"


RULE = Rule(
    "tables",
    _title,
    "the score adds products of rows with embeddings of positions: those of a row with all of them "
    "are made once, in a small kernel before the attention, which reads one for each pair",
    "score",
    applies=lambda case: bool(case.tables),
    edit=fill,
    after=("landed",),
)
