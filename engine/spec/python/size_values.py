"""Sizes that know what they are of the declared dimensions.

What a spec computes from sizes in Python (`q.size(-1) ** -0.5`, `(Nk + 63) // 64`) reaches a tensor
as a number. Every size that a spec reads is a `Size` here, an integer with its expression over
dimension names, and so is what plain arithmetic makes of it: the expression is known and need not
be guessed from the numbers at a few sizes. A number that went another way (`math.log`) is plain.
"""

from __future__ import annotations

import builtins
import math
import operator
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any, Protocol

import torch

from engine.cuir.nodes import Binary, Call, Compare, Expr, Name, Num, Unary, walk_expr
from engine.spec.python.modes import OnCpu
from engine.spec.python.spec_file import TensorParameter

MAX_NODES = 24  # of one number's expression: what a loop adds up becomes a plain number


class Observer(Protocol):
    """What is told of each comparison that Python decides by a size."""

    @property
    def integers(self) -> frozenset[int]: ...

    def answer(self, test: Compare, value: bool, frame: Any) -> bool: ...


class Size(int):
    """An integer with its expression over dimension names."""

    expr: Expr
    watch: Observer | None

    @staticmethod
    def of(value: int, expr: Expr, watch: Observer | None) -> int:
        if _too_long(expr):
            return value
        made = Size(value)
        made.expr, made.watch = expr, watch
        return made

    def __hash__(self) -> int:
        if self.watch is not None:
            for number in sorted(self.watch.integers):  # the keys of a table it is looked up in
                test = Compare("==", self.expr, Num(number))
                self.watch.answer(test, int(self) == number, sys._getframe(1))
        return int.__hash__(self)

    def __bool__(self) -> bool:
        test = Compare("!=", self.expr, Num(0))
        return _told(self, test, int(self) != 0, sys._getframe(1))

    def __neg__(self) -> int:
        return Size.of(-int(self), Unary("-", self.expr), self.watch)

    def __abs__(self) -> int:
        return Size.of(abs(int(self)), Call("abs", (self.expr,)), self.watch)


class SizeFloat(float):
    """A float with its expression over dimension names."""

    expr: Expr
    watch: Observer | None

    @staticmethod
    def of(value: float, expr: Expr, watch: Observer | None) -> float:
        if _too_long(expr) or not math.isfinite(value):
            return value
        made = SizeFloat(value)
        made.expr, made.watch = expr, watch
        return made

    def __neg__(self) -> float:
        return SizeFloat.of(-float(self), Unary("-", self.expr), self.watch)

    def __floor__(self) -> int:
        return Size.of(math.floor(float(self)), _whole(self.expr, up=False), self.watch)

    def __ceil__(self) -> int:
        return Size.of(math.ceil(float(self)), _whole(self.expr, up=True), self.watch)


def expression_of(value: Any) -> Expr | None:
    """The expression of a number over dimension names; None for a plain one."""
    return value.expr if isinstance(value, (Size, SizeFloat)) else None


def _too_long(expr: Expr) -> bool:
    return sum(1 for _ in walk_expr(expr)) > MAX_NODES


def _told(size: Size, test: Compare, value: bool, frame: Any) -> bool:
    return value if size.watch is None else size.watch.answer(test, value, frame)


def _whole(expr: Expr, *, up: bool) -> Expr:
    """floor or ceil of `expr`; of a quotient of integers by integer division, which is exact."""
    match expr:
        case Binary("/", Binary("*", Num(1.0), left), right):
            over = Binary("-", Binary("+", left, right), Num(1)) if up else left
            return Call("floor_div", (over, right))
    return Call("int", (Call("ceil" if up else "floor", (expr,)),))


def _operand(value: Any) -> Expr | None:
    if isinstance(value, (Size, SizeFloat)):
        return value.expr
    return Num(value) if type(value) in (int, float) else None


# --- arithmetic ----------------------------------------------------------------------------------


def _quotient(a: Expr, b: Expr) -> Expr:
    return Binary("/", Binary("*", Num(1.0), a), b)


def _power(a: Expr, b: Expr) -> Expr | None:
    match a, b:
        case _, Num(int() as n) if 1 <= n <= 4:
            out = a
            for _ in range(n - 1):
                out = Binary("*", out, a)
            return out
        case _, Num(0.5):
            return Call("sqrt", (a,))
        case _, Num(-0.5):
            return Call("rsqrt", (a,))
        case _, Num(-1 | -1.0):
            return _quotient(Num(1), a)
        case Num(base), _ if base > 0:
            scaled = b if base == 2 else Binary("*", b, Num(math.log2(base)))
            return Call("exp2", (scaled,))
    return None


Build = Callable[[Expr, Expr], Expr | None]
_ARITHMETIC: Mapping[str, Build] = {
    "add": lambda a, b: Binary("+", a, b),
    "sub": lambda a, b: Binary("-", a, b),
    "mul": lambda a, b: Binary("*", a, b),
    "truediv": _quotient,
    "pow": _power,
}
_WHOLE: Mapping[str, Build] = {
    "floordiv": lambda a, b: Call("floor_div", (a, b)),
    "mod": lambda a, b: Call("floor_mod", (a, b)),
}


