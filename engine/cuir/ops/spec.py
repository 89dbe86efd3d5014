"""What one op's declaration says. Syntax, types, execution, cost, C++ and docs all read it.

The signature is written as the op is:

    copy_async(dst: shared, src: tile)
    gmem[T: dtype](field: field, dims: int...)
    map(tiles: reg..., f: lambda, *, at: coords?)

`...` takes one or more operands, `?` may be left out, what follows `*` is given by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NoReturn

from engine.cuir.arch import Arch
from engine.cuir.ops.spelling import Spelling
from engine.cuir.types import (
    BarriersType,
    DTypeValue,
    FieldType,
    GmemTileType,
    GmemType,
    KernelRef,
    LambdaType,
    LayoutValue,
    ListType,
    MapType,
    NameType,
    Nothing,
    Scalar,
    SharedType,
    TileType,
    Type,
    Unknown,
    WordsType,
)  # fmt: skip


class Who(StrEnum):
    """What executes an op."""

    HOST = "host"
    THREAD = "one elected thread, or each thread for itself"
    PART = "each warp for its share"
    UNIT = "all threads of the unit together (a warpgroup, or the whole block)"
    BLOCK = "all threads of the block together"
    ANY = "nobody: it only names a value"


class Effect(StrEnum):
    """What an op does besides giving a value."""

    READS_SHARED = "reads shared memory"
    WRITES_SHARED = "writes shared memory"
    READS_GLOBAL = "reads global memory"
    WRITES_GLOBAL = "writes global memory"
    WRITES_REGISTERS = "changes a register tile in place"
    SYNCS = "orders parts"
    LAUNCHES = "launches a kernel"


class Proxy(StrEnum):
    """Through which path an op reaches shared memory."""

    NONE = "none"
    GENERIC = "generic"
    ASYNC = "async"


class Pending(StrEnum):
    """What an op leaves in flight, and which op ends it."""

    NONE = "none"
    COPY = "lands at wait_async, for the thread that issued it"
    BULK_LOAD = "lands when the mbarrier's phase completes"
    BULK_STORE = "reads its source until tma_wait"
    MMA = "holds shared operands, register operands and the accumulator until mma_wait"


class Trait(StrEnum):
    """What kind of op it is, for those who reason about ops without knowing each."""

    REDUCES = "folds what a row of an accumulator holds into the row's value"
    FILLS = "a tile of one value"
    MASKS = "its first tile's scores, -inf where a condition does not hold"
    ORDERS = "what comes after it may rely on what was done before"
    NAMED = "uses a named barrier"
    COMMITS = "closes the group of what the unit started and left in flight"
    BY_ROW = "an element of global memory for each row of a tile"
    BY_COLUMN = "an element of global memory for each column of a tile"
    ELECTS = "true in one thread of a unit"
    WARPGROUP = "which warpgroup of the block executes it"
    BUILT = "known when the kernel is compiled"
    STEADY = "one number for a whole unit of a block"
    BLOCK = "the number of a block, less than its grid has blocks"
    LATER = "what it loads stays in memory until it is taken up"


class Mismatch(Exception):
    """A type rule that does not hold: the kind of finding and what to say."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(message)


def mismatch(message: str, kind: str = "type_mismatch") -> NoReturn:
    raise Mismatch(kind, message)


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What a type rule may ask besides the operands. `primitives`: the op must be one that a
    primitive of the headers does with these operands; what is only run need not be."""

    arch: Arch
    threads: int | None = None
    primitives: bool = True


def no_primitive(context: RuleContext, message: str) -> None:
    """What the op means, and no primitive does."""
    if context.primitives:
        mismatch(message, "no_primitive")


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a signature; `place` is params (in brackets), args or kwargs."""

    name: str
    kind: str
    place: str
    many: bool = False
    optional: bool = False


# What each operand kind is, in words, and the types it takes.
OPERAND_KINDS: Mapping[str, tuple[str, tuple[type, ...]]] = MappingProxyType(
    {
        "int": ("a whole number", (Scalar,)),
        "number": ("a number", (Scalar,)),
        "scalar": ("a number", (Scalar,)),
        "dtype": ("an element type", (DTypeValue,)),
        "layout": ("a register layout", (LayoutValue,)),
        "sized": ("an element type", (DTypeValue,)),
        "field": ("a tensor field of args", (FieldType,)),
        "tile": ("a tile of a view: V[b, h, row:]", (GmemTileType,)),
        "shared": ("a shared tile", (SharedType,)),
        "place": ("a shared tile, or a tile of a view", (SharedType, GmemTileType)),
        "narrow": ("a shared tile, or its first columns", (SharedType,)),
        "matrix": ("a shared tile or its first columns, or the transpose of either", (SharedType,)),
        "reg": ("a register tile", (TileType,)),
        "left": (
            "a shared tile or its first columns, or a register tile in an operand layout",
            (SharedType, TileType),
        ),
        "barrier": ("one mbarrier", (BarriersType,)),
        "slot": ("one shared word", (WordsType,)),
        "map": ("a tensor map", (MapType,)),
        "coords": ("a list of whole numbers", (ListType,)),
        "list": ("a list", (ListType,)),
        "kernel": ("a kernel with its constants", (KernelRef,)),
        "lambda": ("a lambda", (LambdaType,)),
        "word": ("a word", (NameType,)),
        "view": ("a view of a tensor", (GmemType,)),
    }
)

