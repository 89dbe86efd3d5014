"""The functions of the scalar language: on Python numbers, and on torch tensors.

On numbers they give C's results (infinities and NaN) instead of Python's exceptions. torch is
imported only once a tensor is at hand.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from engine.errors import CuirError

CONSTANTS: Mapping[str, float] = MappingProxyType({"LOG2E": math.log2(math.e), "LN2": math.log(2)})


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function of the language: what it takes and gives, exactly, and how C++ spells it.

    `gives`: float, int (of ints alone), whole (as its operands, whole numbers), or same (as its
    operands). `approximate` functions have a hardware
    instruction behind them in CUDA and are exact in exact mode. In C++ it has its own name, and
    `also` are CUDA's names for it.
    """

    name: str
    arity: int
    gives: Literal["float", "int", "whole", "same"]
    number: Callable[..., Any]
    tensor: Callable[..., Any]
    doc: str
    approximate: bool = False
    also: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Of its value and of each operand in C++; `same`: the common type of the operands."""
        return {"float": "f32", "int": "i32"}.get(self.gives, "same")


@cache
def torch_module() -> Any:
    import torch

    return torch


def f32(value: float) -> float:
    """`value` rounded to the nearest f32; overflow gives an infinity."""
    return ctypes.c_float(value).value


# --- functions on Python numbers: C's results instead of Python's exceptions -------------------


def _guard(fn: Callable[[float], float], at_pole: float) -> Callable[[float], float]:
    def guarded(x: float) -> float:
        try:
            return fn(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return at_pole if x == 0 else math.nan

    return guarded


def divide(a: float, b: float) -> float:
    """IEEE division."""
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _fmin(a: Any, b: Any) -> Any:
    return b if a != a else a if b != b else min(a, b)


def _fmax(a: Any, b: Any) -> Any:
    return b if a != a else a if b != b else max(a, b)


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700 else 0.0


def _rounded(x: float, to: Callable[[float], int]) -> float:
    return float(to(x)) if math.isfinite(x) else x


def truncating_div(a: int, b: int) -> int:
    """C's integer quotient. Raises `ZeroDivisionError`."""
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def truncating_mod(a: int, b: int) -> int:
    """C's remainder: the sign of the dividend. Raises `ZeroDivisionError`."""
    return a - truncating_div(a, b) * b


class TooWide(CuirError):
    """Whole-number arithmetic that no 64-bit register holds."""


LEAST, MOST = -(1 << 63), (1 << 64) - 1


def within(value: Any) -> Any:
    """`value`, a whole number of at most 64 bits or anything else. Raises `TooWide`."""
    if type(value) is int and not LEAST <= value <= MOST:
        raise TooWide(_WIDE, fix=_NARROW)
    return value


def shift_left(a: Any, b: Any) -> Any:
    """`a << b` of numbers or tensors. Raises `TooWide` before a number of any length is made."""
    return within(a << _shift(b))


def shift_right(a: Any, b: Any) -> Any:
    """`a >> b` of numbers or tensors. Raises `TooWide`."""
    return a >> _shift(b)


def _shift(count: Any) -> Any:
    if type(count) is int and not 0 <= count < 64:
        raise TooWide("a whole number of 64 bits is shifted by 0 to 63 places", fix=_NARROW)
    return count


_WIDE = "a whole number of more than 64 bits"
_NARROW = "write a number that a register holds"


# --- the same on tensors -----------------------------------------------------------------------


def _lift(name: str) -> Callable[[Any], Any]:
    def on_tensor(x: Any) -> Any:
        return getattr(torch_module(), name)(x)

    return on_tensor


def _pair_lift(on_float: str, on_int: str) -> Callable[[Any, Any], Any]:
    def on_tensors(a: Any, b: Any) -> Any:
        torch = torch_module()
        kind = (a if isinstance(a, torch.Tensor) else b).dtype
        a, b = torch.as_tensor(a, dtype=kind), torch.as_tensor(b, dtype=kind)
        return getattr(torch, on_float if kind.is_floating_point else on_int)(a, b)

    return on_tensors


def _tensor_floor_div(a: Any, b: Any) -> Any:
    return torch_module().div(a, b, rounding_mode="floor")


def _tensor_trunc_div(a: Any, b: Any) -> Any:
    return torch_module().div(a, b, rounding_mode="trunc")


