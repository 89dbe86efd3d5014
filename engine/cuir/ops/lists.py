"""What a warp finds out about a mask that depends on data: counts, ranges, lists of tiles."""

from __future__ import annotations

from engine.cuir.ops.registers import in_registers
from engine.cuir.ops.spec import Effect, RuleContext, Trait, Who, mismatch, op
from engine.cuir.types import (
    GmemTileType,
    LambdaType,
    LayoutValue,
    ListType,
    Nothing,
    Scalar,
    TileType,
    Type,
    Unknown,
)  # fmt: skip

I32 = Scalar("i32")
MOST_COLUMNS = 128  # whose bits fit in a row's four words


def _coordinates(name: str, f: Type, at: Type, wanted: int) -> None:
    if isinstance(at, ListType) and len(at.items) != wanted:
        mismatch(f"{name}: at= takes {wanted} number{'s' if wanted > 1 else ''}, where it starts")
    if isinstance(f, LambdaType) and len(f.node.params) != wanted:
        mismatch(f"{name}: the lambda takes {wanted} coordinate{'s' if wanted > 1 else ''}")


def _positive(name: str, *sizes: Type) -> None:
    for size in sizes:
        if isinstance(size, Scalar) and size.value is not None and size.value <= 0:
            mismatch(f"{name} needs sizes above 0, not {size.value}", "bad_value")


def _class_of(context: RuleContext, rows: Type, cols: Type, f: Type, at: Type) -> Type:
    _positive("class_of", rows, cols)
    _coordinates("class_of", f, at, 2)
    return I32


def _fits_words(name: str, cols: int) -> None:
    if cols % 8 or cols > MOST_COLUMNS:
        mismatch(f"{name}: a row's bits are four words of 8 to {MOST_COLUMNS} columns, not {cols}")


def _put_bits(
    context: RuleContext, rows: Type, cols: Type, dst: Type, ends: Type, f: Type, at: Type
) -> Type:
    _positive("put_bits", rows, cols)
    if isinstance(cols, Scalar) and cols.value is not None:
        _fits_words("put_bits", int(cols.value))
    _integers("put_bits", dst)
    _integers("put_bits", ends)
    _coordinates("put_bits", f, at, 2)
    return Nothing()


def _load_bits(context: RuleContext, layout: Type, src: Type) -> Type:
    if not isinstance(layout, LayoutValue):
        return Unknown()
    made = layout.layout
    if made.role != "acc":
        mismatch(f"load_bits takes the bits of an accumulator, not of {made}", "layout_mismatch")
    needs = made.family.needs
    if not context.arch.has(needs):
        mismatch(f"{context.arch.name} has no {needs}, which {made} is for", "not_on_arch")
    _fits_words("load_bits", made.cols)
    _integers("load_bits", src)
    return TileType(made, "bits")


def _keep_bits(context: RuleContext, tile: Type, bits: Type) -> Type:
    if not isinstance(tile, TileType):
        return Unknown()
    if tile.layout.role != "acc" or tile.dtype != "f32":
        mismatch(f"keep_bits masks f32 scores in an accumulator layout, not {tile}")
    in_registers(context, "keep_bits", tile)
    if isinstance(bits, TileType) and (bits.dtype, bits.layout) != ("bits", tile.layout):
        mismatch(
            f"keep_bits takes what load_bits[{tile.layout}] loaded, not {bits}", "layout_mismatch"
        )
    return tile


def _extreme(context: RuleContext, count: Type, f: Type, at: Type) -> Type:
    _positive("least and greatest", count)
    _coordinates("least and greatest", f, at, 1)
    return I32


def _integers(name: str, dst: Type) -> None:
    if isinstance(dst, GmemTileType):
        if not dst.vector:
            mismatch(
                f"{name} takes a vector, and {dst.view.field} gives a tile of rows: index all but "
                "its last dimension"
            )
        if dst.view.dtype != "i32":
            mismatch(f"{name} takes i32, and {dst.view.field} holds {dst.view.dtype}")


def _put(context: RuleContext, dst: Type, value: Type) -> Type:
    _integers("put", dst)
    return Nothing()


def _compact(context: RuleContext, dst: Type, count: Type, f: Type, at: Type) -> Type:
    _integers("compact", dst)
    _coordinates("compact", f, at, 1)
    return I32


