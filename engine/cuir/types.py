"""CuIR's types: what an expression is, before anything runs.

A register tile's type carries its element type, its shape and a symbolic layout; two layouts that
differ never meet silently. Sizes are plain integers: they come from the host's launch, which fixes
every compile-time constant of a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.cuir.nodes import Lambda

Partial = Literal["no", "yes", "either"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: name, size in bytes, and what it holds."""

    name: str
    size: int
    holds: Literal["float", "int", "bool"]


DTYPES = {
    d.name: d
    for d in (
        DType("f16", 2, "float"),
        DType("bf16", 2, "float"),
        DType("f32", 4, "float"),
        DType("i32", 4, "int"),
        DType("i64", 8, "int"),
        DType("bool", 1, "bool"),
    )
}
F32, I32, I64, BOOL = DTYPES["f32"], DTYPES["i32"], DTYPES["i64"], DTYPES["bool"]


@dataclass(frozen=True, slots=True)
class LayoutFamily:
    """How the registers of one matrix instruction hold a tile.

    `acc` and `a` name the layouts of the accumulator and of the left operand (None: it has none);
    `needs` is the instruction (see arch.toml; None: no special one); `unit` says who holds one
    tile: the whole block or a warpgroup. An accumulator is stored to a shared tile where
    `stores_shared`, and straight to global memory as one of the types `stores_global`.
    """

    name: str
    acc: str
    a: str | None
    needs: str | None
    unit: Literal["block", "warpgroup"]
    row_step: int
    stores_shared: bool
    stores_global: tuple[str, ...]
    doc: str


FAMILIES = (
    LayoutFamily(
        "mma", "mma_acc", "mma_a", "mma_sync", "block", 16, True, (),
        "mma.sync fragments; rows are dealt to the block's warps, 16 at a time",
    ),
    LayoutFamily(
        "wgmma", "wgmma_acc", "wgmma_a", "wgmma", "warpgroup", 64, False, ("f16", "bf16"),
        "wgmma fragments of one warpgroup; 16 rows to each of its four warps per 64",
    ),
    LayoutFamily(
        "lines", "lines", None, None, "block", 4, False, ("f16", "bf16", "f32"),
        "whole rows, eight neighbouring columns to a lane; rows are dealt to the block's warps, at "
        "least four to each",
    ),
)  # fmt: skip
_ROLE_OF = {f.acc: (f, "acc") for f in FAMILIES} | {
    f.a: (f, "a") for f in FAMILIES if f.a is not None
}
LAYOUT_NAMES = (*_ROLE_OF, "row_of", "col_of")


@dataclass(frozen=True, slots=True)
class Layout:
    """`mma_acc[M, N, WARPS]`, `wgmma_acc[M, N]`, their `_a` operands, `lines[M, N, WARPS]`,
    `row_of[..]`, `col_of[..]`.

    `rows` and `cols` are the tile's; a row vector has one column, a column vector one row.
    """

    kind: str
    rows: int
    cols: int
    warps: int | None = None
    base: Layout | None = None

    @property
    def role(self) -> str:
        """acc, a, row or col."""
        if self.base is not None:
            return "row" if self.kind == "row_of" else "col"
        return _ROLE_OF[self.kind][1]

    @property
    def family(self) -> LayoutFamily:
        return self.base.family if self.base is not None else _ROLE_OF[self.kind][0]

    def operand(self) -> Layout:
        """The left-operand layout that holds the same elements as this accumulator."""
        assert self.family.a is not None
        return Layout(self.family.a, self.rows, self.cols, self.warps)

    def __str__(self) -> str:
        if self.base is not None:
            return f"{self.kind}[{self.base}]"
        dims = [self.rows, self.cols] + ([self.warps] if self.warps is not None else [])
        return f"{self.kind}[{', '.join(map(str, dims))}]"


def make_layout(kind: str, dims: tuple[int, ...]) -> Layout:
    """A layout from its name and constants. Raises `ValueError` that says what is wrong."""
    family, role = _ROLE_OF[kind]
    wanted = 3 if family.unit == "block" else 2
    if len(dims) != wanted:
        names = "M, N, WARPS" if wanted == 3 else "M, N"
        raise ValueError(f"{kind} takes {wanted} constants ({names}), not {len(dims)}")
    rows, cols = dims[0], dims[1]
    warps = dims[2] if wanted == 3 else None
    step = family.row_step * (warps or 1)
    if min(dims) <= 0 or rows % step:
        raise ValueError(f"{kind} needs a row count that is a multiple of {step}, not {rows}")
    if cols % 8 or (role == "a" and cols % 16):
        raise ValueError(f"{kind} needs columns in steps of {16 if role == 'a' else 8}, not {cols}")
    return Layout(kind, rows, cols, warps)


def vector_layout(kind: str, base: Layout) -> Layout:
    """`row_of[base]` or `col_of[base]`."""
    if base.base is not None:
        raise ValueError(f"{kind} takes a tile layout, not {base}")
    if kind == "row_of":
        return Layout(kind, base.rows, 1, None, base)
    return Layout(kind, 1, base.cols, None, base)


# --- the type of a value ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scalar:
    """A run-time or compile-time number; `value` where it is known before the run."""

    dtype: str  # i32, i64, f32, bool
    value: int | float | bool | None = None


