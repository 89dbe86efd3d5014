"""The tree of a CuIR module.

Nodes are frozen and compare by structure: two trees are equal exactly when their canonical prints
are equal. Ids and provenance never live in the nodes; they are kept in side tables keyed by `Path`.

One expression language serves everything: index arithmetic, per-element lambdas, launch arguments
and the predicates of a recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar


class _Node:
    """What a node keeps beside its fields."""

    __slots__ = ("_hash",)


N = TypeVar("N", bound=type[_Node])


def _hashed_once(cls: N) -> N:
    """A node's hash is that of all below it: it is asked for at every step of a walk, and kept."""
    of_fields: Callable[[_Node], int] = cls.__hash__

    def kept(self: _Node) -> int:
        try:
            return self._hash  # type: ignore[attr-defined, no-any-return]
        except AttributeError:
            object.__setattr__(self, "_hash", found := of_fields(self))
            return found

    cls.__hash__ = kept  # type: ignore[assignment, method-assign]
    return cls


# --- expressions -----------------------------------------------------------------------------


@_hashed_once
@dataclass(frozen=True, slots=True)
class Num(_Node):
    """An int, float or bool literal. `inf` and `nan` are the names of constants, see `Name`."""

    value: int | float | bool

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are different literals, and nan equals itself.
        return (
            isinstance(other, Num)
            and type(self.value) is type(other.value)
            and repr(self.value) == repr(other.value)
        )

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))


@_hashed_once
@dataclass(frozen=True, slots=True)
class Str(_Node):
    value: str


@_hashed_once
@dataclass(frozen=True, slots=True)
class Name(_Node):
    id: str


@_hashed_once
@dataclass(frozen=True, slots=True)
class Attr(_Node):
    """`args.Nk`: a field of the argument struct (the only attribute access there is)."""

    base: Expr
    field: str


@_hashed_once
@dataclass(frozen=True, slots=True)
class Call(_Node):
    """`f[T, 2](a, b, at=0)`: op, device function, scalar function or type constructor."""

    fn: str
    args: tuple[Expr, ...] = ()
    kwargs: tuple[tuple[str, Expr], ...] = ()
    params: tuple[Expr, ...] = ()


@_hashed_once
@dataclass(frozen=True, slots=True)
class Slice(_Node):
    """`q0:` as the last index of a tensor: a tile that starts at `start`."""

    start: Expr


@_hashed_once
@dataclass(frozen=True, slots=True)
class Index(_Node):
    """`Q[b, h, q0:]` (a tile of a tensor), `sK[stage]` (a stage), `slope[h]` (a scalar load)."""

    base: Expr
    index: tuple[Expr, ...]


@_hashed_once
@dataclass(frozen=True, slots=True)
class Unary(_Node):
    op: str  # "-", "not", "~"
    operand: Expr


@_hashed_once
@dataclass(frozen=True, slots=True)
class Binary(_Node):
    """Arithmetic. `//` and `%` truncate toward zero as in C; `floor_div` and `floor_mod` floor."""

    op: str  # + - * / // % & | ^ << >>
    left: Expr
    right: Expr


@_hashed_once
@dataclass(frozen=True, slots=True)
class Compare(_Node):
    op: str  # < <= > >= == !=
    left: Expr
    right: Expr


# Of a comparison's operator: what says the contrary, and what says the same with the sides changed.
CONTRARY = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


@_hashed_once
@dataclass(frozen=True, slots=True)
class Bool(_Node):
    """`a and b`, `a or b`; binary, left-associated."""

    op: str  # and, or
    left: Expr
    right: Expr


@_hashed_once
@dataclass(frozen=True, slots=True)
class Select(_Node):
    """`then if cond else other`."""

    cond: Expr
    then: Expr
    other: Expr


@_hashed_once
@dataclass(frozen=True, slots=True)
class Lambda(_Node):
    """A per-element function; only as an argument of an op. Its body is a scalar expression."""

    params: tuple[str, ...]
    body: Expr


@_hashed_once
@dataclass(frozen=True, slots=True)
class Tuple(_Node):
    """`[a, b]`: shapes, grids, coordinates."""

    items: tuple[Expr, ...]


Expr = (
    Num | Str | Name | Attr | Call | Slice | Index | Unary | Binary | Compare | Bool | Select
    | Lambda | Tuple
)  # fmt: skip

# --- statements ------------------------------------------------------------------------------


