"""What kind of number a scalar expression is: integer, float or truth value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from engine.cuir.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Name,
    Num,
    Select,
    Unary,
)  # fmt: skip

Kind = Literal["int", "float", "bool"]
Kinds = Mapping[str, Kind]


class FixedKinds(Mapping[str, Kind]):
    """Kinds that can be a key of a cache."""

    __slots__ = ("_hash", "_kinds")

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = dict(kinds)
        self._hash = hash(frozenset(self._kinds.items()))

    def __getitem__(self, name: str) -> Kind:
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FixedKinds) and self._kinds == other._kinds


def fixed(kinds: Kinds) -> FixedKinds:
    return kinds if isinstance(kinds, FixedKinds) else FixedKinds(kinds)


INDEX_NAMES = ("b", "h", "i", "j")
SIZE_NAMES = ("B", "Hq", "Hkv", "Nq", "Nk", "D", "Dv")
INT_NAMES = frozenset((*INDEX_NAMES, *SIZE_NAMES))
_INT_CALLS = frozenset(("floor_div", "floor_mod", "int"))
_SAME_CALLS = frozenset(("min", "max", "abs"))


def kind_of(expr: Expr, kinds: Kinds) -> Kind:
    """The kind of `expr`; `kinds` names the inputs that are not float."""
    match expr:
        case Num(value):
            if isinstance(value, bool):
                return "bool"
            return "int" if isinstance(value, int) else "float"
        case Name(id):
            return "int" if id in INT_NAMES else kinds.get(id, "float")
        case Index(Name(tensor), _):
            return kinds.get(tensor, "float")
        case Unary("not", _) | Compare() | Bool():
            return "bool"
        case Unary(_, operand):
            return kind_of(operand, kinds)
        case Binary("/", _, _):
            return "float"
        case Binary("//" | "%", _, _):
            return "int"
        case Binary(_, left, right) | Select(_, left, right):
            both = (kind_of(left, kinds), kind_of(right, kinds))
            return "float" if "float" in both else ("int" if "int" in both else "bool")
        case Call(fn, _) if fn in _INT_CALLS:
            return "int"
        case Call(fn, args) if fn in _SAME_CALLS:
            return "float" if any(kind_of(a, kinds) == "float" for a in args) else "int"
    return "float"


def is_int(expr: Expr, kinds: Kinds) -> bool:
    return kind_of(expr, kinds) == "int"


def is_nonnegative(expr: Expr) -> bool:
    """Whether `expr` is provably at least zero (indices, sizes and sums of them)."""
    match expr:
        case Num(value):
            return value >= 0
        case Name(id):
            return id in INT_NAMES
        case Binary("+" | "*" | "//" | "%" | "/", left, right):
            return is_nonnegative(left) and is_nonnegative(right)
        case Call("min" | "floor_div" | "floor_mod", args):
            return all(map(is_nonnegative, args))
        case Call("max", args):
            return any(map(is_nonnegative, args))
        case Call("abs" | "sqrt" | "rsqrt" | "exp" | "exp2" | "sigmoid", _):
            return True
    return False
