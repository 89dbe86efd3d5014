"""Divisions at points that no run comes to."""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import Binary, Call, Compare, Expr, Num, Select, rebuild


def never_by_0(expr: Expr) -> Expr:
    """`expr` with divisions by 0, at points that no run comes to, giving something all the same."""
    expr = rebuild(expr, never_by_0)
    match expr:
        case Binary("//" | "%", left, right) if not isinstance(right, Num):
            return replace(expr, right=_not_0(right))
        case Call("floor_div" | "floor_mod" | "ceil_div", (left, right)) if not isinstance(
            right, Num
        ):
            return replace(expr, args=(left, _not_0(right)))
    return expr


def _not_0(expr: Expr) -> Expr:
    return Select(Compare("!=", expr, Num(0)), expr, Num(1))