@_hashed_once
@dataclass(frozen=True, slots=True)
class Assign(_Node):
    """`target = value`. `target` may be dotted-free only; tuples do not exist."""

    target: str
    value: Expr


@_hashed_once
@dataclass(frozen=True, slots=True)
class Do(_Node):
    """An op for its effect: `sync()`, `copy_async(sQ, Q[b, h, q0:])`."""

    call: Call


@_hashed_once
@dataclass(frozen=True, slots=True)
class For(_Node):
    """`for var in range(start, stop, step):`.

    Where the step is `then(name)` the variable becomes what that name holds at the end of each
    round, which is above what it was; see `next_of`.
    """

    var: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Stmt, ...]


@_hashed_once
@dataclass(frozen=True, slots=True)
class If(_Node):
    cond: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()


@_hashed_once
@dataclass(frozen=True, slots=True)
class Return(_Node):
    value: Expr | None = None


@_hashed_once
@dataclass(frozen=True, slots=True)
class Opaque(_Node):
    """Source text whose meaning is unknown: what it reads and writes, and an optional meaning.

    `meaning` (from a person or a model) is assumed until a GPU run confirms it.
    """

    text: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    meaning: tuple[Stmt, ...] = ()


Stmt = Assign | Do | For | If | Return | Opaque

# --- modules ---------------------------------------------------------------------------------


@_hashed_once
@dataclass(frozen=True, slots=True)
class Field(_Node):
    """One field of the argument struct: `tensor`, `i32`, `i64` or `f32`."""

    name: str
    type: str


@_hashed_once
@dataclass(frozen=True, slots=True)
class Param(_Node):
    """A run-time parameter of a function: `name` or `name: type`."""

    name: str
    type: str | None = None


@_hashed_once
@dataclass(frozen=True, slots=True)
class Function(_Node):
    """A host function, a kernel or a device function.

    `consts` are compile-time parameters (C++ template parameters), printed after `*`.
    `options` are the decorator's keywords, such as `threads=128`, `workers=...`.
    """

    kind: str  # host, kernel, device
    name: str
    params: tuple[Param, ...]
    consts: tuple[str, ...]
    options: tuple[tuple[str, Expr], ...]
    body: tuple[Stmt, ...]


@_hashed_once
@dataclass(frozen=True, slots=True)
class Module(_Node):
    """One specialisation of one program. `spec` binds arch and the host's compile-time names."""

    spec: tuple[tuple[str, Expr], ...]
    fields: tuple[Field, ...]
    functions: tuple[Function, ...]

    @property
    def devices(self) -> dict[str, Function]:
        """The device functions by name."""
        return {f.name: f for f in self.functions if f.kind == "device"}

    def function(self, name: str) -> Function:
        for candidate in self.functions:
            if candidate.name == name:
                return candidate
        raise KeyError(name)


# A path names a statement: (function name, index, [branch, index]...), where branch is "body",
# "then", "other" or "meaning". The path (function name,) names the function itself.
Path = tuple[str | int, ...]


def blocks(stmt: Stmt) -> tuple[tuple[str, tuple[Stmt, ...]], ...]:
    """The named statement lists inside a statement."""
    if isinstance(stmt, For):
        return (("body", stmt.body),)
    if isinstance(stmt, If):
        return (("then", stmt.then), ("other", stmt.other))
    if isinstance(stmt, Opaque):
        return (("meaning", stmt.meaning),)
    return ()


def with_blocks(stmt: Stmt, inner: Mapping[str, tuple[Stmt, ...]]) -> Stmt:
    """The statement with its blocks replaced by those of `inner`, by name."""
    named: dict[str, Any] = {name: inner[name] for name, _ in blocks(stmt) if name in inner}
    return replace(stmt, **named) if named else stmt


def stmt_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions in a statement's own header (not in its blocks)."""
    match stmt:
        case Assign(_, value):
            return (value,)
        case Do(call):
            return (call,)
        case For(_, start, stop, step, _):
            return (start, stop, step)
        case If(cond, _, _):
            return (cond,)
        case Return(value):
            return () if value is None else (value,)
        case _:
            return ()


def stmt_call(stmt: Stmt) -> Call | None:
    """The call that is the whole of a statement's expression."""
    match stmt:
        case Do(call):
            return call
        case Assign(_, Call() as call) | Return(Call() as call):
            return call
    return None


