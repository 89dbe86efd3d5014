"""Which sides of its conditions a module takes while the deck runs.

A condition is whatever makes a program do one thing or another: a comparison, `and`, `or`, the test
of an `if`, a loop that may not run at all, and arithmetic with a step in it (`min`, `//`, a cast to
a whole number). A side that no run takes is one that nobody has tested: right answers at every size
of a deck say nothing about it. Elements of a tile past the last row or key count for nothing, since
no output shows them.

Runs in the torch child only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engine.cuir.execute.compiler import ProgramCompiler
from engine.cuir.execute.program import Coverage
from engine.cuir.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    For,
    If,
    Lambda,
    Module,
    Num,
    Path,
    Return,
    Select,
    Stmt,
    Unary,
    children,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.cuir.scalar import Env, Fn, Mode
from engine.gates.sizes import resolved, scalars_of
from engine.transfer.rewrite import free_names, stmt_exprs

Key = tuple[str, Expr]
SHOWN = 160  # characters of a condition in a verdict
_ZERO = Num(0)
_CONTRARY = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is true or false while a module runs.

    `expr` stands in the text; `test` is what is true or false, which differs from it where `expr`
    is arithmetic. `whole` is `test` with the function's scalar names replaced by what they stand
    for, and `given` says what holds wherever it is asked. Of a loop, whether it runs is the
    condition, and only that it does must be seen.
    """

    path: Path
    expr: Expr
    test: Expr
    whole: Expr
    given: tuple[tuple[Expr, bool], ...] = ()
    loop: bool = False

    @property
    def key(self) -> Key:
        return str(self.path[0]), self.expr

    @property
    def sides(self) -> tuple[bool, ...]:
        return (True,) if self.loop else (True, False)

    def words(self, outcome: bool) -> str:
        """`args.Nk > 65536` (tile_count), or its contrary."""
        match self.test:
            case Compare(op, left, right) if not outcome:
                text = _short(Compare(_CONTRARY[op], left, right))
            case test:
                text = _short(test) if outcome else f"not ({_short(test)})"
        within = "" if self.loop or self.test == self.expr else f" in `{_short(self.expr)}`"
        return f"`{text}`{within} ({self.path[0]})"


def _short(expr: Expr) -> str:
    text = print_expr(expr)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]} ..."


def conditions(module: Module) -> tuple[Condition, ...]:
    """Every condition that a run decides, once in each function, in the order of the text."""
    scalars = scalars_of(module)
    out: dict[tuple[Key, bool], Condition] = {}
    for function in module.functions:
        names = scalars.get(function.name, {})
        for path, rows, loop in _of_block(function.body, (function.name,), _Place()):
            for node, test, at in rows:
                if not free_names(test) - set(function.consts):
                    continue  # compile-time constants alone are decided when it is built
                own = {n: e for n, e in names.items() if n not in at.params}
                given = tuple((resolved(e, own), side) for e, side in at.given)
                one = Condition(path, node, test, resolved(test, own), given, loop)
                out.setdefault((one.key, loop), one)
    return tuple(out.values())