TAKES_COLUMNS = frozenset({"narrow", "matrix", "left"})  # the first of a tile's, besides all

TypeRule = Callable[..., Type]
Texts = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """The one declaration of an op."""

    name: str
    group: str
    operands: tuple[Operand, ...]
    signature: str
    rule: TypeRule
    execute: str  # "FAMILY:function" of engine.cuir.execute.families.run_FAMILY
    doc: str
    who: Who
    spelling: Spelling
    effects: frozenset[Effect] = frozenset()
    proxy: Proxy = Proxy.NONE
    pending: Pending = Pending.NONE
    needs: str | None = None
    anywhere: bool = False  # on the host and on the device alike
    cost: str = ""  # the function of engine.cost.ops that says what it asks of the units
    traits: frozenset[Trait] = frozenset()
    between: tuple[int, int] | None = None  # the least and the largest number that it gives

    def may_stand_in(self, kind: str) -> bool:
        """Whether a function of this kind (host, kernel, device) may hold the op."""
        return self.anywhere or (kind == "host") == (self.who is Who.HOST)

    @property
    def is_value(self) -> bool:
        """Free of effects and of register tiles: may stand anywhere in an expression."""
        return self.who is Who.ANY or (self.who is Who.HOST and not self.effects)

    @property
    def is_visible(self) -> bool:
        """Other parts can see it: the scheduler may switch there."""
        return bool(self.effects - {Effect.WRITES_REGISTERS, Effect.READS_GLOBAL}) or (
            self.pending is not Pending.NONE
        )


_HEAD = re.compile(r"^(\w+)(?:\[(.*?)\])?\((.*)\)$")


def _operand(text: str, place: str) -> Operand:
    name, kind = (t.strip() for t in text.split(":"))
    many, optional = kind.endswith("..."), kind.endswith("?")
    return Operand(name, kind.rstrip(".?"), place, many, optional)


def op(
    signature: str,
    group: str,
    *,
    rule: TypeRule,
    execute: str,
    doc: str,
    who: Who,
    lift: Texts,
    lower: Texts,
    ptx: Texts = (),
    kind: str = "none",
    elements: str = "",
    condition: bool = False,
    effects: tuple[Effect, ...] = (),
    proxy: Proxy = Proxy.NONE,
    pending: Pending = Pending.NONE,
    needs: str | None = None,
    anywhere: bool = False,
    cost: str = "",
    traits: tuple[Trait, ...] = (),
    between: tuple[int, int] | None = None,
) -> OpSpec:
    """An `OpSpec` from its signature text; see `spelling` for what stands in its C++."""
    found = _HEAD.match(signature)
    if found is None:
        raise ValueError(f"not a signature: {signature}")
    name, params, args = found.groups()
    operands = [_operand(p, "params") for p in (params or "").split(",") if p.strip()]
    place = "args"
    for piece in args.split(","):
        if piece.strip() == "*":
            place = "kwargs"
        elif piece.strip():
            operands.append(_operand(piece, place))
    unknown = {o.kind for o in operands} - set(OPERAND_KINDS)
    if unknown:
        raise ValueError(f"{name}: unknown operand kinds {unknown}")
    spelling = Spelling(kind, _texts(lift), _texts(lower), _texts(ptx), elements, condition)
    spec = OpSpec(
        name, group, tuple(operands), signature, rule, execute, " ".join(doc.split()), who,
        spelling, frozenset(effects), proxy, pending, needs, anywhere, cost,
        frozenset(traits), between,
    )  # fmt: skip
    if bool(cost) is spec.is_value:
        raise ValueError(f"{name}: an op says what it costs, unless it only names a value")
    return spec


def _texts(given: Texts) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def check_operand(spec: OpSpec, operand: Operand, value: Type) -> None:
    """Raises `Mismatch` when `value` is not what `operand` takes."""
    if isinstance(value, Unknown):
        return
    words, types = OPERAND_KINDS[operand.kind]
    ok = isinstance(value, types)
    if ok and isinstance(value, Scalar) and operand.kind == "int":
        ok = value.dtype in ("i32", "i64")
    if ok and isinstance(value, SharedType):
        ok = value.stages is None
        ok = ok and (operand.kind == "matrix" or not value.transposed)
        ok = ok and (operand.kind in TAKES_COLUMNS or value.pitch is None)
    if ok and isinstance(value, BarriersType | WordsType):
        ok = value.single
    if not ok:
        from engine.cuir.types import describe

        mismatch(f"{spec.name}: {operand.name} must be {words}, not {describe(value)}")


def async_tiles(context: RuleContext, name: str, *operands: Type) -> None:
    """Raises `Mismatch` for a shared tile that starts where the async proxy cannot take it."""
    align = context.arch.async_tile
    for tile in operands:
        if not align or not isinstance(tile, SharedType):
            continue
        if past := (tile.offset if tile.offset is not None else tile.skew or 0) % align:
            mismatch(
                f"{name} takes a shared tile that starts at a multiple of {align} bytes, not "
                f"{past} past one",
                "misaligned",
            )


def nothing(context: RuleContext, *operands: object) -> Type:
    """The rule of an op that is done for its effect and asks nothing more of its operands."""
    return Nothing()