def map_stmt_exprs(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """The statement with `change` applied to each header expression."""
    match stmt:
        case Assign(target, value):
            return Assign(target, change(value))
        case Do(call):
            done = change(call)
            assert isinstance(done, Call)
            return Do(done)
        case For(var, start, stop, step, body):
            return For(var, change(start), change(stop), change(step), body)
        case If(cond, then, other):
            return If(change(cond), then, other)
        case Return(value):
            return Return(None if value is None else change(value))
        case _:
            return stmt


def map_target(stmt: Stmt, change: Callable[[str], str]) -> Stmt:
    """The statement with `change` made to the name that it gives a value to."""
    match stmt:
        case Assign(target, value):
            return Assign(change(target), value)
        case For(var):
            return replace(stmt, var=change(var))
    return stmt


THEN = "then"


def next_of(step: Expr) -> str | None:
    """The name that a loop's variable takes its next value from, where its step is `then(name)`."""
    match step:
        case Call(fn, (Name(id),), (), ()) if fn == THEN:
            return id
    return None


def walk(module: Module) -> Iterator[tuple[Path, Stmt]]:
    """Every statement with its path, in program order."""
    for function in module.functions:
        yield from walk_block(function.body, (function.name,))


def walk_block(body: tuple[Stmt, ...], prefix: Path) -> Iterator[tuple[Path, Stmt]]:
    for position, stmt in enumerate(body):
        path = (*prefix, position)
        yield path, stmt
        for branch, inner in blocks(stmt):
            yield from walk_block(inner, (*path, branch))


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions, in evaluation order."""
    return _CHILDREN[type(expr)](expr)


_CHILDREN: Mapping[type, Callable[[Any], tuple[Expr, ...]]] = {
    **dict.fromkeys((Num, Str, Name), lambda _: ()),
    **dict.fromkeys((Binary, Compare, Bool), lambda e: (e.left, e.right)),
    Attr: lambda e: (e.base,),
    Call: lambda e: (*e.params, *e.args, *(value for _, value in e.kwargs)),
    Slice: lambda e: (e.start,),
    Index: lambda e: (e.base, *e.index),
    Unary: lambda e: (e.operand,),
    Select: lambda e: (e.cond, e.then, e.other),
    Lambda: lambda e: (e.body,),
    Tuple: lambda e: e.items,
}  # by type: as a chain of cases this is what a walk takes its time for


def rebuild(expr: Expr, go: Callable[[Expr], Expr]) -> Expr:
    """`expr` with `go` made to each direct subexpression; see `children`."""
    match expr:
        case Attr(base, field):
            return Attr(go(base), field)
        case Call(fn, args, kwargs, params):
            named = tuple((name, go(value)) for name, value in kwargs)
            return Call(fn, tuple(map(go, args)), named, tuple(map(go, params)))
        case Slice(start):
            return Slice(go(start))
        case Index(base, index):
            return Index(go(base), tuple(map(go, index)))
        case Unary(op, operand):
            return Unary(op, go(operand))
        case Binary(op, left, right):
            return Binary(op, go(left), go(right))
        case Compare(op, left, right):
            return Compare(op, go(left), go(right))
        case Bool(op, left, right):
            return Bool(op, go(left), go(right))
        case Select(cond, then, other):
            return Select(go(cond), go(then), go(other))
        case Lambda(params, body):
            return Lambda(params, go(body))
        case Tuple(items):
            return Tuple(tuple(map(go, items)))
    return expr


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it, parents first."""
    pending = [expr]
    while pending:
        yield (expr := pending.pop())
        pending += _CHILDREN[type(expr)](expr)[::-1]


def names_in(*exprs: Expr) -> frozenset[str]:
    """Every name that stands in the expressions; `free_names` leaves out lambdas' parameters."""
    return frozenset(e.id for expr in exprs for e in walk_expr(expr) if isinstance(e, Name))


def free_names(expr: Expr) -> frozenset[str]:
    """Names that `expr` reads (calls' own names are not reads)."""
    if isinstance(expr, Lambda):
        return free_names(expr.body) - set(expr.params)
    if isinstance(expr, Name):
        return frozenset((expr.id,))
    return frozenset().union(*(free_names(child) for child in children(expr)))


def integers_in(expressions: Iterable[Expr]) -> tuple[int, ...]:
    """The magnitudes of whole numbers that stand in the expressions, from the smallest on."""
    found = {
        abs(node.value)
        for expr in expressions
        for node in walk_expr(expr)
        if isinstance(node, Num)
        and isinstance(node.value, int)
        and not isinstance(node.value, bool)
    }
    return tuple(sorted(found))
