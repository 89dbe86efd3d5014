"""How CuIR is spelled in C++: patterns that the lifter reads, templates that the lowerer writes.

Both are texts with holes: `{x}` is any expression, `{x:kind}` one of that kind (a number: one that
C++ converts to it), `{xs...}` any number of them. What stands before ` -> ` is looked for, what
stands after it is what it becomes; without it the call keeps its name, and `f<A>(x)` is `f[A](x)`.

    lift="wait_async<{n}>() -> wait_async({n})"        C++, then CuIR
    lower="wait_async({n}) -> wait_async<{n}>()"       CuIR, then C++
    ptx="cp.async.wait_group {n} -> wait_async({n})"   one instruction of inline PTX, then CuIR

The two directions are written apart and read apart, so that lifting what was lowered proves
something; tests hold them to each other. A hole in PTX stands for a literal whole number or an
input operand. In the C++ of `lower`, `{stream}` is the launch function's stream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.cuir.functions import ScalarFunction

ONE, MANY = "hole__", "holes__"  # a hole's prefix where it stands in a tree as a name
_HOLE = re.compile(r"\{([A-Za-z_]\w*)(\.\.\.)?(?::([a-z_0-9]+))?\}")
_ARROW = " -> "


@dataclass(frozen=True, slots=True)
class Spelling:
    """One form of CuIR and its C++.

    `kind` is the kind of the value: none (an effect: a statement of its own), i32, u32, i64, u64,
    f32, bool, same (C++'s common type of the arguments), view:{T} (of global memory, with elements
    T), region:{v} and element:{v} (of the view in hole v), tile:f32, tile:bool (bits), tile:{x} (in
    registers, with elements as x has, or returns them), shared, stages, barriers, barrier, words,
    word, layout, type, tensor_map, row_map, status.

    `elements` is the hole whose items' elements the op's lambda takes before it takes whole
    coordinates, `condition` whether the lambda is a predicate.
    """

    kind: str
    lift: tuple[str, ...]
    lower: tuple[str, ...]
    ptx: tuple[str, ...] = ()
    elements: str = ""
    condition: bool = False


def both(text: str) -> tuple[str, str | None]:
    """What a spelling looks for, and what it becomes; None where the call keeps its name."""
    left, arrow, right = text.partition(_ARROW)
    return left, right if arrow else None


def as_names(text: str) -> tuple[str, dict[str, str]]:
    """The text with its holes as names, and the kinds that holes are bound to."""
    kinds: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        hole, many, kind = found.groups()
        if kind is not None:
            kinds[hole] = kind
        return (MANY if many else ONE) + hole

    return _HOLE.sub(name, text), kinds


def holes(text: str) -> list[re.Match[str]]:
    """A text's holes where they stand: the name in group 1, `...` in group 2."""
    return list(_HOLE.finditer(text))


def hole_of(name: str) -> str | None:
    """The hole that a name in a tree stands for."""
    for prefix in (ONE, MANY):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return None


INDEXING = (
    Spelling("region:{v}", ("{v:view}.tile({at...}, {row}) -> {v}[{at...}, {row}:]",),
             ("{v:view}[{at...}, {row}:] -> {v}.tile({at...}, {row})",)),
    Spelling("element:{v}", ("{v:view}({at...}) -> {v}[{at...}]",),
             ("{v:view}[{at...}] -> {v}({at...})",)),
    Spelling("shared", ("{s:stages}[{stage}] -> {s}[{stage}]",),
             ("{s:stages}[{stage}] -> {s}[{stage}]",)),
    Spelling("word", ("{w:words}[{slot}] -> {w}[{slot}]",), ("{w:words}[{slot}] -> {w}[{slot}]",)),
    Spelling("barrier", ("{b:barriers}[{stage}] -> {b}[{stage}]",),
             ("{b:barriers}[{stage}] -> {b}[{stage}]",)),
)  # fmt: skip
"""What is written as an index is no op: tiles and elements of views, one of several tiles."""


def of_function(fn: ScalarFunction) -> tuple[Spelling, ...]:
    """A scalar function has its own name in C++, or one of CUDA's for floats."""
    letters = "xyz"[: fn.arity]
    plain = ", ".join(f"{{{x}}}" for x in letters)
    typed = plain if fn.kind == "same" else ", ".join(f"{{{x}:{fn.kind}}}" for x in letters)
    also = tuple(f"{name}({plain}) -> {fn.name}({plain})" for name in fn.also)
    own = Spelling(fn.kind, (f"{fn.name}({typed})",), (f"{fn.name}({plain})",))
    return own, Spelling("f32", also, ())


@dataclass(frozen=True, slots=True)
class Word:
    """A name that CuIR knows: its kind, all C++ names that mean it, and the one that is written."""

    name: str
    kind: str
    lift: tuple[str, ...]
    lower: str | None = None


WORDS = (
    Word("f16", "type", ("half", "f16", "__half"), "f16"),
    Word("bf16", "type", ("bf16", "__nv_bfloat16"), "bf16"),
    Word("f32", "type", ("float",), "float"),
    Word("i32", "type", ("int",), "int"),
    Word("i64", "type", ("long long",), "long long"),
    Word("bool", "type", ("bool",), "bool"),
    Word("mma_acc", "layout", ("MmaAcc",), "MmaAcc"),
    Word("mma_a", "layout", ("MmaA",), "MmaA"),
    Word("wgmma_acc", "layout", ("WgmmaAcc",), "WgmmaAcc"),
    Word("wgmma_a", "layout", ("WgmmaA",), "WgmmaA"),
    Word("lines", "layout", ("Lines",), "Lines"),
    Word("row_of", "layout", ("RowOf",), "RowOf"),
    Word("col_of", "layout", ("ColOf",), "ColOf"),
    Word("LOG2E", "f32", ("LOG2E",), "LOG2E"),
    Word("LN2", "f32", ("LN2",), "LN2"),
    Word("inf", "f32", ("INFINITY",)),
    Word("nan", "f32", ("NAN",)),
    Word("success", "status", ("cudaSuccess",), "cudaSuccess"),
)
"""Element types, register layouts, constants. With template arguments a type is `name[...]`."""
