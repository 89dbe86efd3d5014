"""Register tiles: made, mapped, reduced, converted."""

from __future__ import annotations

from engine.cuir.nodes import Binary, Expr, Lambda, Name, names_in
from engine.cuir.ops.spec import Effect, RuleContext, Trait, Who, mismatch, no_primitive, op
from engine.cuir.types import (
    DTypeValue,
    GmemTileType,
    LambdaType,
    Layout,
    LayoutValue,
    ListType,
    NameType,
    Partial,
    Scalar,
    TileType,
    Type,
    Unknown,
    vector_layout,
)  # fmt: skip


def _fits_thread(context: RuleContext, tile: TileType) -> TileType:
    """A tile's share of one thread must fit in what a thread can hold."""
    layout = tile.layout
    if layout.base is not None:
        return tile
    threads = (layout.warps or 4) * 32
    size = 4 if tile.dtype in ("f32", "i32") else 2
    registers = layout.rows * layout.cols * size // (4 * threads)
    limit = context.arch.registers_thread
    if registers > limit:
        mismatch(
            f"{layout} takes {registers} registers of every thread, and a thread of "
            f"{context.arch.name} holds {limit}",
            "registers_over_file",
        )
    return tile


LINES = "lines"


def needs_of(layout: Layout) -> str | None:
    """The instruction that a layout belongs to."""
    return layout.family.needs


def _made(context: RuleContext, layout: Type, partial: Partial) -> Type:
    if not isinstance(layout, LayoutValue):
        return Unknown()
    made = layout.layout
    if not context.arch.has(needs_of(made)):
        mismatch(f"{context.arch.name} has no {needs_of(made)}, which {made} is for", "not_on_arch")
    return _fits_thread(context, TileType(made, "f32", partial if made.role == "row" else "no"))


def _zeros(context: RuleContext, layout: Type) -> Type:
    return _made(context, layout, "either")


def _fill(context: RuleContext, layout: Type, value: Type) -> Type:
    zero = isinstance(value, Scalar) and value.value == 0
    return _made(context, layout, "either" if zero else "no")


def is_linear(body: Expr, name: str, free: frozenset[str] = frozenset()) -> bool:
    """Whether `body` is `name` times something free of `name` (or of other partial values)."""
    match body:
        case Name(id):
            return id == name
        case Binary("*", left, right):
            for one, other in ((left, right), (right, left)):
                uses = names_in(other)
                if is_linear(one, name, free) and not uses & (free | {name}):
                    return True
        case Binary("/", left, right):
            uses = names_in(right)
            return is_linear(left, name, free) and not uses & (free | {name})
    return False


def no_bits(op_name: str, tile: TileType) -> None:
    """A tile's bits are packed words: no op but keep_bits sees their elements."""
    if tile.dtype == "bits":
        mismatch(f"{op_name} takes values, and only keep_bits takes a tile's bits")


def in_registers(
    context: RuleContext, op_name: str, tile: TileType, *, lines: bool = False
) -> None:
    """A tile that stays in memory is taken up as a further operand of map or keep, and by no other
    op; `lines`: the op takes whole rows up itself."""
    if tile.in_memory and not (lines and tile.layout.family.name == LINES):
        no_primitive(
            context,
            f"{op_name} takes a tile in registers, and {tile} stays in memory until it is a second "
            "or later operand of map or keep",
        )


def _same_shape(context: RuleContext, op_name: str, tiles: tuple[Type, ...]) -> TileType | None:
    for tile in tiles:
        if isinstance(tile, TileType):
            no_bits(op_name, tile)
    first = tiles[0]
    if not isinstance(first, TileType):
        return None
    in_registers(context, op_name, first, lines=op_name == "map")
    for other in tiles[1:]:
        if not isinstance(other, TileType) or other.layout == first.layout:
            continue
        layout = other.layout
        if layout.role in ("row", "col") and layout.base == first.layout:
            continue
        # Row and column vectors belong to the tile whose rows or columns they share.
        if (
            layout.role == "row"
            and layout.rows == first.layout.rows
            and (layout.family == first.layout.family and first.layout.role != "col")
        ):
            continue
        if (
            layout.role == "col"
            and layout.cols == first.layout.cols
            and (layout.family == first.layout.family and first.layout.role != "row")
        ):
            continue
        mismatch(f"{op_name}: {layout} does not fit {first.layout}", "layout_mismatch")
    return first