OPS = (
    op(
        "class_of[R: int, C: int](f: lambda, *, at: coords)", "lists", rule=_class_of,
        execute="lists:class_of", who=Who.PART,
        kind="i32", condition=True, cost="count_kept",
        lift="class_of<{R}, {C}>(at({where...}), {f:lambda})"
            " -> class_of[{R}, {C}]({f}, at=[{where...}])",
        lower="class_of[{R}, {C}]({f:lambda}, at=[{where...}])"
            " -> class_of<{R}, {C}>(at({where...}), {f})",
        between=(0, 2),
        doc="Whether the predicate holds for none (0), some (1) or all (2) of the R x C pairs from "
            "`at=[row, column]` on. Each warp finds it for itself, and stops once it is some.",
    ),
    op(
        "put_bits[R: int, C: int](dst: tile, ends: tile, f: lambda, *, at: coords)", "lists",
        rule=_put_bits, execute="lists:put_bits", who=Who.PART, effects=(Effect.WRITES_GLOBAL,),
        condition=True, cost="put_bits",
        lift="put_bits<{R}, {C}>({dst:region}, {ends:region}, at({where...}), {f:lambda})"
            " -> put_bits[{R}, {C}]({dst}, {ends}, {f}, at=[{where...}])",
        lower="put_bits[{R}, {C}]({dst}, {ends}, {f:lambda}, at=[{where...}])"
            " -> put_bits<{R}, {C}>({dst}, {ends}, at({where...}), {f})",
        doc="Whether the predicate holds for each of the R x C pairs from `at=[row, column]` on, "
            "as bits in an i32 vector: four words for each row, as load_bits takes them. Each warp "
            "writes all of them. The first two elements of `ends` are widened, by atomics, to hold "
            "the first column of a pair that is kept and the one past the last.",
    ),
    op(
        "load_bits[layout: layout](src: tile)", "lists", rule=_load_bits,
        execute="lists:load_bits", who=Who.PART, effects=(Effect.READS_GLOBAL,),
        kind="tile:bool", cost="load_bits", lift="load_bits<{L}>({src:region})",
        lower="load_bits[{L}]({src})",
        doc="A bit for each element of an accumulator, as put_bits wrote them; not set outside the "
            "vector. Those of the tile's first row begin at the vector's first element. Held in "
            "registers, one word for each row of a thread, for keep_bits alone.",
    ),
    op(
        "keep_bits(tile: reg, bits: reg)", "lists", rule=_keep_bits, execute="lists:keep_bits",
        who=Who.PART,
        kind="tile:f32", cost="keep_bits", lift="keep_bits({s:tile}, {bits:tile})",
        lower="keep_bits({s}, {bits})",
        traits=(Trait.MASKS,),
        doc="The tile's scores where their bit is set, -inf elsewhere.",
    ),
    op(
        "least[N: int](f: lambda, *, at: coords)", "lists", rule=_extreme, execute="lists:least",
        who=Who.PART,
        kind="i32", cost="extreme",
        lift="least<{N}>(at({where...}), {f:lambda}) -> least[{N}]({f}, at=[{where...}])",
        lower="least[{N}]({f:lambda}, at=[{where...}]) -> least<{N}>(at({where...}), {f})",
        doc="The smallest of f(first) to f(first + N - 1), whole numbers. Each warp finds it for "
            "itself.",
    ),
    op(
        "greatest[N: int](f: lambda, *, at: coords)", "lists", rule=_extreme,
        execute="lists:greatest", who=Who.PART,
        kind="i32", cost="extreme",
        lift="greatest<{N}>(at({where...}), {f:lambda}) -> greatest[{N}]({f}, at=[{where...}])",
        lower="greatest[{N}]({f:lambda}, at=[{where...}]) -> greatest<{N}>(at({where...}), {f})",
        doc="The largest of f(first) to f(first + N - 1), whole numbers. Each warp finds it for "
            "itself.",
    ),
    op(
        "put(dst: tile, value: int)", "lists", rule=_put, execute="lists:put", who=Who.PART,
        effects=(Effect.WRITES_GLOBAL,),
        cost="put", lift="put({dst:region}, {value:i32})", lower="put({dst}, {value})",
        doc="A whole number to the first element of an i32 vector; outside the tensor nothing is "
            "written. One lane of each warp writes it.",
    ),
    op(
        "compact(dst: tile, count: int, f: lambda, *, at: coords)", "lists", rule=_compact,
        execute="lists:compact", who=Who.PART,
        effects=(Effect.READS_GLOBAL, Effect.WRITES_GLOBAL),
        kind="i32", cost="compact",
        lift="compact({dst:region}, {count:i32}, at({where...}), {f:lambda})"
            " -> compact({dst}, {count}, {f}, at=[{where...}])",
        lower="compact({dst}, {count}, {f:lambda}, at=[{where...}])"
            " -> compact({dst}, {count}, at({where...}), {f})",
        doc="Writes those of f(first) to f(first + count - 1) that are not negative to an i32 "
            "vector, one after another in this order, and gives how many they are. Each warp does "
            "all of it for itself.",
    ),
)  # fmt: skip
