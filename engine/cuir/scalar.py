"""The scalar expression language, evaluated on numbers and on torch tensors alike.

Every expression is compiled once to a Python closure `fn(env)`. Two modes:

* exact: every float is a float64 and approximate functions are exact; this judges the algebra.
* typed: every float is an f32 (tensors are float32, Python floats are rounded after each step),
  casts to f16 and bf16 round, and a product beside a sum is one multiply-add as nvcc makes it
  (`engine.cuir.fused`); this judges the rounding.

Integers are exact in both. `//` and `%` truncate toward zero as in C. Loads outside a tensor are 0.
torch is never imported here unless a tensor is already in play.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal

from engine.cuir.functions import (
    CASTS,
    CONSTANTS,
    FUNCTIONS,
    LEAST,
    MOST,
    ScalarFunction,
    TooWide,
    divide,
    f32,
    shift_left,
    shift_right,
    torch_module,
    truncating_div,
    truncating_mod,
    within,
)
from engine.cuir.fused import multiply_add
from engine.cuir.nodes import (
    Attr,
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
from engine.cuir.printer import print_expr
from engine.errors import CuirError

__all__ = [
    "CASTS", "CONSTANTS", "FUNCTIONS", "Compiler", "Env", "Fn", "Mode", "ScalarFunction", "divide",
    "evaluate", "f32", "float_dtype", "gather", "load", "round_to", "truncating_div",
    "truncating_mod",
]  # fmt: skip

Mode = Literal["exact", "typed"]
Env = dict[str, Any]
Fn = Callable[[Env], Any]

_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": shift_left, ">>": shift_right,
}  # fmt: skip
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_NUMBER = (int, float, bool)


def float_dtype(mode: Mode) -> Any:
    """The torch dtype that stands for a CuIR float in this mode."""
    torch = torch_module()
    return torch.float64 if mode == "exact" else torch.float32


def round_to(value: Any, dtype: str, mode: Mode) -> Any:
    """`value` (number or float tensor) rounded to f16 or bf16 and back; unchanged in exact mode."""
    if mode == "exact":
        return value
    torch = torch_module()
    low = torch.float16 if dtype == "f16" else torch.bfloat16
    if type(value) in _NUMBER:
        return torch.tensor(float(value), dtype=low).item()
    return value.to(low).to(torch.float32)


class Compiler:
    """Turns expressions into closures. Subclasses give meaning to names, calls and indexing."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self._exact = mode == "exact"

    # --- what a subclass may widen -----------------------------------------------------------

    def name(self, id: str) -> Fn:
        constant = self.constant(id)
        if constant is None:
            return lambda env: env[id]
        return lambda env: env.get(id, constant)

    def call(self, expr: Call) -> Fn:
        if not expr.kwargs and not expr.params:
            if expr.fn in FUNCTIONS:
                return self.function(FUNCTIONS[expr.fn], expr)
            if expr.fn in CASTS and len(expr.args) == 1:
                return self.cast(CASTS[expr.fn], self.compile(expr.args[0]))
        raise CuirError(f"{expr.fn} is no scalar function", fix="see the table in docs/cuir.md")

    def index(self, expr: Index) -> Fn:
        base = self.compile(expr.base)
        items = [self.compile(item) for item in expr.index]
        mode = self.mode
        return lambda env: load(base(env), [item(env) for item in items], mode)

    # --- the closed language -----------------------------------------------------------------

    def compile(self, expr: Expr) -> Fn:
        """A closure over an environment of numbers and tensors."""
        match expr:
            case Num(value):
                if type(value) is float and not self._exact:
                    value = f32(value)
                return lambda env: value
            case Name(id):
                return self.name(id)
            case Attr(Name(base), field):
                return lambda env: env[base][field]
            case Unary(op, operand):
                return self.unary(op, self.compile(operand))
            case Binary(op, left, right):
                if not self._exact and (sum := multiply_add(expr)) is not None:
                    return sum.compile(self)
                return self.binary(op, self.compile(left), self.compile(right))
            case Compare(op, left, right):
                return self.compare(op, self.compile(left), self.compile(right))
            case Bool(op, left, right):
                return self.logic(op, self.compile(left), self.compile(right))
            case Select(cond, then, other):
                return self.select(*(self.compile(e) for e in (cond, then, other)))
            case Call():
                return self.call(expr)
            case Index():
                return self.index(expr)
        raise CuirError(f"not a scalar expression: {print_expr(expr)}")

    def constant(self, id: str) -> float | None:
        value = CONSTANTS.get(id)
        return value if value is None or self._exact else f32(value)

    def unary(self, op: str, operand: Fn) -> Fn:
        if op == "-":
            return lambda env: -_counted(operand(env))
        if op == "~":
            return lambda env: ~_counted(operand(env))

        def negate(env: Env) -> Any:
            value = operand(env)
            return (not value) if type(value) in _NUMBER else torch_module().logical_not(value)

        return negate

    def binary(self, op: str, left: Fn, right: Fn) -> Fn:
        exact = self._exact
        if op in ("//", "%"):
            whole = truncating_div if op == "//" else truncating_mod

            def integral(env: Env) -> Any:
                a, b = left(env), right(env)
                if type(a) in _NUMBER and type(b) in _NUMBER:
                    return whole(a, b)
                a, b = _counted(a), _counted(b)
                if op == "//":
                    return torch_module().div(a, b, rounding_mode="trunc")
                return torch_module().fmod(a, b)

            return integral
        if op == "/":

            def quotient(env: Env) -> Any:
                a, b = left(env), right(env)
                if type(a) in _NUMBER and type(b) in _NUMBER:
                    result = divide(self.to_float(a), self.to_float(b))
                    return result if exact else f32(result)
                a, b = self.floats(a, b)
                return a / b

            return quotient
        apply = _ARITHMETIC[op]

        def arithmetic(env: Env) -> Any:
            a, b = left(env), right(env)
            if type(a) is int and type(b) is int:  # by far the most frequent
                result = apply(a, b)
                return result if LEAST <= result <= MOST else within(result)
            first, second = type(a) in _NUMBER, type(b) in _NUMBER
            if not first and (
                type(b) is float and a.dtype.is_floating_point if second
                else a.dtype is b.dtype and a.dtype.is_signed
            ):  # fmt: skip
                return apply(a, b)
            if first and second:
                a, b = self.mixed(a, b)
                try:
                    result = apply(a, b)
                except OverflowError:
                    result = math.inf
                if type(result) is not float:
                    return within(result)
                return result if exact else f32(result)
            a, b = self.mixed(_counted(a), _counted(b))
            return apply(a, b)

        return arithmetic

    def compare(self, op: str, left: Fn, right: Fn) -> Fn:
        apply = _COMPARE[op]

        def comparison(env: Env) -> Any:
            a, b = left(env), right(env)
            if type(a) is not type(b) or type(a) not in _NUMBER:
                a, b = self.mixed(a, b)
            return apply(a, b)

        return comparison

    def logic(self, op: str, left: Fn, right: Fn) -> Fn:
        both = op == "and"

        def connective(env: Env) -> Any:
            a = left(env)
            if type(a) in _NUMBER:
                # Short-circuit, as in C++.
                if bool(a) != both:
                    return bool(a)
                b = right(env)
                return bool(b) if type(b) in _NUMBER else b.to(torch_module().bool)
            b = right(env)
            torch = torch_module()
            if type(b) in _NUMBER:
                b = torch.tensor(bool(b))
            return torch.logical_and(a, b) if both else torch.logical_or(a, b)

        return connective

    def select(self, cond: Fn, then: Fn, other: Fn) -> Fn:
        def choice(env: Env) -> Any:
            test = cond(env)
            if type(test) in _NUMBER:
                return then(env) if test else other(env)
            a, b = then(env), other(env)
            torch = torch_module()
            test = test.to(torch.bool)  # a whole number is true where it is not 0, as in C++
            if _is_float(a) or _is_float(b):
                kind = float_dtype(self.mode)
                if type(a) in _NUMBER and type(b) in _NUMBER:
                    a = torch.as_tensor(a, dtype=kind)
                # One number beside a tensor takes that one's type.
                a, b = (float(v) if type(v) in _NUMBER else v.to(kind) for v in (a, b))
            else:
                a, b = torch.as_tensor(a), torch.as_tensor(b)
            return torch.where(test, a, b)

        return choice

    def function(self, fn: ScalarFunction, expr: Call) -> Fn:
        if len(expr.args) != fn.arity:
            raise CuirError(f"{fn.name} takes {fn.arity} operands, not {len(expr.args)}")
        args = [self.compile(a) for a in expr.args]
        exact, to_float, number = self._exact, fn.gives == "float", fn.number

        def apply(env: Env) -> Any:
            values = [a(env) for a in args]
            for value in values:
                if type(value) not in _NUMBER:
                    break
            else:
                if len(values) == 2 and type(values[0]) is not type(values[1]):
                    values = list(self.mixed(*values))
                result = number(*values)
                return result if exact or type(result) is not float else f32(result)
            values = [_counted(v) for v in values]
            if to_float:
                values = self.floats(*values)
            elif len(values) == 2:
                values = list(self.mixed(*values))
            return fn.tensor(*values)

        return apply

    def cast(self, to: str, operand: Fn) -> Fn:
        def convert(env: Env) -> Any:
            value = operand(env)
            if type(value) in _NUMBER:
                if to == "bool":
                    return bool(value)
                if to in ("i32", "i64"):
                    if not math.isfinite(value):
                        raise TooWide(f"{value} is no whole number")
                    return within(int(value))
                value = float(value) if self._exact else f32(float(value))
            else:
                torch = torch_module()
                if to == "bool":
                    return value.to(torch.bool)
                if to in ("i32", "i64"):
                    return value.to(torch.int64)
                value = value.to(float_dtype(self.mode))
            return round_to(value, to, self.mode) if to in ("f16", "bf16") else value

        return convert

    # --- promotion ---------------------------------------------------------------------------

    def mixed(self, a: Any, b: Any) -> tuple[Any, Any]:
        """An integer tensor beside a float becomes a float tensor of the mode, never of torch's."""
        a_float = type(a) is float if type(a) in _NUMBER else a.is_floating_point()
        b_float = type(b) is float if type(b) in _NUMBER else b.is_floating_point()
        if a_float != b_float:
            if a_float:
                b = self.to_float(b)
            else:
                a = self.to_float(a)
        return a, b

    def floats(self, *values: Any) -> list[Any]:
        return [v if _is_float(v) else self.to_float(v) for v in values]

    def to_float(self, value: Any) -> Any:
        if type(value) in _NUMBER:
            return float(value) if self._exact else f32(float(value))
        return value.to(float_dtype(self.mode))


