"""The conditions of a module, and which of them an edit brought.

A condition is whatever makes a program do one thing or another: a comparison, `and`, `or`, the test
of an `if`, a loop that may not run at all, and arithmetic with a step in it (`min`, `//`, a cast to
a whole number).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from engine.cuir.nodes import (
    CONTRARY,
    Assign,
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
    Unary,
    children,
    free_names,
    stmt_exprs,
    walk,
    walk_block,
    walk_expr,
)
from engine.cuir.ops.traits import BUILT
from engine.cuir.printer import print_expr
from engine.cuir.scalar import CASTS, FUNCTIONS
from engine.gates.analysis.exempt_sides import Guards
from engine.gates.analysis.float_expressions import Kinds, parameters
from engine.gates.analysis.path_conditions import Standing, Within, runs, standings
from engine.gates.analysis.size_comparisons import resolved, scalars_of

Key = tuple[Path, Expr, Within]
SHOWN = 160  # characters of a condition in a verdict
_ZERO = Num(0)


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is true or false while a module runs.

    `expr` stands in the text; `test` is what is true or false, which differs from it where `expr`
    is arithmetic. `whole` is `test` with the function's scalar names replaced by what they stand
    for, and `given` says what holds wherever it is asked; of that, `within` is what its own
    statement says. `context` is the statement's target, the op whose lambda it stands in, and whose
    elements it reads there. Of a loop, whether it runs is the condition, and only that it does must
    be seen; nor need the `exempt` side be, where a statistic of a row is nothing or a launch fails
    (see `engine.gates.analysis.exempt_sides`). Of a loop that may return, that it `ends` without
    doing so is a second condition.
    """

    path: Path
    expr: Expr
    test: Expr
    whole: Expr
    given: Within = ()
    within: Within = ()
    context: tuple[object, ...] = ()
    loop: bool = False
    exempt: bool | None = None
    ends: bool = False

    @property
    def key(self) -> Key:
        """Where a run meets it."""
        return self.path, self.expr, self.within

    @property
    def meaning(self) -> tuple[object, ...]:
        """What it is, wherever it stands in its function."""
        return (
            self.path[0], self.expr, self.whole, self.given, self.within, self.context, self.loop,
            self.ends,
        )  # fmt: skip

    @property
    def sides(self) -> tuple[bool, ...]:
        return (
            (True,)
            if self.loop or self.ends
            else tuple(s for s in (True, False) if s is not self.exempt)
        )

    def words(self, outcome: bool) -> str:
        """`args.Nk > 65536` (tile_count), or its contrary."""
        if self.ends:
            return f"the loop over `{_short(self.expr)}` end without a return ({self.path[0]})"
        match self.test:
            case Compare(op, left, right) if not outcome:
                text = _short(Compare(CONTRARY[op], left, right))
            case test:
                text = _short(test) if outcome else f"not ({_short(test)})"
        within = "" if self.loop or self.test == self.expr else f" in `{_short(self.expr)}`"
        return f"`{text}`{within} ({self.path[0]})"


def _short(expr: Expr) -> str:
    text = print_expr(expr)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]} ..."


def conditions(module: Module) -> tuple[Condition, ...]:
    """Every condition that a run decides, once at each place, in the order of the text."""
    scalars, kinds, guards = scalars_of(module), Kinds(module), Guards(module)
    handed_on = {
        p: s.cond for p, s in walk(module) if isinstance(s, If) and guards.hands_on(s, str(p[0]))
    }
    out: dict[tuple[Key, bool], Condition] = {}
    for function in module.functions:
        names = scalars.get(function.name, {})
        for at in standings(function):
            for node, test, place, loop in _of_statement(at, kinds):
                if not _decided_in_a_run(test, frozenset(function.consts)):
                    continue
                own = {n: e for n, e in names.items() if n not in place.params}
                given = tuple((resolved(e, own), side) for e, side in place.given)
                exempt = guards.exempt(test, function.name, place.tiles)
                one = Condition(
                    at.path, node, test, resolved(test, own), given, place.within,
                    place.context_of(test), loop,
                    True if handed_on.get(at.path) == test else exempt,
                )  # fmt: skip
                out.setdefault((one.key, loop), one)
            if isinstance(at.stmt, For) and _may_return(at.stmt):
                rounds = Call("range", (at.stmt.start, at.stmt.stop, at.stmt.step))
                held = tuple((resolved(e, names), side) for e, side in at.held)
                one = Condition(at.path, rounds, rounds, resolved(rounds, names), held, ends=True)
                out.setdefault((one.key, False), one)
    return tuple(out.values())