def _tensor_floor_mod(a: Any, b: Any) -> Any:
    return torch_module().remainder(a, b)


def _f(
    name: str, number: Callable[[float], float], tensor: str, doc: str, *also: str,
    approximate: bool = False,
) -> ScalarFunction:  # fmt: skip
    return ScalarFunction(name, 1, "float", number, _lift(tensor), doc, approximate, also)


_exp2 = _guard(math.exp2, math.nan)
FUNCTIONS: Mapping[str, ScalarFunction] = MappingProxyType(
    {
        f.name: f
        for f in (
            _f("exp2", _exp2, "exp2", "2 to the x", "exp2f"),
            _f("exp2_approx", _exp2, "exp2", "2 to the x (ex2.approx)", approximate=True),
            _f("exp", _guard(math.exp, math.nan), "exp", "e to the x", "expf"),
            _f("log", _guard(math.log, -math.inf), "log", "natural logarithm; -inf at 0",
               "logf"),
            _f("log2", _guard(math.log2, -math.inf), "log2", "base-2 logarithm; -inf at 0",
               "log2f"),
            _f("log2_approx", _guard(math.log2, -math.inf), "log2",
               "base-2 logarithm (lg2.approx); -inf at 0", approximate=True),
            _f("tanh", math.tanh, "tanh", "hyperbolic tangent", "tanhf"),
            _f("tanh_approx", math.tanh, "tanh", "hyperbolic tangent (tanh.approx)",
               approximate=True),
            _f("rcp", lambda x: divide(1.0, x), "reciprocal", "1 / x"),
            _f("rcp_approx", lambda x: divide(1.0, x), "reciprocal", "1 / x (rcp.approx)",
               approximate=True),
            _f("sqrt", _guard(math.sqrt, math.nan), "sqrt", "square root; NaN below 0", "sqrtf"),
            _f("rsqrt", lambda x: divide(1.0, math.sqrt(x)) if x >= 0 else math.nan, "rsqrt",
               "1 / sqrt(x)", "rsqrtf"),
            _f("sigmoid", _sigmoid, "sigmoid", "1 / (1 + exp(-x))"),
            _f("erf", math.erf, "erf", "error function"),
            _f("sin", _guard(math.sin, math.nan), "sin", "sine of x radians"),
            _f("cos", _guard(math.cos, math.nan), "cos", "cosine of x radians"),
            _f("floor", lambda x: _rounded(x, math.floor), "floor", "largest whole number <= x",
               "floorf"),
            _f("ceil", lambda x: _rounded(x, math.ceil), "ceil", "smallest whole number >= x",
               "ceilf"),
            ScalarFunction("abs", 1, "same", abs, _lift("abs"), "magnitude", also=("fabsf",)),
            ScalarFunction("min", 2, "same", _fmin, _pair_lift("fmin", "minimum"),
                           "smaller one; the number where the other is NaN", also=("fminf",)),
            ScalarFunction("max", 2, "same", _fmax, _pair_lift("fmax", "maximum"),
                           "larger one; the number where the other is NaN", also=("fmaxf",)),
            ScalarFunction("fma", 3, "float", lambda a, b, c: a * b + c,
                           lambda a, b, c: a * b + c, "a * b + c, rounded once", also=("fmaf",)),
            ScalarFunction("floor_div", 2, "int", operator.floordiv, _tensor_floor_div,
                           "integer quotient, rounded down"),
            ScalarFunction("floor_mod", 2, "int", operator.mod, _tensor_floor_mod,
                           "what floor_div leaves: the sign of the divisor"),
            ScalarFunction("ceil_div", 2, "whole", lambda a, b: truncating_div(a + b - 1, b),
                           lambda a, b: _tensor_trunc_div(a + b - 1, b),
                           "(a + b - 1) // b: the integer quotient, rounded up where a >= 0"),
        )
    }
)  # fmt: skip

# Casts: what the value becomes. f16 and bf16 round (in typed mode) and stay floats.
CASTS: Mapping[str, str] = MappingProxyType(
    {"float": "f32", "f32": "f32", "int": "i32", "i32": "i32", "i64": "i64", "bool": "bool",
     "f16": "f16", "bf16": "bf16"}
)  # fmt: skip