def _coordinates(op_name: str, first: TileType, f: Lambda, tiles: int, at: Type | None) -> None:
    extra = len(f.params) - tiles
    if at is None:
        if extra:
            mismatch(
                f"{op_name}: the lambda takes {len(f.params)} values and gets {tiles}; "
                "coordinates need at=[row, column]"
            )
        return
    assert isinstance(at, ListType)
    role = first.layout.role
    wanted = 1 if role in ("row", "col") else 2
    if extra != wanted:
        mismatch(
            f"{op_name}: the lambda takes {tiles} values and then {wanted} coordinate"
            f"{'s' if wanted > 1 else ''}, not {extra}"
        )
    # C++'s at(row) leaves the column at 0: a row vector needs no more, a column vector does.
    if len(at.items) not in ((1, 2) if role == "row" else (2,)):
        mismatch(f"{op_name}: at= takes the row and the column where the tile starts")


def _map(context: RuleContext, tiles: tuple[Type, ...], f: Type, at: Type | None) -> Type:
    first = _same_shape(context, "map", tiles)
    if first is None or not isinstance(f, LambdaType):
        return Unknown()
    _coordinates("map", first, f.node, len(tiles), at)
    if first.dtype != "f32" and first.layout.role not in ("row", "col"):
        mismatch(f"map works on f32 tiles, not on {first}")
    shares = {
        name: t.partial
        for name, t in zip(f.node.params, tiles, strict=False)
        if isinstance(t, TileType) and t.partial != "no"
    }
    partial: Partial = "no"
    used = names_in(f.node.body)
    for name, share in shares.items():
        if name not in used:
            continue
        if is_linear(f.node.body, name, frozenset(shares) - {name}):
            partial = share
        elif share == "yes":
            mismatch(
                f"{name} is a row sum of which each thread holds its share: it may be scaled, "
                "accumulated or given to row_reduce",
                "partial_sum",
            )
    return TileType(first.layout, "f32", partial)


def _keep(context: RuleContext, tiles: tuple[Type, ...], f: Type, at: Type) -> Type:
    tile = _same_shape(context, "keep", tiles)
    if tile is None or not isinstance(f, LambdaType):
        return Unknown()
    if tile.layout.role != "acc" or tile.dtype != "f32":
        mismatch(f"keep masks f32 scores in an accumulator layout, not {tile}", "layout_mismatch")
    _coordinates("keep", tile, f.node, len(tiles) - 1, at)
    return tile


def _reduction(context: RuleContext, name: str, tile: Type, old: Type) -> TileType | None:
    if not isinstance(tile, TileType) or not isinstance(old, TileType):
        return None
    if tile.layout.role != "acc":
        mismatch(f"{name} reduces an accumulator, not {tile}", "layout_mismatch")
    no_bits(name, tile)
    in_registers(context, name, tile, lines=True)
    for part in (tile, old):
        if part.dtype != "f32":
            no_primitive(context, f"{name} takes f32 tiles, not {part}")
    if (
        old.layout.role != "row"
        or old.layout.rows != tile.layout.rows
        or (old.layout.family != tile.layout.family)
    ):
        mismatch(f"{name}: {old} is not a row vector of {tile.layout}", "layout_mismatch")
    return old


def _row_max(context: RuleContext, tile: Type, old: Type) -> Type:
    row = _reduction(context, "row_max", tile, old)
    if row is None:
        return Unknown()
    if row.partial == "yes":
        mismatch("row_max takes whole row values, not a share of a sum", "partial_sum")
    return TileType(row.layout, "f32")


def _row_sum(context: RuleContext, tile: Type, old: Type) -> Type:
    row = _reduction(context, "row_sum", tile, old)
    if row is None:
        return Unknown()
    if row.partial == "no":
        mismatch(
            "row_sum adds each thread's share to its share; this vector already holds whole "
            "values, which row_reduce would count once per thread",
            "partial_sum",
        )
    return TileType(row.layout, "f32", "yes")