def _decided_in_a_run(test: Expr, consts: frozenset[str]) -> bool:
    """Not by compile-time constants alone; a block's number has no name, and is none of them."""
    return bool(free_names(test) - consts) or any(
        isinstance(n, Call) and n.fn not in FUNCTIONS and n.fn not in CASTS and n.fn not in BUILT
        for n in walk_expr(test)
    )


def new_conditions(base: Module, module: Module) -> tuple[Condition, ...]:
    """The conditions of `module` that are not the base's own, whose names mean something else
    there, or of which there are more than there."""
    known = Counter(one.meaning for one in conditions(base))
    all_ = conditions(module)
    now = Counter(one.meaning for one in all_)
    return tuple(one for one in all_ if now[one.meaning] > known[one.meaning])


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an expression stands: in which function and op, what the lambda parameters around it
    are, and what holds there."""

    kinds: Kinds
    function: str
    given: Within = ()
    within: Within = ()
    target: str | None = None
    ops: tuple[Call, ...] = ()
    tiles: Mapping[str, Expr | None] = field(default_factory=dict)
    floats: Mapping[str, bool] = field(default_factory=dict)

    @property
    def params(self) -> frozenset[str]:
        return frozenset(self.tiles)

    def where(self, test: Expr, side: bool) -> _Place:
        """After an `if`."""
        return replace(self, given=(*self.given, (test, side)))

    def inside(self, test: Expr, side: bool) -> _Place:
        """In one way of an expression."""
        return replace(self.where(test, side), within=(*self.within, (test, side)))

    def in_op(self, call: Call) -> _Place:
        """In an op's lambda."""
        return replace(
            self,
            ops=(*self.ops, call),
            tiles={**self.tiles, **parameters(call)},
            floats={**self.floats, **self.kinds.of_lambda(call, self.function)},
        )

    def context_of(self, test: Expr) -> tuple[object, ...]:
        """The statement's target and the ops around, each with what `test` reads of it: the tiles
        whose elements it does, and where the op says that these stand if it reads a coordinate."""
        read = free_names(test)
        context: list[object] = [self.target]
        for op in self.ops:
            elements = {n: tile for n, tile in parameters(op).items() if n in read}
            placed = op.kwargs if None in elements.values() else ()
            context += [op.fn, tuple(elements.items()), placed]
        return tuple(context)


_Row = tuple[Expr, Expr, _Place]  # what stands there, its test, where it stands


def _of_statement(at: Standing, kinds: Kinds) -> Iterator[tuple[Expr, Expr, _Place, bool]]:
    """The conditions of a statement's own header; whether it is the loop itself."""
    stmt = at.stmt
    place = _Place(kinds, str(at.path[0]), at.held)
    here = replace(place, target=stmt.target) if isinstance(stmt, Assign) else place
    for expr in stmt_exprs(stmt):
        for row in _of_expr(expr, here):
            yield *row, False
    match stmt:
        case If(cond):
            for row in _tested(cond, place):
                yield *row, False
        case For():
            test = runs(stmt)
            yield test, test, place, True


def _may_return(loop: For) -> bool:
    return any(isinstance(stmt, Return) for _, stmt in walk_block(loop.body, ()))


def _of_expr(expr: Expr, at: _Place) -> Iterator[_Row]:
    """The conditions in an expression, each with its test and where it stands."""
    match expr:
        case Call(_, args) if any(isinstance(a, Lambda) for a in args):
            for child in children(expr):
                inside = isinstance(child, Lambda)
                yield from _of_expr(child, at.in_op(expr) if inside else at)
            return
        case Bool(op, left, right):
            yield expr, expr, at
            yield from (*_tested(left, at), *_of_expr(left, at))
            later = at.inside(left, op == "and")
            yield from (*_tested(right, later), *_of_expr(right, later))
            return
        case Select(cond, then, other):
            yield from (*_tested(cond, at), *_of_expr(cond, at))
            yield from _of_expr(then, at.inside(cond, True))
            yield from _of_expr(other, at.inside(cond, False))
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
        case Call("int" | "i32" | "i64", (operand,)) if at.kinds.is_float(
            operand, at.function, at.floats
        ):
            yield expr, Compare("!=", expr, _ZERO), at
    for child in children(expr):
        yield from _of_expr(child, at)


def _tested(expr: Expr, at: _Place) -> list[_Row]:
    """What is tested as it stands: comparisons speak for themselves."""
    return [] if isinstance(expr, Compare | Bool | Unary) else [(expr, expr, at)]
