"""Predicates without branches.

`and` and `or` look at their right side only where the left one leaves it open. On an element's
predicate that is a branch for each alternative, and neighbouring elements take different ways: the
warp runs both, one after the other, and waits where they meet. With `&` and `|` all comparisons are
made, an instruction each, and nothing waits.
"""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Lambda,
    Module,
    Num,
    Select,
    Stmt,
    Unary,
    map_stmt_exprs,
    walk_expr,
)
from engine.cuir.rewrite import map_expr, map_statements
from engine.transfer.match import Attention
from engine.transfer.rules.base.rule import Rule
from engine.transfer.rules.base.score_sites import is_element_op


def unbranched(predicate: Expr) -> Expr:
    """The predicate with all of its conditions looked at, whatever the first ones say: no branch
    keeps a load waiting, and no load is left out for one pair of many."""
    if not isinstance(predicate, Bool):
        return predicate
    return Compare("!=", _bitwise(predicate), Num(0))


def _bitwise(expr: Expr) -> Expr:
    """A condition as a whole number, 0 or 1: bits of other numbers would say something else."""
    match expr:
        case Bool(op, left, right):
            return Binary("&" if op == "and" else "|", _bitwise(left), _bitwise(right))
        case Compare():
            return expr
        case Unary("not", Compare() | Bool() | Unary("not", _) as inner):
            return Compare("==", _bitwise(inner), Num(0))
        case Unary("not", inner):
            return Compare("==", inner, Num(0))
    return Compare("!=", expr, Num(0))


def look_at_all(module: Module, found: Attention) -> Module:
    """The keep predicates of score tiles without branches, where they have alternatives.

    A chain of `and` stays: its comparisons become one instruction each as it is. So does what has
    a part that must not be looked at everywhere, such as a load or a division by a variable.
    """

    def change(node: Expr) -> Expr | None:
        match node:
            case Call("keep", (*tiles, Lambda(params, body))) if _pays(body):
                return replace(node, args=(*tiles, Lambda(params, unbranched(body))))
        return None

    def edit(stmt: Stmt) -> Stmt:
        keeps = is_element_op(stmt, found, "keep")
        return map_stmt_exprs(stmt, lambda e: map_expr(e, change)) if keeps else stmt

    return map_statements(module, found.kernel, edit)


def _pays(predicate: Expr) -> bool:
    nodes = list(walk_expr(predicate))
    alternatives = any(isinstance(n, Bool) and n.op == "or" for n in nodes)
    return alternatives and isinstance(predicate, Bool) and not any(map(_guarded, nodes))


def _guarded(node: Expr) -> bool:
    """True for what may fail, or may be costly, where the conditions before it do not hold."""
    match node:
        case Index() | Select():
            return True
        case Binary("//" | "%" | "/", _, divisor):
            return not _nonzero(divisor)
        case Call("floor_div" | "floor_mod", (_, divisor)):
            return not _nonzero(divisor)
        case Call(fn):
            return fn not in ("min", "max", "abs")
    return False


def _nonzero(divisor: Expr) -> bool:
    return isinstance(divisor, Num) and divisor.value != 0


RULE = Rule(
    "branches",
    "Look at all alternatives of the mask",
    "`and` and `or` are a branch for each element, and threads of a warp that branch apart wait "
    "for each other; with `&` and `|` each comparison is one instruction",
    "mask",
    applies=lambda case: case.masked,
    edit=lambda module, case: look_at_all(module, case.found),
    after=("rows",),
)