@dataclass(frozen=True, slots=True)
class TileType:
    """A register tile. `partial` marks a row sum that each thread holds a share of.

    `either` is a row vector of zeros: a share and a whole at once. `in_memory`: on the device its
    elements stay in global memory until an op takes them up.
    """

    layout: Layout
    dtype: str
    partial: Partial = "no"
    in_memory: bool = False

    def __str__(self) -> str:
        tail = " partial" if self.partial == "yes" else " in memory" if self.in_memory else ""
        return f"{self.dtype} {self.layout}{tail}"


@dataclass(frozen=True, slots=True)
class SharedType:
    """A shared-memory tile, or `stages` of them one after another. `offset` in bytes.

    `pitch`: the tile is the first `cols` of one with that many columns; None: it is a whole one.
    `skew`: bytes from a multiple of the arch's `async_tile` to the start of a stage, where they are
    known although `offset` is not.
    """

    dtype: str
    rows: int
    cols: int
    offset: int | None = None
    stages: int | None = None
    transposed: bool = False
    pitch: int | None = None
    skew: int | None = None

    @property
    def tile_bytes(self) -> int:
        """Of one tile's elements: fewer than it spans where it is the first columns of another."""
        return self.rows * self.cols * DTYPES[self.dtype].size

    @property
    def bytes(self) -> int:
        """Of all stages."""
        return self.tile_bytes * (self.stages or 1)

    def __str__(self) -> str:
        shape = f"{self.rows} x {self.cols}"
        if self.pitch is not None:
            shape += f" of {self.pitch}"
        if self.transposed:
            shape = f"transpose of {shape}"
        return f"shared {self.dtype} {shape}" + (f" x {self.stages} stages" if self.stages else "")


@dataclass(frozen=True, slots=True)
class GmemType:
    """A view of a tensor field: rank 1 to 4."""

    field: str
    dtype: str
    rank: int

    def __str__(self) -> str:
        return f"view of {self.field} ({self.dtype}, rank {self.rank})"


@dataclass(frozen=True, slots=True)
class GmemTileType:
    """Rows of a view from a start row on: a matrix, or a vector when only the rows are left."""

    view: GmemType
    vector: bool

    def __str__(self) -> str:
        return f"{'row vector' if self.vector else 'tile'} of {self.view.field}"


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field of the argument struct: `tensor`, or a number."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class BarriersType:
    """An array of mbarriers in shared memory, or one of them."""

    count: int | None
    single: bool = False
    offset: int | None = None

    @property
    def bytes(self) -> int:
        return 8 * (self.count or 1)


WORD_PITCH = 16  # bytes from a shared word to the next


@dataclass(frozen=True, slots=True)
class WordsType:
    """An array of i32 words in shared memory, each in 16 bytes of its own, or one of them."""

    count: int | None
    single: bool = False
    offset: int | None = None

    @property
    def bytes(self) -> int:
        return WORD_PITCH * (self.count or 1)


@dataclass(frozen=True, slots=True)
class MapType:
    """A tensor map: what the copy engine is told about a tensor. `ranged`: for copies of a range of
    a box's rows."""

    field: str
    dtype: str
    rank: int
    box: tuple[int | None, ...] = ()
    ranged: bool = False


@dataclass(frozen=True, slots=True)
class LayoutValue:
    layout: Layout


@dataclass(frozen=True, slots=True)
class DTypeValue:
    dtype: DType


@dataclass(frozen=True, slots=True)
class ListType:
    items: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class LambdaType:
    """A per-element function with the scalar types of the names that it captures."""

    node: Lambda


@dataclass(frozen=True, slots=True)
class KernelRef:
    """A kernel with its compile-time constants, as `run` launches it."""

    name: str
    consts: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class NameType:
    """A bare word that an op takes literally: `a_operand`, `success`."""

    name: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing is known (an opaque op wrote it, or an error was already reported)."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """An op that is done for its effect."""


Type = (
    Scalar | TileType | SharedType | GmemType | GmemTileType | FieldType | BarriersType | WordsType
    | MapType | LayoutValue | DTypeValue | ListType | LambdaType | KernelRef | NameType | Unknown
    | Nothing
)  # fmt: skip


def describe(value: Type) -> str:
    """A type in words, for messages."""
    match value:
        case Scalar(dtype, None):
            return dtype
        case Scalar(dtype, known):
            return f"{dtype} {known}"
        case BarriersType(single=True):
            return "an mbarrier"
        case BarriersType(count):
            return f"an array of {count} mbarriers"
        case WordsType(single=True):
            return "a shared word"
        case WordsType(count):
            return f"an array of {count} shared words"
        case FieldType(name, kind):
            return f"field {name} ({kind})"
        case MapType(field, dtype, rank):
            return f"a tensor map of {field} ({dtype}, rank {rank})"
        case LayoutValue(layout):
            return f"layout {layout}"
        case DTypeValue(dtype):
            return f"element type {dtype.name}"
        case ListType(items):
            return f"[{', '.join(map(describe, items))}]"
        case LambdaType():
            return "a lambda"
        case KernelRef(name, _):
            return f"kernel {name}"
        case NameType(name):
            return name
        case Unknown():
            return "an unknown value"
        case Nothing():
            return "nothing"
        case _:
            return str(value)
