"""Whom an expression calls, which kernel it launches, and what is known when it is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.cuir.arch import Arch
from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Do,
    Expr,
    Function,
    Index,
    Name,
    Path,
    Return,
    Select,
    Stmt,
    Tuple,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.ops import OPS, Who
from engine.cuir.ops.spec import RuleContext
from engine.cuir.ops.traits import BUILT, LAUNCHES
from engine.cuir.static.facts import Facts
from engine.cuir.types import DTYPES, DTypeValue, Scalar, Unknown


@dataclass(frozen=True, slots=True)
class Callee:
    """A function or an op by its name, or a kernel that is launched; with what it is given.

    `launch` are the operands that a launch gives by name (grid, threads, shared).
    """

    name: str
    args: tuple[Expr, ...]
    consts: tuple[Expr, ...]
    launch: Mapping[str, Expr] | None = None

    @property
    def grid(self) -> tuple[Expr, ...]:
        """The sizes of a launch's grid."""
        given = None if self.launch is None else self.launch.get("grid")
        return given.items if isinstance(given, Tuple) else ()


def callee(expr: Expr | None) -> Callee | None:
    """None where the expression is no call."""
    match expr:
        case Call(fn, (Index(Name(kernel), consts), Tuple(args)), kwargs) if fn in LAUNCHES:
            return Callee(kernel, args, consts, dict(kwargs))
        case Call(fn, (Name(kernel), Tuple(args)), kwargs) if fn in LAUNCHES:
            return Callee(kernel, args, (), dict(kwargs))
        case Call(fn, args, _, consts):
            return Callee(fn, args, consts)
    return None


def fields_of(expr: Expr) -> tuple[str, ...]:
    """The fields of the argument struct that an operand may be: one, or those of a choice between
    launches, that of the last launch last. None for what is no field."""
    match expr:
        case Attr(Name("args"), field):
            return (field,)
        case Select(_, then, other):
            fields = fields_of(then), fields_of(other)
            return (*fields[0], *fields[1]) if all(fields) else ()
    return ()


def is_launch(expr: Expr | None) -> bool:
    """Whether an expression launches a kernel, however it is written."""
    return isinstance(expr, Call) and expr.fn in LAUNCHES


def launched(expr: Expr | None) -> Callee | None:
    """The kernel that an expression launches."""
    found = callee(expr)
    return found if found is not None and found.launch is not None else None


def built(expr: Expr, arch: Arch, types: Mapping[str, object]) -> int | float | bool | None:
    """The value of an op that is known when a kernel is compiled for `arch`, where `types` are the
    element types that names stand for; None of every other expression, and where one lacks."""
    if not isinstance(expr, Call) or expr.fn not in BUILT:
        return None
    names = [str(types.get(a.id, a.id)) if isinstance(a, Name) else "" for a in expr.args]
    given = [DTypeValue(DTYPES[name]) if name in DTYPES else Unknown() for name in names]
    spec = OPS[expr.fn]
    if len(given) != len(spec.operands) or Unknown() in given:
        return None
    found = spec.rule(RuleContext(arch), *given)
    return found.value if isinstance(found, Scalar) else None


def why_not_nested(call: Call, facts: Facts) -> str:
    """What is wrong with `call` inside an expression; empty where it may stand there."""
    spec = OPS.get(call.fn)
    if spec is not None:
        return "" if spec.is_value else f"{call.fn} is a statement of its own"
    if call.fn in facts.functions and not facts.is_pure(call.fn):
        return f"{call.fn} holds ops: its call is a statement of its own"
    return ""


def nested(function: Function, facts: Facts) -> Iterator[tuple[Path, str]]:
    """The statements that hold such a call in an expression, and what is wrong with it."""
    for path, stmt in walk_block(function.body, (function.name,)):
        for expr in stmt_exprs(stmt):
            for call in walk_expr(expr):
                if isinstance(call, Call) and not (call is expr and _may_head(stmt, call)):
                    message = why_not_nested(call, facts)
                    if message:
                        yield path, message


def _may_head(stmt: Stmt, call: Expr) -> bool:
    """Whether `call`, the whole of the statement's expression, may be any op."""
    match stmt:
        case Assign() | Do():
            return True
        case Return() if isinstance(call, Call):
            return call.fn in OPS and OPS[call.fn].who is Who.HOST
    return False
