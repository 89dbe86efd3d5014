"""Sizes that remember which comparisons of Python the spec decides by them.

`q.size(-1) == 64` in Python leaves no trace in a tensor. Here every size that the spec reads is an
integer that knows what it is of the declared dimensions, and every comparison of one that the
spec's own files make is noted, so that both its answers can be tried.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine.cuir.nodes import Binary, Call, Compare, Expr, Name, Num, Unary, walk_expr
from engine.spec.program import Program
from engine.spec.trace import OnCpu

MAX_NODES = 24  # of one size's expression: what a loop adds up becomes a plain number
MAX_PER_LINE = 8  # comparisons of one line that are told apart; a loop makes one per round


@dataclass(frozen=True, slots=True)
class Branch:
    """A comparison over dimension names, and where the spec makes it."""

    test: Compare
    file: str
    line: int


@dataclass(slots=True)
class Watch:
    """What one run compared: the answer of each comparison, forced ones included."""

    spec: Path
    integers: frozenset[int]  # of the file, for lookups of a size in a table
    forced: Mapping[Branch, bool] = field(default_factory=dict)
    seen: dict[Branch, bool] = field(default_factory=dict)

    def answer(self, test: Compare, value: bool, frame: Any) -> bool:
        """Note a comparison that the spec's own files make; `frame` is its caller's."""
        file = frame.f_code.co_filename
        folder = f"{self.spec.parent}/"
        if file != str(self.spec) and (not file.startswith(folder) or "site-packages" in file):
            return value
        branch = Branch(test, file, frame.f_lineno)
        value = self.forced.get(branch, value)
        if branch not in self.seen:
            same = sum(b.line == branch.line and b.file == file for b in self.seen)
            if same >= MAX_PER_LINE:
                return value
        self.seen[branch] = value
        return value


class Size(int):
    """An integer with its expression over dimension names."""

    expr: Expr
    watch: Watch

    @staticmethod
    def of(value: int, expr: Expr, watch: Watch) -> int:
        if sum(1 for _ in walk_expr(expr)) > MAX_NODES:
            return value
        made = Size(value)
        made.expr, made.watch = expr, watch
        return made

    def __hash__(self) -> int:
        for number in sorted(self.watch.integers):  # the keys of a table that it is looked up in
            test = Compare("==", self.expr, Num(number))
            self.watch.answer(test, int(self) == number, sys._getframe(1))
        return int.__hash__(self)

    def __bool__(self) -> bool:
        test = Compare("!=", self.expr, Num(0))
        return self.watch.answer(test, int(self) != 0, sys._getframe(1))

    def __neg__(self) -> int:
        return Size.of(-int(self), Unary("-", self.expr), self.watch)


def _expr(value: Any) -> Expr | None:
    if isinstance(value, Size):
        return value.expr
    return Num(value) if type(value) in (int, float) else None


def _comparison(name: str, op: str) -> None:
    plain = getattr(int, name)
    as_float = getattr(float, name)

    def method(self: Size, other: Any) -> Any:
        right = _expr(other)
        if right is None:
            return plain(self, other)
        value = as_float(float(self), other) if type(other) is float else plain(self, other)
        return self.watch.answer(Compare(op, self.expr, right), value, sys._getframe(1))

    setattr(Size, name, method)


def _arithmetic(name: str, build: Callable[[Expr, Expr], Expr]) -> None:
    plain = getattr(int, f"__{name}__")
    mirrored = getattr(int, f"__r{name}__")

    def method(self: Size, other: Any) -> Any:
        value, right = plain(self, other), _expr(other)
        if type(value) is not int or right is None:
            return value
        return Size.of(value, build(self.expr, right), self.watch)

    def swapped(self: Size, other: Any) -> Any:
        value, left = mirrored(self, other), _expr(other)
        if type(value) is not int or left is None:
            return value
        return Size.of(value, build(left, self.expr), self.watch)

    setattr(Size, f"__{name}__", method)
    setattr(Size, f"__r{name}__", swapped)


for _name, _op in (
    ("eq", "=="),
    ("ne", "!="),
    ("lt", "<"),
    ("le", "<="),
    ("gt", ">"),
    ("ge", ">="),
):
    _comparison(f"__{_name}__", _op)
_arithmetic("add", lambda a, b: Binary("+", a, b))
_arithmetic("sub", lambda a, b: Binary("-", a, b))
_arithmetic("mul", lambda a, b: Binary("*", a, b))
_arithmetic("floordiv", lambda a, b: Call("floor_div", (a, b)))
_arithmetic("mod", lambda a, b: Call("floor_mod", (a, b)))


class WatchSizes(OnCpu):
    """Gives the spec `Size`s for the sizes of its tensors."""

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, torch.Tensor],
        dims: Mapping[str, int],
        watch: Watch,
    ) -> None:
        super().__init__()
        self.watch = watch
        self.declared = {id(inputs[t.name]): t.dims for t in program.tensors}
        self.known = _by_value(dims)

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
            return value if name.isdigit() else Size.of(value, Name(name), self.watch)
        expr = self.known.get(value)
        return value if expr is None else Size.of(value, expr, self.watch)


def _by_value(dims: Mapping[str, int]) -> dict[int, Expr]:
    """The one dimension, or product of two, that a size of a later tensor can be."""
    found: dict[int, list[Expr]] = {}
    for name, value in dims.items():
        found.setdefault(value, []).append(Name(name))
    pairs: dict[int, list[Expr]] = {}
    names = list(dims)
    for n, a in enumerate(names):
        for b in names[n + 1 :]:
            pairs.setdefault(dims[a] * dims[b], []).append(Binary("*", Name(a), Name(b)))
    for value, exprs in pairs.items():
        found.setdefault(value, []).extend(exprs if value not in found else [])
    return {value: exprs[0] for value, exprs in found.items() if len(exprs) == 1 and value > 1}
