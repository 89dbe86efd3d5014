"""Scalar expressions over arrays of places at once, as far as no data decides them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.cuir.nodes import Binary, Bool, Call, Compare, Expr, Index, Name, Num, Select, Unary

AXES = ("b", "h", "i", "j")


def places(sizes: Mapping[str, int]) -> dict[str, Any]:
    """The sizes, and all b, h, i and j along four axes."""
    counts = [sizes[n] for n in ("B", "Hq", "Nq", "Nk")]
    return {**sizes, **dict(zip(AXES, np.ogrid[tuple(slice(n) for n in counts)], strict=True))}


def kept_places(keep: Expr, at: Mapping[str, Any]) -> Any:
    """Which pairs a conjunction keeps: what of it depends on data keeps all."""
    if isinstance(keep, Bool) and keep.op == "and":
        return np.logical_and(kept_places(keep.left, at), kept_places(keep.right, at))
    made = values_of(keep, at)
    return True if made is None else made


def values_of(expr: Expr, at: Mapping[str, Any]) -> Any:
    """The value, where names are numbers or arrays; None where it depends on data."""
    args: tuple[Expr, ...]
    match expr:
        case Num(value):
            return value
        case Name(id):
            return at.get(id)
        case Index():
            return None
        case Unary(op, inner):
            args, f = (inner,), _UNARY[op]
        case Binary(op, left, right) | Compare(op, left, right) | Bool(op, left, right):
            args, f = (left, right), _BINARY[op]
        case Select(cond, then, other):
            args, f = (cond, then, other), np.where
        case Call(name, (_,) as given) if name in _ONE:
            args, f = given, _ONE[name]
        case Call(name, (_, _) as given) if name in _TWO:
            args, f = given, _TWO[name]
        case _:
            return None
    values = [values_of(a, at) for a in args]
    if any(v is None for v in values):
        return None
    with np.errstate(all="ignore"):
        return f(*values)


def _truncating_div(a: Any, b: Any) -> Any:
    return (a - np.fmod(a, b)) // b


_UNARY: dict[str, Any] = {"-": np.negative, "not": np.logical_not, "~": np.invert}
_BINARY: dict[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide, "//": _truncating_div,
    "%": np.fmod, "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
    "<<": np.left_shift, ">>": np.right_shift, "<": np.less, "<=": np.less_equal,
    ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
_ONE: dict[str, Any] = {
    "abs": np.abs, "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt,
    "tanh": np.tanh, "floor": np.floor, "ceil": np.ceil, "float": np.float64,
}  # fmt: skip
_TWO: dict[str, Any] = {
    "min": np.minimum, "max": np.maximum, "floor_div": np.floor_divide, "floor_mod": np.mod,
    "ceil_div": lambda a, b: -(-a // b),
}  # fmt: skip
