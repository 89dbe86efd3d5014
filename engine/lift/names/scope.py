"""Names and kinds while a function is lifted.

C++ scopes are blocks, CuIR's are functions: a name that an inner block declares anew gets a name of
its own (`n_1`). Names that Python's syntax keeps for itself get an underscore.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.cuir.nodes import Expr, walk_expr
from engine.cuir.static.calls import callee
from engine.lift.cpp.tokens import Token
from engine.lift.names.catalogue import Catalogue
from engine.lift.names.constants import Constant, Evaluator, NotConstant

# Names that mean something in CuIR wherever they stand.
RESERVED = frozenset({
    "inf", "nan", "args", "opaque", "success", "a_operand", "LOG2E", "LN2", "f16", "bf16", "f32",
    "i32", "i64", "mma_acc", "mma_a", "wgmma_acc", "wgmma_a", "lines", "row_of", "col_of",
})  # fmt: skip

# What the copy engine is told about a tensor: the types of parameters, beside numbers.
MAPS = {"TensorMap": "tensor_map", "RowMap": "row_map"}
# Types of variables, parameters and results that the kernel language has.
C_TYPES = {
    "int": "i32",
    "int32_t": "i32",
    "long long": "i64",
    "int64_t": "i64",
    "float": "f32",
    "bool": "bool",
    "void": "none",
    "cudaError_t": "status",
    "cudaStream_t": "stream",
    **MAPS,
    "CUtensorMap": "tensor_map",
}
FIELD_TYPES = {"TensorArg": "tensor", "int": "i32", "long long": "i64", "float": "f32"}


@dataclass(frozen=True, slots=True)
class Local:
    """What a C++ name means: its CuIR expression and its kind."""

    cuir: Expr
    kind: str


@dataclass(frozen=True, slots=True)
class Signature:
    """A function of the file as its callers see it."""

    name: str
    kind: str  # host, kernel, device
    params: tuple[str, ...]  # kinds
    consts: tuple[str, ...]
    const_kinds: tuple[str, ...]
    result: str  # kind


@dataclass(frozen=True, slots=True)
class Program:
    """What every function of the file may name."""

    catalogue: Catalogue
    fields: Mapping[str, str]  # of the argument struct
    functions: Mapping[str, Signature]
    templates: frozenset[str]


@dataclass
class Scope:
    """The names of one function; blocks open and close."""

    blocks: list[dict[str, Local]] = field(default_factory=lambda: [{}])
    args: str = "args"  # the C++ name of the argument struct's parameter

    def find(self, name: str) -> Local | None:
        for block in reversed(self.blocks):
            if name in block:
                return block[name]
        return None

    def open(self) -> None:
        self.blocks.append({})

    def close(self) -> None:
        self.blocks.pop()

    def fresh(self, name: str, shadows: bool = False) -> str:
        """The CuIR name for a C++ name that is declared here.

        `shadows`: CuIR has this scope too (a lambda's), so hiding the same C++ name is right.
        """
        visible = {
            getattr(local.cuir, "id", "")
            for block in self.blocks
            for known, local in block.items()
            if not (shadows and known == name)
        }
        plain = safe(name)
        chosen, count = plain, 0
        while chosen in visible:
            count += 1
            chosen = f"{plain}_{count}"
        return chosen

    def declare(self, name: str, local: Local) -> None:
        self.blocks[-1][name] = local


def safe(name: str) -> str:
    """`name`, unless Python's or CuIR's syntax keeps it for itself."""
    taken = keyword.iskeyword(name) or name in RESERVED
    return f"{name}_" if taken else name


# Stands in an instantiation whose arguments are unknown, since an opaque op makes it.
UNKNOWN = "?"


class Instances:
    """One set of compile-time values per instantiation, by function name."""

    def __init__(self, signatures: Iterable[Signature], evaluator: Evaluator) -> None:
        self._signatures = {safe(s.name): s for s in signatures}
        self._evaluator = evaluator
        self._known: dict[str, list[dict[str, Constant]]] = {}

    def of(self, name: str) -> list[dict[str, Constant]]:
        return self._known.setdefault(name, [])

    def known(self, name: str) -> list[dict[str, Constant]]:
        """The instantiations of which every value is known."""
        return [values for values in self._known.get(name, []) if UNKNOWN not in values]

    def clear(self) -> None:
        self._known.clear()

    def add(self, name: str, values: Mapping[str, Constant]) -> None:
        known = self.of(name)
        if values not in known:
            known.append(dict(values))

    def calls(self, expr: Expr, callers: Sequence[Mapping[str, Constant]]) -> None:
        """Records what `expr` calls and launches, once per instantiation of its own function."""
        for node in walk_expr(expr):
            called = callee(node)
            target = self._signatures.get(called.name) if called is not None else None
            if called is None or target is None or len(called.consts) != len(target.consts):
                continue
            # A copy: a recursive function is among its own callers.
            for constants in list(callers):
                values: dict[str, Constant] = {}
                for const, arg in zip(target.consts, called.consts, strict=True):
                    try:
                        values[const] = self._evaluator.value(arg, constants)
                    except NotConstant:
                        values[UNKNOWN] = True
                if UNKNOWN in constants:
                    values[UNKNOWN] = True
                self.add(target.name, values)

    def opaque(self, tokens: Iterable[Token]) -> None:
        """Records that an opaque text may use the functions that it names in any way."""
        for name in {t.text for t in tokens if t.kind == "word"}:
            if safe(name) in self._signatures:
                self.add(name, {UNKNOWN: True})
