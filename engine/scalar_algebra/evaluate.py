"""Evaluate scalar expressions with CuIR's exact meaning, loads given as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.cuir.nodes import Expr, Index, Name
from engine.cuir.scalar import FUNCTIONS as SCALAR_FUNCTIONS
from engine.cuir.scalar import Compiler, Fn

Env = Mapping[str, Any]
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    name: function.number for name, function in SCALAR_FUNCTIONS.items()
}


class _Loads(Compiler):
    """`doc[i]` calls the environment's `doc` with the index."""

    def index(self, expr: Index) -> Fn:
        if not isinstance(expr.base, Name):
            raise ValueError("a load reads a named tensor")
        tensor, items = expr.base.id, [self.compile(item) for item in expr.index]
        return lambda env: env[tensor](*(item(env) for item in items))


def compile_expr(expr: Expr) -> Fn:
    """A function from an environment (numbers; functions for tensors) to the value of `expr`."""
    return _Loads("exact").compile(expr)


def evaluate(expr: Expr, env: Env) -> Any:
    """The value of `expr`; see `compile_expr` for the environment."""
    return compile_expr(expr)(dict(env))
