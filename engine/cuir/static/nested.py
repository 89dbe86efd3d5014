"""Calls that are statements of their own: only values may stand inside an expression."""

from __future__ import annotations

from collections.abc import Iterator

from engine.cuir.nodes import (
    Assign,
    Call,
    Do,
    Expr,
    Function,
    Path,
    Return,
    Stmt,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.ops import OPS, Who
from engine.cuir.static.facts import Facts


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