def new_conditions(base: Module, module: Module) -> tuple[Condition, ...]:
    """The conditions of `module` that are not the base's own, or whose names mean something else
    there."""
    known = {(one.key, one.whole, one.loop) for one in conditions(base)}
    return tuple(o for o in conditions(module) if (o.key, o.whole, o.loop) not in known)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an expression stands: the lambda parameters around it, and what holds there."""

    params: tuple[str, ...] = ()
    given: tuple[tuple[Expr, bool], ...] = ()

    def where(self, test: Expr, side: bool) -> _Place:
        return _Place(self.params, (*self.given, (test, side)))


_Row = tuple[Expr, Expr, _Place]  # what stands there, its test, where it stands


def _of_block(
    body: tuple[Stmt, ...], prefix: Path, place: _Place
) -> Iterator[tuple[Path, list[_Row], bool]]:
    """The conditions of every statement of a block; whether it is the loop itself."""
    for position, stmt in enumerate(body):
        path = (*prefix, position)
        for expr in stmt_exprs(stmt):
            yield path, list(_of_expr(expr, place)), False
        match stmt:
            case If(cond, then, other):
                yield path, _tested(cond, place), False
                yield from _of_block(then, (*path, "then"), place.where(cond, True))
                yield from _of_block(other, (*path, "other"), place.where(cond, False))
                if then and isinstance(then[-1], Return):
                    place = place.where(cond, False)
            case For(_, start, stop, _, inner):
                test = Compare("<", start, stop)
                yield path, [(test, test, place)], True
                yield from _of_block(inner, (*path, "body"), place)


def _of_expr(expr: Expr, at: _Place) -> Iterator[_Row]:
    """The conditions in an expression, each with its test and where it stands."""
    match expr:
        case Lambda(params, body):
            yield from _of_expr(body, _Place((*at.params, *params), at.given))
            return
        case Bool(op, left, right):
            yield expr, expr, at
            yield from (*_tested(left, at), *_of_expr(left, at))
            later = at.where(left, op == "and")
            yield from (*_tested(right, later), *_of_expr(right, later))
            return
        case Select(cond, then, other):
            yield from (*_tested(cond, at), *_of_expr(cond, at))
            yield from _of_expr(then, at.where(cond, True))
            yield from _of_expr(other, at.where(cond, False))
            return
        case Compare():
            yield expr, expr, at
        case Unary("not", operand):
            yield from _tested(operand, at)
        case Call("min" | "max", (left, right)):
            yield expr, Compare("<", left, right), at
        case Call("abs", (operand,)):
            yield expr, Compare("<", operand, _ZERO), at
        case Binary("//" | "%", left, right) | Call(
            "floor_div" | "floor_mod" | "ceil_div", (left, right)
        ):
            yield expr, Compare("<", Call("abs", (left,)), Call("abs", (right,))), at
        case Binary("&" | ">>", _, _) | Call("floor" | "ceil" | "bool", _):
            yield expr, Compare("!=", expr, _ZERO), at
        case Call("int" | "i32" | "i64", (operand,)) if _fractional(operand):
            yield expr, Compare("!=", expr, _ZERO), at
    for child in children(expr):
        yield from _of_expr(child, at)


def _tested(expr: Expr, at: _Place) -> list[_Row]:
    """What is tested as it stands: comparisons speak for themselves."""
    return [] if isinstance(expr, Compare | Bool | Unary) else [(expr, expr, at)]


def _fractional(expr: Expr) -> bool:
    """Whether an expression is a float by its text: a cast of whole numbers to `i64` is none."""
    return any(
        (isinstance(n, Num) and isinstance(n.value, float))
        or (isinstance(n, Binary) and n.op == "/")
        or (isinstance(n, Call) and n.fn in ("f32", "float", "f16", "bf16", "floor", "ceil"))
        for n in walk_expr(expr)
    )


# --- while it runs --------------------------------------------------------------------------------


@dataclass(slots=True)
class Watch:
    """What the runs of a deck take, of the conditions that an edit brought. `rows` and `keys` are
    those of the run that is under way."""

    base: Module
    watched: tuple[Condition, ...]
    seen: dict[Key, set[bool]] = field(default_factory=dict)
    ran: set[Path] = field(default_factory=set)
    rows: int = 0
    keys: int = 0

    @staticmethod
    def of(base: Module, module: Module) -> Watch:
        """A watch on the edit that leads from `base` to `module`."""
        return Watch(base, new_conditions(base, module))

    def compiler(self, module: Module, mode: Mode) -> ProgramCompiler:
        """What turns the module into code that reports here."""
        return _Watching(module, mode, self)

    def finished(self, coverage: Coverage) -> None:
        """Takes in which statements a run reached."""
        self.ran |= {path for path, count in coverage.ops.items() if count}

    def unseen(self) -> tuple[tuple[Condition, bool], ...]:
        """The conditions that no run took one way, and which way that is."""
        return tuple((one, s) for one in self.watched for s in one.sides if not self.has(one, s))

    def has(self, one: Condition, side: bool) -> bool:
        """Whether a run took this side."""
        if one.loop:
            return (*one.path, "body", 0) in self.ran
        return side in self.seen.get(one.key, ())

    def note(self, key: Key, value: Any, places: tuple[Tensor | None, Tensor | None]) -> None:
        """One value of a condition, of one element or of a tile of them."""
        seen = self.seen.setdefault(key, set())
        if not isinstance(value, Tensor):
            seen.add(bool(value))
            return
        value, inside = value.bool(), torch.ones_like(value, dtype=torch.bool)
        for place, limit in zip(places, (self.rows, self.keys), strict=True):
            if place is not None:
                inside = inside & (place < limit)
        value = value.expand_as(inside)[inside]
        seen |= {bool(v) for v in (value.any(), value.all()) if value.numel()}


class _Watching(ProgramCompiler):
    """A compiler whose conditions tell a watch what they give."""

    def __init__(self, module: Module, mode: Mode, watch: Watch) -> None:
        self._watch = watch
        self._watched = {one.key: one for one in watch.watched if not one.loop}
        self._params: tuple[str, ...] = ()
        super().__init__(module, mode)

    def lambda_(self, node: Lambda, params: tuple[str, ...], body: Expr) -> Fn:
        outer, self._params = self._params, params
        try:
            return super().lambda_(node, params, body)
        finally:
            self._params = outer

    def compile(self, expr: Expr) -> Fn:
        fn = super().compile(expr)
        one = self._watched.get((str(self.paths[self._path][0]), expr))
        if one is None:
            return fn
        watch, key, params = self._watch, one.key, self._params
        seen = watch.seen.setdefault(key, set())
        match one.test:
            case Compare("!=", left, _) if left == expr:
                test = None  # whether it is 0
            case test_expr:
                test = fn if test_expr == expr else super().compile(test_expr)

        def told(env: Env) -> Any:
            value = fn(env)
            if len(seen) < 2:
                what = value != 0 if test is None else value if test is fn else test(env)
                watch.note(key, what, _places(params, env))
            return value

        return told


def _places(params: tuple[str, ...], env: Env) -> tuple[Tensor | None, Tensor | None]:
    """The rows and the keys of a lambda's elements, where it is given them: whole numbers, rows as
    a column and keys as a row."""
    rows = keys = None
    for param in params:
        value = env.get(param)
        if isinstance(value, Tensor) and not value.dtype.is_floating_point:
            if value.shape[-1] == 1:
                rows = value
            else:
                keys = value
    return rows, keys
