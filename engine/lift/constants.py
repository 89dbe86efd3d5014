"""Compile-time values: what `constexpr` expressions are under one specialisation.

Works on CuIR expressions. Types are `TypeName`; arithmetic is C++'s on int (division truncates).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.cuir.nodes import (
    Assign,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Function,
    If,
    Name,
    Num,
    Return,
    Select,
    Stmt,
    Unary,
)  # fmt: skip

TYPE_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "i32": 4, "i64": 8, "bool": 1}
_FIELD_BYTES = {"tensor": (40, 8), "i32": (4, 4), "i64": (8, 8), "f32": (4, 4)}
_MAX_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as a compile-time value."""

    name: str


Constant = int | float | bool | TypeName


class NotConstant(Exception):
    """The expression has no compile-time value; `args[0]` says why."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What compile-time functions ask: the arch's limits, the argument struct, other functions."""

    shared_limit: int | None
    struct: str
    fields: tuple[str, ...]  # types in order
    functions: Mapping[str, Function]


def struct_bytes(fields: tuple[str, ...]) -> int:
    """`sizeof` of a plain struct of these fields, in natural alignment."""
    offset, widest = 0, 1
    for kind in fields:
        size, align = _FIELD_BYTES[kind]
        offset = -(-offset // align) * align + size
        widest = max(widest, align)
    return -(-offset // widest) * widest


def _divide(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    return left - _divide(left, right) * right


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": _divide, "%": _remainder,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift, "/": operator.truediv,
}  # fmt: skip
_ORDER: dict[str, Callable[[object, object], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,  # type: ignore[dict-item]
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., int | float | bool]] = {
    "min": min, "max": max, "abs": abs, "i32": int, "i64": int, "f32": float, "bool": bool,
    "ceil_div": lambda a, b: _divide(a + b - 1, b), "floor_div": lambda a, b: a // b,
    "floor_mod": lambda a, b: a % b, "log2": math.log2, "sqrt": math.sqrt,
}  # fmt: skip


class Evaluator:
    """Evaluates expressions with named constants."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.steps = 0

    def value(self, expr: Expr, names: Mapping[str, Constant]) -> Constant:
        """Raises `NotConstant`."""
        self.steps = 0
        try:
            return self.eval(expr, names)
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            raise NotConstant(str(error)) from None

    def eval(self, expr: Expr, names: Mapping[str, Constant]) -> Constant:
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise NotConstant("it takes too long to evaluate")
        match expr:
            case Num(value):
                return value
            case Name(id) if id in names:
                return names[id]
            case Name(id) if id in TYPE_BYTES:
                return TypeName(id)
            case Unary(op, operand):
                value = self.number(operand, names)
                if op == "not":
                    return not value
                return -value if op == "-" else ~int(value)
            case Binary(op, left, right):
                a, b = self.number(left, names), self.number(right, names)
                if op == "<<" and abs(b) > 64:
                    raise NotConstant("a shift that is too wide")
                return _ARITHMETIC[op](a, b)  # type: ignore[arg-type]
            case Compare(op, left, right):
                return _ORDER[op](self.eval(left, names), self.eval(right, names))
            case Bool(op, left, right):
                first = bool(self.number(left, names))
                if first != (op == "and"):
                    return first
                return bool(self.number(right, names))
            case Select(cond, then, other):
                return self.eval(then if self.number(cond, names) else other, names)
            case Call():
                return self.call(expr, names)
        raise NotConstant("it depends on values that only a launch knows")

    def number(self, expr: Expr, names: Mapping[str, Constant]) -> int | float | bool:
        value = self.eval(expr, names)
        if isinstance(value, TypeName):
            raise NotConstant(f"{value.name} is a type")
        return value

    def call(self, call: Call, names: Mapping[str, Constant]) -> Constant:
        if call.fn == "shared_limit" and self.facts.shared_limit is not None:
            return self.facts.shared_limit
        if call.fn == "sizeof":
            if call.args == (Name(self.facts.struct),):
                return struct_bytes(self.facts.fields)
            kind = self.eval(call.args[0], names)
            if isinstance(kind, TypeName) and kind.name in TYPE_BYTES:
                return TYPE_BYTES[kind.name]
            raise NotConstant("sizeof of what is no element type")
        if call.fn == "same_type":
            return self.eval(call.args[0], names) == self.eval(call.args[1], names)
        function = self.facts.functions.get(call.fn)
        if function is not None:
            return self.run(function, call, names)
        if call.fn in _FUNCTIONS and not call.params:
            return _FUNCTIONS[call.fn](*(self.number(arg, names) for arg in call.args))
        raise NotConstant(f"{call.fn} has no compile-time value")

    def run(self, function: Function, call: Call, names: Mapping[str, Constant]) -> Constant:
        """A call of one of the file's own functions, as a constexpr function."""
        inside: dict[str, Constant] = {}
        for const, expr in zip(function.consts, call.params, strict=True):
            inside[const] = self.eval(expr, names)
        for param, expr in zip(function.params, call.args, strict=True):
            inside[param.name] = self.eval(expr, names)
        value = self.block(function.body, inside)
        if value is None:
            raise NotConstant(f"{function.name} returns nothing")
        return value

    def block(self, body: tuple[Stmt, ...], names: dict[str, Constant]) -> Constant | None:
        for stmt in body:
            match stmt:
                case Assign(target, expr):
                    names[target] = self.eval(expr, names)
                case Return(expr) if expr is not None:
                    return self.eval(expr, names)
                case If(cond, then, other):
                    value = self.block(then if self.number(cond, names) else other, names)
                    if value is not None:
                        return value
                case _:
                    raise NotConstant("a function that is more than assignments and returns")
        return None
