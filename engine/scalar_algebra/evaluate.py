"""Evaluate scalar expressions on Python numbers, with CuIR's meaning.

`//` and `%` truncate as in C, `floor_div` and `floor_mod` floor; a load outside its tensor gives 0;
float division by zero and overflow follow IEEE 754.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from engine.cuir.nodes import (
    Binary, Bool, Call, Compare, Expr, Index, Name, Num, Select, Unary,
)  # fmt: skip

Env = Mapping[str, Any]
Compiled = Callable[[Env], Any]


def _divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _truncated_div(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _total(fn: Callable[[float], float], at_domain: float, at_overflow: float) -> Callable[[float], float]:
    def run(value: float) -> float:
        try:
            return fn(value)
        except ValueError:
            return at_domain
        except OverflowError:
            return at_overflow

    return run


def _log(fn: Callable[[float], float]) -> Callable[[float], float]:
    def run(value: float) -> float:
        if value == 0:
            return -math.inf
        return math.nan if value < 0 or math.isnan(value) else fn(value)

    return run


def _sigmoid(value: float) -> float:
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    e = math.exp(value)
    return e / (1.0 + e)


def _exp2(value: float) -> float:
    return 2.0**value


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": _total(math.exp, math.nan, math.inf),
    "exp2": _total(_exp2, math.nan, math.inf),
    "expm1": _total(math.expm1, math.nan, math.inf),
    "log": _log(math.log),
    "log2": _log(math.log2),
    "log1p": _total(math.log1p, math.nan, math.nan),
    "tanh": math.tanh,
    "sigmoid": _sigmoid,
    "erf": math.erf,
    "sqrt": _total(math.sqrt, math.nan, math.nan),
    "rsqrt": lambda v: _divide(1.0, math.sqrt(v)) if v >= 0 else math.nan,
    "abs": abs,
    "min": min,
    "max": max,
    "floor": lambda v: float(math.floor(v)) if math.isfinite(v) else v,
    "ceil": lambda v: float(math.ceil(v)) if math.isfinite(v) else v,
    "round": lambda v: float(round(v)) if math.isfinite(v) else v,
    "sin": _total(math.sin, math.nan, math.nan),
    "cos": _total(math.cos, math.nan, math.nan),
    "float": float,
    "int": lambda v: int(v) if math.isfinite(v) else 0,
    "floor_div": lambda a, b: a // b,
    "floor_mod": lambda a, b: a % b,
    "fma": lambda a, b, c: a * b + c,
}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divide, "//": _truncated_div,
    "%": lambda a, b: a - b * _truncated_div(a, b), "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


def compile_expr(expr: Expr) -> Compiled:
    """A function from an environment to the value of `expr`.

    The environment maps names to numbers, and names of tensors to functions of their indices.
    """
    match expr:
        case Num(value):
            return lambda env: value
        case Name(id):
            return lambda env: env[id]
        case Index(Name(tensor), index):
            parts = [compile_expr(i) for i in index]
            return lambda env: env[tensor](*(p(env) for p in parts))
        case Unary("-", operand):
            inner = compile_expr(operand)
            return lambda env: -inner(env)
        case Unary("not", operand):
            inner = compile_expr(operand)
            return lambda env: not inner(env)
        case Binary(op, left, right):
            return _two(_BINARY[op], left, right)
        case Compare(op, left, right):
            return _two(_COMPARE[op], left, right)
        case Bool(op, left, right):
            a, b = compile_expr(left), compile_expr(right)
            if op == "and":
                return lambda env: bool(a(env)) and bool(b(env))
            return lambda env: bool(a(env)) or bool(b(env))
        case Select(cond, then, other):
            c, t, o = compile_expr(cond), compile_expr(then), compile_expr(other)
            return lambda env: t(env) if c(env) else o(env)
        case Call(fn, args) if fn in FUNCTIONS:
            call, items = FUNCTIONS[fn], [compile_expr(a) for a in args]
            if len(items) == 1:
                (only,) = items
                return lambda env: call(only(env))
            return lambda env: call(*(item(env) for item in items))
    raise ValueError(f"not a scalar expression: {expr!r}")


def _two(fn: Callable[[Any, Any], Any], left: Expr, right: Expr) -> Compiled:
    a, b = compile_expr(left), compile_expr(right)
    return lambda env: fn(a(env), b(env))


def evaluate(expr: Expr, env: Env) -> Any:
    """The value of `expr`; see `compile_expr` for the environment."""
    return compile_expr(expr)(env)
