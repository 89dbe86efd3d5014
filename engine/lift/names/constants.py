"""Compile-time values: what `constexpr` expressions are under one specialisation.

Works on CuIR expressions. An element type is its name; arithmetic is C++'s (division truncates).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.cuir.arch import Arch
from engine.cuir.nodes import Call, Expr, For, Function, Name, Stmt
from engine.cuir.ops.traits import BUILT
from engine.cuir.scalar import Env, Fn
from engine.cuir.static.calls import built
from engine.cuir.static.device_scalars import DeviceScalars
from engine.cuir.types import DTYPES
from engine.errors import CuirError

_FIELD_BYTES = {"tensor": (40, 8), "i32": (4, 4), "i64": (8, 8), "f32": (4, 4)}
_MAX_CALLS = 10_000

Constant = int | float | bool | str
"""A number, or the name of an element type."""


class NotConstant(Exception):
    """The expression has no compile-time value; `args[0]` says why."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What compile-time functions ask: the arch, the argument struct, other functions."""

    arch: Arch
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


class Evaluator(DeviceScalars):
    """Evaluates expressions with named constants. What has no value at compile time is an error
    only where it is asked for: `D == 64 or block_id(0) == 0` is true where D is 64."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts.functions, {})
        self.facts = facts
        self.calls = 0

    def value(self, expr: Expr, names: Mapping[str, Constant]) -> Constant:
        """Raises `NotConstant`."""
        self.calls = 0
        try:
            found: Constant = self.compile(expr)(dict(names))
        except (CuirError, ArithmeticError, TypeError, ValueError, RecursionError) as error:
            raise NotConstant(str(error)) from None
        except KeyError:
            raise NotConstant("it depends on values that only a launch knows") from None
        return found

    def compile(self, expr: Expr) -> Fn:
        try:
            return super().compile(expr)
        except CuirError as error:
            reason = error.message

        def none(env: Env) -> Any:
            raise NotConstant(reason)

        return none

    def name(self, id: str) -> Fn:
        if id in DTYPES:
            return lambda env: env.get(id, id)
        return lambda env: env[id]

    def compare(self, op: str, left: Fn, right: Fn) -> Fn:
        numbers = super().compare(op, left, right)

        def compared(env: Env) -> Any:
            sides = (left(env), right(env))
            if any(isinstance(side, str) for side in sides):
                return (sides[0] == sides[1]) == (op == "==")
            return numbers(env)

        return compared

    def call(self, expr: Call) -> Fn:
        if expr.fn == "sizeof" and expr.args == (Name(self.facts.struct),):
            return lambda env: struct_bytes(self.facts.fields)
        if expr.fn in BUILT:
            return lambda env: self.built(expr, env)
        called = super().call(expr)
        return self.counted(called) if expr.fn in self.functions else called

    def built(self, expr: Call, env: Env) -> Any:
        found = built(expr, self.facts.arch, env)
        if found is None:
            raise NotConstant(f"{expr.fn} of what is no element type")
        return found

    def counted(self, called: Fn) -> Fn:
        def once(env: Env) -> Any:
            self.calls += 1
            if self.calls > _MAX_CALLS:
                raise NotConstant("it takes too long to evaluate")
            return called(env)

        return once

    def body(self, function: Function) -> Callable[[Env], Any]:
        run = self._block(function.body)  # not kept: a function may be read again

        def result(env: Env) -> Any:
            returned, value = run(env)
            if not returned:
                raise NotConstant(f"{function.name} returns nothing")
            return value

        return result

    def _statement(self, stmt: Stmt) -> Callable[[Env], tuple[bool, Any]]:
        if isinstance(stmt, For):
            raise CuirError("a function that is more than assignments and returns")
        return super()._statement(stmt)