def _counted(value: Any) -> Any:
    """A truth value in arithmetic is 0 or 1, as in C; of a sum torch would make `or`."""
    if type(value) in _NUMBER or value.dtype != torch_module().bool:
        return value
    return value.to(torch_module().int64)


def _is_float(value: Any) -> bool:
    if type(value) in _NUMBER:
        return type(value) is float
    return bool(value.dtype.is_floating_point)


def load(base: Any, index: list[Any], mode: Mode) -> Any:
    """One element of a tensor per index (numbers or tensors that broadcast); 0 outside.

    `base` is a torch tensor, or anything with `load(index)`.
    """
    loader = getattr(base, "load", None)
    if loader is not None:
        return loader(index)
    return gather(base, index, mode)


def gather(tensor: Any, index: list[Any], mode: Mode) -> Any:
    """`tensor[index]` with 0 outside. Floats come back in the mode's float, integers exact."""
    if len(index) != tensor.dim():
        raise CuirError(f"{len(index)} indices for a tensor of rank {tensor.dim()}")
    if all(type(i) is int for i in index):
        inside = all(0 <= i < size for i, size in zip(index, tensor.shape, strict=True))
        if not inside:
            return 0.0 if tensor.dtype.is_floating_point else 0
        return tensor[tuple(index)].item()
    torch = torch_module()
    shape, kind = tensor.shape, tensor.dtype
    valid: Any = None
    outside = False
    places: list[Any] = []
    for i, size in zip(index, shape, strict=True):
        if type(i) is int:
            outside = outside or not 0 <= i < size
            places.append(min(max(i, 0), max(size - 1, 0)))
        else:
            i = torch.as_tensor(i)
            place = i.clamp(0, max(size - 1, 0))
            inside = place == i
            outside = outside or not size
            valid = inside if valid is None else valid & inside
            places.append(place)
    if outside:
        valid = torch.zeros_like(valid)
    if 0 in shape:
        found = torch.zeros(valid.shape, dtype=kind)
    elif all(type(p) is int for p in places[:-1]) and places[-1].dtype == torch.int64:
        found = tensor[tuple(places[:-1])].take(places[-1])  # in half the time
    else:
        found = tensor[tuple(places)]
    if kind == torch.bool:
        return found & valid
    if kind.is_floating_point:
        return torch.where(valid, found.to(float_dtype(mode)), 0.0)
    return (found if kind == torch.int64 else found.to(torch.int64)) * valid


def evaluate(expr: Expr, env: Mapping[str, Any], mode: Mode = "exact") -> Any:
    """The value of `expr` where `env` binds its free names to numbers or torch tensors.

    Tensors broadcast against each other. An `Index` of a tensor is an element load, 0 outside.
    Raises `CuirError` for what is not a scalar expression, `KeyError` for a name without a value.
    """
    return Compiler(mode).compile(expr)(dict(env))
