"""Multiply-adds of the typed mode: nvcc makes one instruction of a product and a sum in floats, and
that rounds once. The product itself is not rounded and does not overflow, so that `x * c - y * c`
need not be 0 where x is y: it is what rounding y * c left behind.

Source: CUDA C++ Programming Guide, "Floating-Point Standard" (contraction, -fmad=true).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.cuir.functions import f32
from engine.cuir.nodes import Binary, Expr

if TYPE_CHECKING:
    from engine.cuir.scalar import Compiler, Env

_NUMBER = (int, float, bool)


@dataclass(frozen=True, slots=True)
class MultiplyAdd:
    """of_product * a * b + of_c * c, where each sign is 1 or -1."""

    a: Expr
    b: Expr
    c: Expr
    of_product: float
    of_c: float

    def compile(self, compiler: Compiler) -> Callable[[Env], Any]:
        """A closure: floats are rounded once; whole numbers are exact, as everywhere."""
        a, b, c = (compiler.compile(e) for e in (self.a, self.b, self.c))
        multiply = compiler.binary("*", _first, _second)
        add = compiler.binary("+" if self.of_c == self.of_product else "-", *self._order())
        of_product, of_c, floats = self.of_product, self.of_c, compiler.floats

        def sum(env: Env) -> Any:
            x, y, z = a(env), b(env), c(env)
            if _is_float(x) or _is_float(y):
                x, y, z = (_wide(value) for value in floats(x, y, z))
                total = x * y * of_product + z * of_c  # the product of two float32 is exact
                return f32(total) if type(total) is float else total.float()
            return add({"first": multiply({"first": x, "second": y}), "second": z})

        return sum

    def _order(self) -> tuple[Callable[[Env], Any], Callable[[Env], Any]]:
        return (_first, _second) if self.of_product > 0 else (_second, _first)


def multiply_add(expr: Expr) -> MultiplyAdd | None:
    """A sum or difference with a product as nvcc makes one instruction of it: of the left product
    where both sides are one. None for anything else."""
    match expr:
        case Binary("+" | "-" as op, Binary("*", a, b), c):
            return MultiplyAdd(a, b, c, 1.0, 1.0 if op == "+" else -1.0)
        case Binary("+" | "-" as op, c, Binary("*", a, b)):
            return MultiplyAdd(a, b, c, 1.0 if op == "+" else -1.0, 1.0)
    return None


def _first(env: Env) -> Any:
    return env["first"]


def _second(env: Env) -> Any:
    return env["second"]


def _is_float(value: Any) -> bool:
    return type(value) is float if type(value) in _NUMBER else value.is_floating_point()


def _wide(value: Any) -> Any:
    return float(value) if type(value) in _NUMBER else value.double()