def _row_reduce(context: RuleContext, row: Type) -> Type:
    if not isinstance(row, TileType):
        return Unknown()
    if row.layout.role != "row":
        mismatch(f"row_reduce takes a row vector, not {row}", "layout_mismatch")
    if row.partial == "no":
        mismatch("row_reduce adds up shares, and this vector holds whole values", "partial_sum")
    return TileType(row.layout, "f32")


def _convert(context: RuleContext, tile: Type, dtype: Type, layout: Type) -> Type:
    if not isinstance(tile, TileType) or not isinstance(dtype, DTypeValue):
        return Unknown()
    if isinstance(layout, NameType) and layout.name != "a_operand":
        mismatch("convert's layout is a_operand")
    in_registers(context, "convert", tile)
    if tile.layout.role != "acc" or tile.dtype != "f32" or tile.layout.family.a is None:
        mismatch(f"convert takes an f32 accumulator, not {tile}", "layout_mismatch")
    if tile.layout.cols % 16:
        mismatch(
            f"an operand has columns in steps of 16, and {tile.layout} has {tile.layout.cols}",
            "layout_mismatch",
        )
    return _fits_thread(context, TileType(tile.layout.operand(), dtype.dtype.name))


def loaded_as(dtype: str) -> str:
    """What an element of this type is in registers: floats are widened, the others stay."""
    return dtype if dtype in ("i32", "i64", "bool") else "f32"


def _load_vector(context: RuleContext, kind: str, layout: Type, tile: Type) -> Type:
    if not isinstance(layout, LayoutValue) or not isinstance(tile, GmemTileType):
        return Unknown()
    if not tile.vector:
        mismatch(
            f"load_{kind} takes a vector, and {tile.view.field} gives a tile of rows: index "
            "all but its last dimension"
        )
    made = layout.layout
    if made.base is None:
        made = vector_layout("row_of" if kind == "rows" else "col_of", made)
    else:
        no_primitive(
            context,
            f"load_{kind} takes the accumulator's layout itself: load_{kind}[{made.base}], "
            f"not load_{kind}[{made}]",
        )
    if made.role != kind[:-1]:
        mismatch(f"load_{kind} cannot fill {made}", "layout_mismatch")
    # A warpgroup has no registers to spare for a value of every column.
    later = kind == "cols" and made.family.unit == "warpgroup"
    return TileType(made, loaded_as(tile.view.dtype), in_memory=later)


def _load_rows(context: RuleContext, layout: Type, tile: Type) -> Type:
    return _load_vector(context, "rows", layout, tile)


def _load_cols(context: RuleContext, layout: Type, tile: Type) -> Type:
    return _load_vector(context, "cols", layout, tile)


def _of_matrix(name: str, tile: GmemTileType) -> None:
    if tile.vector:
        mismatch(
            f"{name} takes rows of a matrix, and {tile.view.field} gives a vector: index all "
            "but its last two dimensions"
        )


def _load_tile(context: RuleContext, layout: Type, tile: Type, column: Type) -> Type:
    return _load_dense(context, "load_tile", layout, tile)


def _load_output(context: RuleContext, layout: Type, tile: Type) -> Type:
    return _load_dense(context, "load_output", layout, tile)


def _load_dense(context: RuleContext, name: str, layout: Type, tile: Type) -> Type:
    if not isinstance(layout, LayoutValue) or not isinstance(tile, GmemTileType):
        return Unknown()
    _of_matrix(name, tile)
    made = layout.layout
    if made.role != "acc" or made.family.name == LINES:
        mismatch(f"{name} fills an accumulator, not {made}", "layout_mismatch")
    if not context.arch.has(needs_of(made)):
        mismatch(f"{context.arch.name} has no {needs_of(made)}, which {made} is for", "not_on_arch")
    return TileType(made, loaded_as(tile.view.dtype), in_memory=True)


def _load_lines(context: RuleContext, layout: Type, tile: Type, turn: Type) -> Type:
    if not isinstance(layout, LayoutValue) or not isinstance(tile, GmemTileType):
        return Unknown()
    _of_matrix("load_lines", tile)
    made = layout.layout
    if made.role != "acc" or made.family.name != LINES:
        mismatch(f"load_lines fills whole rows ({LINES}), not {made}", "layout_mismatch")
    if loaded_as(tile.view.dtype) != "f32":
        mismatch(f"load_lines takes floats, and {tile.view.field} holds {tile.view.dtype}")
    return _fits_thread(context, TileType(made, "f32", in_memory=True))