def _made(owner: Any, value: Any, expr: Expr | None) -> Any:
    if expr is None:
        return value
    if type(value) is int:
        return Size.of(value, expr, owner.watch)
    return SizeFloat.of(value, expr, owner.watch) if type(value) is float else value


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, float) else int(value)


def _give_arithmetic(kind: type, name: str, build: Build) -> None:
    def method(self: Any, other: Any) -> Any:
        right = _operand(other)
        if right is None:
            return getattr(kind.__mro__[1], f"__{name}__")(self, other)
        value = getattr(operator, name)(_plain(self), _plain(other))
        return _made(self, value, build(self.expr, right))

    def mirrored(self: Any, other: Any) -> Any:
        left = _operand(other)
        if left is None:
            return getattr(kind.__mro__[1], f"__r{name}__")(self, other)
        value = getattr(operator, name)(_plain(other), _plain(self))
        return _made(self, value, build(left, self.expr))

    setattr(kind, f"__{name}__", method)
    setattr(kind, f"__r{name}__", mirrored)


def _give_comparison(name: str, op: str) -> None:
    def method(self: Size, other: Any) -> Any:
        right = _operand(other)
        if right is None:
            return getattr(int, f"__{name}__")(self, other)
        value = getattr(operator, name)(int(self), _plain(other))
        return _told(self, Compare(op, self.expr, right), value, sys._getframe(1))

    setattr(Size, f"__{name}__", method)


for _name, _build in _ARITHMETIC.items():
    _give_arithmetic(Size, _name, _build)
    _give_arithmetic(SizeFloat, _name, _build)
for _name, _build in _WHOLE.items():
    _give_arithmetic(Size, _name, _build)
for _name, _op in (
    ("eq", "=="),
    ("ne", "!="),
    ("lt", "<"),
    ("le", "<="),
    ("gt", ">"),
    ("ge", ">="),
):
    _give_comparison(_name, _op)


# --- Python's own functions ---------------------------------------------------------------------


def _extremum(name: str) -> Callable[..., Any]:
    plain = getattr(builtins, name)

    def choose(*values: Any, **options: Any) -> Any:
        """Python's own, but of sizes the expression is that of all of them, whichever is chosen."""
        exprs = [_operand(v) for v in values]
        known = next((v for v in values if isinstance(v, (Size, SizeFloat))), None)
        if len(values) < 2 or options or known is None or any(e is None for e in exprs):
            return plain(*values, **options)
        whole = reduce(lambda a, b: Call(name, (a, b)), [e for e in exprs if e is not None])
        return _made(known, plain(map(_plain, values)), whole)

    return choose


def _function(name: str) -> Callable[..., Any]:
    plain = getattr(math, name)

    def call(value: Any, *base: Any) -> Any:
        expr = expression_of(value)
        if expr is None or any(type(b) not in (int, float) for b in base):
            return plain(value, *base)
        whole: Expr = Call(name, (expr,))
        if base:
            whole = Binary("*", whole, Num(1 / math.log(base[0])))
        return _made(value, plain(_plain(value), *base), whole)

    return call


EXTREMA = {name: _extremum(name) for name in ("min", "max")}
"""In place of the builtins of a spec's module."""
_FUNCTIONS = {name: _function(name) for name in ("sqrt", "log", "log2", "exp")}


@contextmanager
def symbolic_math() -> Iterator[None]:
    """Functions of `math` keep the expressions of what they are given."""
    plain = {name: getattr(math, name) for name in _FUNCTIONS}
    for name, function in _FUNCTIONS.items():
        setattr(math, name, function)
    try:
        yield
    finally:
        for name, function in plain.items():
            setattr(math, name, function)


# --- in a run ------------------------------------------------------------------------------------


class SizesByName(OnCpu):
    """Gives the spec a `Size` for each size of its tensors, named by `name_of` a dimension."""

    def __init__(
        self,
        tensors: tuple[TensorParameter, ...],
        inputs: Mapping[str, torch.Tensor],
        dims: Mapping[str, int],
        watch: Observer | None,
        name_of: Callable[[str], str] = str,
    ) -> None:
        super().__init__()
        self.watch = watch
        self.name_of = name_of
        self.declared = {id(inputs[t.name]): t.dims for t in tensors}
        self.known = _by_value({name_of(name): value for name, value in dims.items()})

    def called(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        out = func(*args, **kwargs)
        if name not in ("size", "__get__") or not args or not isinstance(args[0], torch.Tensor):
            return out
        if isinstance(out, torch.Size):
            return torch.Size([self._size(args[0], n, place) for place, n in enumerate(out)])
        if name == "size" and type(out) is int:
            place = args[1] if len(args) > 1 else kwargs.get("dim")
            return self._size(args[0], out, place if type(place) is int else None)
        return out

    def _size(self, tensor: torch.Tensor, value: int, place: int | None) -> int:
        dims = self.declared.get(id(tensor))
        if dims is not None and place is not None:
            name = dims[place]
            if name.isdigit():
                return value
            return Size.of(value, Name(self.name_of(name)), self.watch)
        expr = self.known.get(value)
        return value if expr is None else Size.of(value, expr, self.watch)


def _by_value(dims: Mapping[str, int]) -> dict[int, Expr]:
    """The one dimension that a size of a later tensor can be."""
    often = Counter(dims.values())
    return {value: Name(name) for name, value in dims.items() if often[value] == 1 < value}
