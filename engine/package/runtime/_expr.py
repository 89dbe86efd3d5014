"""Expressions over sizes, as text: arithmetic, comparisons, a few functions. Nothing is exec'd."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any


def truncated(a: Any, b: Any) -> Any:
    """C's integer division: toward zero."""
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


BINARY: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: truncated,
    ast.Mod: lambda a, b: a - truncated(a, b) * b,
}
COMPARE: dict[type[ast.cmpop], Any] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, Any] = {
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1.0 / math.sqrt(x),
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "log": math.log,
    "log2": math.log2,
    "tanh": math.tanh,
    "floor": math.floor,
    "ceil": math.ceil,
    "abs": abs,
    "min": min,
    "max": max,
    "sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)),
    "rcp": lambda x: 1.0 / x,
    "sin": math.sin,
    "cos": math.cos,
    "erf": math.erf,
    "fma": lambda a, b, c: a * b + c,
    # Numbers are held in float64 until the struct takes them.
    **dict.fromkeys(("float", "f32", "f16", "bf16"), float),
    **dict.fromkeys(("int", "i32", "i64"), int),
    "bool": bool,
    "ceil_div": lambda a, b: truncated(a + b - 1, b),
    "floor_div": operator.floordiv,
    "floor_mod": operator.mod,
}
_FUNCTIONS |= {f"{n}_approx": _FUNCTIONS[n] for n in ("exp2", "log2", "rcp", "tanh")}
CONSTANTS = {"LOG2E": math.log2(math.e), "LN2": math.log(2.0), "inf": math.inf}


class NotAnExpression(ValueError):
    """What is neither arithmetic nor one of the functions and names."""


def evaluate(text: str, names: dict[str, Any]) -> Any:
    """The value of `text` where `names` gives its free names. `NotAnExpression` for what it cannot
    say, Python's own errors for numbers that a function does not take."""
    if text in names:
        return names[text]
    return value_of(parsed(text), {**CONSTANTS, **names})


@lru_cache(maxsize=1024)
def parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def value_of(
    node: ast.expr,
    names: dict[str, Any],
    part: Callable[[ast.expr, dict[str, Any]], Any] | None = None,
) -> Any:
    """The value of a node. `part` gives those of the nodes in it: this function, unless a caller
    reads more than numbers."""
    part = part or value_of
    match node:
        case ast.Constant(value=bool() | int() | float()):
            return node.value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.UnaryOp(op=ast.USub()):
            return -part(node.operand, names)
        case ast.UnaryOp(op=ast.Not()):
            return not part(node.operand, names)
        case ast.BinOp() if type(node.op) in BINARY:
            return BINARY[type(node.op)](part(node.left, names), part(node.right, names))
        case ast.Compare(ops=[op], comparators=[right]) if type(op) in COMPARE:
            return COMPARE[type(op)](part(node.left, names), part(right, names))
        case ast.BoolOp(op=ast.And()):
            return all(part(item, names) for item in node.values)
        case ast.BoolOp(op=ast.Or()):
            return any(part(item, names) for item in node.values)
        case ast.IfExp():
            return part(node.body if part(node.test, names) else node.orelse, names)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(part(item, names) for item in node.args))
    raise NotAnExpression(
        f"{ast.unparse(node)} is not an expression over {', '.join(sorted(names))}"
    )