def _swap_neighbours(context: RuleContext, tile: Type) -> Type:
    if not isinstance(tile, TileType):
        return Unknown()
    layout = tile.layout
    if layout.family.name != LINES or layout.role == "row":
        mismatch(f"swap_neighbours takes {LINES} or a column vector of theirs, not {tile}")
    return TileType(layout, tile.dtype)


OPS = (
    op(
        "zeros(layout: layout)", "registers", rule=_zeros, execute="registers:zeros", who=Who.PART,
        kind="tile:f32", cost="nothing", lift="zeros<{L:layout}>() -> zeros({L})",
        lower="zeros({L}) -> zeros<{L}>()",
        traits=(Trait.FILLS,),
        doc="An f32 register tile of zeros.",
    ),
    op(
        "fill(layout: layout, value: number)", "registers", rule=_fill, execute="registers:fill",
        who=Who.PART,
        kind="tile:f32", cost="nothing", lift="fill<{L:layout}>({value:f32}) -> fill({L}, {value})",
        lower="fill({L}, {value:f32}) -> fill<{L}>({value})",
        traits=(Trait.FILLS,),
        doc="An f32 register tile of one value.",
    ),
    op(
        "map(tiles: reg..., f: lambda, *, at: coords?)", "registers", rule=_map,
        execute="registers:map_tiles", who=Who.PART,
        kind="tile:{f}", elements="tiles", cost="mapped",
        lift=(
            "map({tiles...}, at({where...}), {f:lambda}) -> map({tiles...}, {f}, at=[{where...}])",
            "map({tiles...}, {f:lambda})",
        ),
        lower=(
            "map({tiles...}, {f:lambda}, at=[{where...}]) -> map({tiles...}, at({where...}), {f})",
            "map({tiles...}, {f:lambda})",
        ),
        doc="Elementwise over the first tile; row and column vectors broadcast. The lambda takes "
            "the tiles' values and then, where `at=[row, column]` says where the tile starts, the "
            "element's global coordinates i, j (a row vector: i only, a column vector: j only).",
    ),
    op(
        "keep(tiles: reg..., f: lambda, *, at: coords)", "registers", rule=_keep,
        execute="registers:keep", who=Who.PART,
        kind="tile:f32", elements="more", condition=True, cost="masked",
        lift="keep({s:tile}, {more...}, at({where...}), {f:lambda})"
            " -> keep({s}, {more...}, {f}, at=[{where...}])",
        lower=(
            "keep({s}, {f:lambda}, at=[{where...}]) -> keep({s}, at({where...}), {f})",
            "keep({s}, {more...}, {f:lambda}, at=[{where...}])"
                " -> keep({s}, {more...}, at({where...}), {f})",
        ),
        traits=(Trait.MASKS,),
        doc="The first tile's scores where the predicate holds, -inf elsewhere. The predicate "
            "takes the values of the other tiles (row and column vectors broadcast), then i, j.",
    ),
    op(
        "row_max(tile: reg, old: reg)", "registers", rule=_row_max, execute="registers:row_max",
        who=Who.PART,
        kind="tile:f32", cost="row_max", lift="row_max({s:tile}, {m:tile})",
        lower="row_max({s}, {m})",
        traits=(Trait.REDUCES,),
        doc="The larger of the old row maximum and the row's largest value, over the whole row.",
    ),
    op(
        "row_sum(tile: reg, old: reg)", "registers", rule=_row_sum, execute="registers:row_sum",
        who=Who.PART,
        kind="tile:f32", cost="row_sum", lift="row_sum({s:tile}, {l:tile})",
        lower="row_sum({s}, {l})",
        traits=(Trait.REDUCES,),
        doc="The old sum plus the row's values, as a share per thread: the result may only be "
            "scaled, accumulated or given to row_reduce.",
    ),
    op(
        "row_reduce(row: reg)", "registers", rule=_row_reduce, execute="registers:row_reduce",
        who=Who.PART,
        kind="tile:f32", cost="row_reduce", lift="row_reduce({l:tile})", lower="row_reduce({l})",
        doc="The threads' shares of a row sum added up: whole row sums.",
    ),
    op(
        "convert(tile: reg, T: dtype, layout: word)", "registers", rule=_convert,
        execute="registers:convert", who=Who.PART,
        kind="tile:f32", cost="convert",
        lift="to_operand<{T:type}>({s:tile}) -> convert({s}, {T}, a_operand)",
        lower="convert({s}, {T}, a_operand) -> to_operand<{T}>({s})",
        doc="An accumulator rounded to T and turned into the left operand of a matmul "
            "(layout is the word `a_operand`).",
    ),
    op(
        "load_rows[layout: layout](tile: tile)", "registers", rule=_load_rows,
        execute="registers:load_rows", who=Who.PART, effects=(Effect.READS_GLOBAL,),
        kind="tile:{src}", cost="load_vector", lift="load_rows<{L}>({src:region})",
        lower="load_rows[{L}]({src})",
        traits=(Trait.BY_ROW,),
        doc="A row vector from global memory: one value for each row of the tile; 0 outside.",
    ),
    op(
        "load_cols[layout: layout](tile: tile)", "registers", rule=_load_cols,
        execute="registers:load_cols", who=Who.PART, effects=(Effect.READS_GLOBAL,),
        kind="tile:{src}", cost="load_vector", lift="load_cols<{L}>({src:region})",
        lower="load_cols[{L}]({src})",
        traits=(Trait.BY_COLUMN,),
        doc="A column vector from global memory: one value for each column of a tile; 0 outside, "
            "before the first too.",
    ),
    op(
        "load_tile[layout: layout](tile: tile, column: int)", "registers", rule=_load_tile,
        execute="registers:load_tile", who=Who.PART, effects=(Effect.READS_GLOBAL,),
        kind="tile:{src}", cost="nothing", lift="load_tile<{L}>({src:region}, {column})",
        lower="load_tile[{L}]({src}, {column})",
        traits=(Trait.BY_ROW, Trait.BY_COLUMN, Trait.LATER),
        doc="An element of global memory for each of an accumulator's: the tile's rows, from "
            "`column` on; 0 outside. On the device it stays in memory until `map` or `keep` takes "
            "it up, two neighbours in one access where strides and alignment allow.",
    ),
    op(
        "load_output[layout: layout](tile: tile)", "registers", rule=_load_output,
        execute="registers:load_output", who=Who.PART, effects=(Effect.READS_GLOBAL,),
        kind="tile:{src}", cost="nothing", lift="load_output<{L}>({src:region})",
        lower="load_output[{L}]({src})",
        traits=(Trait.BY_ROW, Trait.BY_COLUMN, Trait.LATER),
        doc="An element of global memory for each of an output's, behind the loop over keys: the "
            "tile's rows, from their first column on; 0 outside. On the device it stays in memory "
            "until `map` takes it up: with asynchronous matmuls 128 columns at once, 16 bytes in "
            "one access where rows allow, in registers that the scores have left.",
    ),
    op(
        "load_lines[layout: layout](tile: tile, turn: int)", "registers", rule=_load_lines,
        execute="registers:load_lines", who=Who.PART, effects=(Effect.READS_GLOBAL,),
        kind="tile:f32", cost="load_lines", lift="load_lines<{L}>({src:region}, {turn})",
        lower="load_lines[{L}]({src}, {turn})",
        traits=(Trait.LATER,),
        doc="Whole rows in registers, widened: the tile's, turned left by `turn` columns (0 or "
            "more), so that column `turn` of the tensor comes first and its first column after its "
            "last. 16 bytes in one access where strides and alignment allow; absent rows are 0.",
    ),
    op(
        "swap_neighbours(tile: reg)", "registers", rule=_swap_neighbours,
        execute="registers:swap_neighbours", who=Who.PART,
        kind="tile:f32", cost="nothing", lift="swap_neighbours({x:tile})",
        lower="swap_neighbours({x})",
        doc="Lines, or a column vector of theirs, with columns 0 and 1 exchanged, 2 and 3, and so "
            "on.",
    ),
)  # fmt: skip
