"""The types of scalar expressions, and their values where all that they read is known."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from engine.cuir.functions import LEAST, MOST, TooWide, shift_left, shift_right, within
from engine.cuir.nodes import Call, Expr
from engine.cuir.ops.spec import mismatch
from engine.cuir.printer import print_expr
from engine.cuir.scalar import CASTS, FUNCTIONS, divide, truncating_div, truncating_mod
from engine.cuir.static.conversions import promoted, wider
from engine.cuir.types import (
    Partial,
    Scalar,
    SharedType,
    TileType,
    Type,
    Unknown,
    describe,
)

Scope = dict[str, Type]

_FOLD: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": divide,
    "//": truncating_div,
    "%": truncating_mod,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": shift_left,
    ">>": shift_right,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def joined(a: Type, b: Type) -> Type:
    """What a name is after two ways of getting here."""
    if a == b:
        return a
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return Scalar(wider((a.dtype, b.dtype)))
    if isinstance(a, TileType) and isinstance(b, TileType):
        if (a.layout, a.dtype, a.in_memory) == (b.layout, b.dtype, b.in_memory):
            shares = {a.partial, b.partial} - {"either"}
            if len(shares) > 1:
                mismatch("each thread's share of a sum on one way, whole sums on the other",
                         "partial_sum")  # fmt: skip
            partial: Partial = "yes" if "yes" in shares else "no" if "no" in shares else "either"
            return TileType(a.layout, a.dtype, partial, a.in_memory)
        mismatch(f"{a} on one way and {b} on the other", "layout_mismatch")
    if isinstance(a, SharedType) and isinstance(b, SharedType):
        skew = a.skew if a.skew == b.skew else None
        a = replace(a, offset=None, skew=skew)
        return a if a == replace(b, offset=None, skew=skew) else Unknown()
    return Unknown()


class ScalarTyper(ABC):
    """Types numbers and conditions. Raises `Mismatch` where a rule does not hold."""

    @abstractmethod
    def type(self, expr: Expr, scope: Scope) -> Type:
        """The type of any expression."""

    def number(self, expr: Expr, scope: Scope) -> Type:
        value = self.type(expr, scope)
        if not isinstance(value, (Scalar, Unknown)):
            mismatch(f"{print_expr(expr)} is {describe(value)}, not a number")
        return value

    def fold(self, dtype: str, op: str, sides: list[Type]) -> Type:
        """The result's type, and its value where both sides are known."""
        values = [s.value for s in sides if isinstance(s, Scalar) and s.value is not None]
        if len(values) == len(sides):
            try:
                return Scalar(dtype, within(_FOLD[op](*values)))
            except ZeroDivisionError:
                mismatch("division by zero", "bad_value")
            except TooWide as wrong:
                mismatch(wrong.message, "bad_value")
            except (ValueError, TypeError, OverflowError):
                return Scalar(dtype)
        return Scalar(dtype)

    def unary(self, op: str, value: Type, operand: Expr) -> Type:
        if isinstance(value, Unknown):
            return value
        if not isinstance(value, Scalar):
            mismatch(f"{print_expr(operand)} is {describe(value)}, not a number")
        known = value.value
        if op == "not":
            return Scalar("bool", None if known is None else not known)
        if op == "~" and value.dtype == "f32":
            mismatch("~ works on whole numbers")
        dtype = promoted(value.dtype)
        if known is None:
            return Scalar(dtype)
        return Scalar(dtype, -known if op == "-" else ~int(known))

    def binary(self, op: str, left: Expr, right: Expr, scope: Scope) -> Type:
        sides = [self.number(e, scope) for e in (left, right)]
        scalars = [s for s in sides if isinstance(s, Scalar)]
        if len(scalars) < 2:
            return Unknown()
        shift = op in ("<<", ">>")  # of its left operand's type
        dtype = promoted(scalars[0].dtype if shift else wider(s.dtype for s in scalars))
        if op == "/" and dtype != "f32":
            mismatch("`/` divides floats; whole numbers take `//`, which truncates")
        whole = op in ("//", "%", "&", "|", "^", "<<", ">>")
        if whole and "f32" in (s.dtype for s in scalars):
            mismatch(f"`{op}` works on whole numbers")
        return self.fold(dtype, op, list(sides))

    def logic(self, op: str, a: Type, b: Type) -> Type:
        for side in (a, b):
            if not isinstance(side, (Scalar, Unknown)):
                mismatch(f"`{op}` takes conditions, not {describe(side)}")
        known = [s.value if isinstance(s, Scalar) else None for s in (a, b)]
        stops = op == "or"
        if any(k is not None and bool(k) == stops for k in known):
            return Scalar("bool", stops)
        return Scalar("bool", not stops if None not in known else None)

    def select(self, cond: Type, then: Expr, other: Expr, scope: Scope) -> Type:
        if isinstance(cond, Scalar) and cond.value is not None:
            return self.type(then if cond.value else other, scope)
        return joined(self.type(then, scope), self.type(other, scope))

    def function(self, expr: Call, scope: Scope) -> Type:
        fn = FUNCTIONS[expr.fn]
        if len(expr.args) != fn.arity or expr.kwargs or expr.params:
            mismatch(f"{fn.name} takes {fn.arity} operands, not {len(expr.args)}", "arity")
        sides = [self.number(a, scope) for a in expr.args]
        scalars = [s for s in sides if isinstance(s, Scalar)]
        dtype = "f32"
        if fn.gives != "float":
            if len(scalars) < len(sides):
                return Unknown()
            dtype = promoted(wider(s.dtype for s in scalars))
            if fn.gives != "same" and dtype == "f32":
                mismatch(f"{fn.name} takes whole numbers")
            if fn.gives == "int" and dtype == "i64":
                mismatch(f"{fn.name} takes whole numbers of 32 bits")
        values = [s.value for s in scalars if s.value is not None]
        if len(values) < len(sides):
            return Scalar(dtype)
        try:
            return Scalar(dtype, fn.number(*values))
        except ZeroDivisionError:
            mismatch("division by zero", "bad_value")

    def cast(self, expr: Call, scope: Scope) -> Type:
        if len(expr.args) != 1 or expr.kwargs or expr.params:
            mismatch(f"{expr.fn} takes 1 operand, not {len(expr.args)}", "arity")
        value = self.number(expr.args[0], scope)
        to = CASTS[expr.fn]
        dtype = "f32" if to in ("f16", "bf16") else to
        if isinstance(value, Scalar) and value.value is not None and dtype in ("i32", "i64"):
            if not math.isfinite(value.value) or not LEAST <= value.value <= MOST:
                mismatch(f"{value.value} is no whole number of 64 bits", "bad_value")
            return Scalar(dtype, int(value.value))
        if isinstance(value, Scalar) and value.value is not None and to == "f32":
            return Scalar(dtype, float(value.value))
        return Scalar(dtype)
