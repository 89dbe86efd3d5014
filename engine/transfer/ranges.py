"""Loads of a predicate as variables: each has a range over a block of rows or a tile of keys.

A load that depends on the row alone has a least and a largest value over a block's rows, one that
depends on the key alone over a tile's keys. With them a predicate over loads is bounded as one over
indices is, whatever it compares: documents, positions, lengths, flags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.cuir.nodes import (
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Name,
    Num,
    Unary,
    free_names,
    walk_expr,
)
from engine.cuir.rewrite import map_expr
from engine.transfer.bounds import Span
from engine.transfer.logic import normal
from engine.transfer.schedule import KEY, ROW

INTEGERS = ("i32", "i64", "bool")
Fresh = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Range:
    """A load over `axis` (i or j): `value` as a whole number, and the names of its extremes."""

    value: Expr
    axis: Name
    variable: Name
    low: Name
    high: Name

    @property
    def span(self) -> Span:
        return self.variable, self.low, self.high


def reads_pairs(keep: Expr) -> bool:
    """Whether the predicate reads an input at a place that depends on the row or the key."""
    return any(
        isinstance(node, Index) and {ROW.id, KEY.id} & free_names(node) for node in walk_expr(keep)
    )


def with_ranges(
    keep: Expr, dtypes: Mapping[str, str], fresh: Fresh
) -> tuple[Expr, tuple[Range, ...]]:
    """The predicate with its loads as variables, and their ranges.

    `dtypes` are those of the inputs by name. Loads of floats, and loads that depend on both the row
    and the key, stay as they are: no range bounds them.
    """
    found: dict[Expr, Range] = {}

    def variable(load: Expr) -> Expr | None:
        if not isinstance(load, Index) or not isinstance(load.base, Name):
            return None
        axes = free_names(load) & {ROW.id, KEY.id}
        dtype = dtypes.get(load.base.id)
        if len(axes) != 1 or dtype not in INTEGERS:
            return None
        if load not in found:
            axis = Name(next(iter(axes)))
            stem = f"{load.base.id}_{'rows' if axis == ROW else 'keys'}"
            value = Call("i32", (load,)) if dtype == "bool" else load
            names = (Name(fresh(f"{stem}_{end}")) for end in ("value", "low", "high"))
            found[load] = Range(value, axis, *names)
        return found[load].variable

    def truth(expr: Expr) -> Expr:
        """A flag that stands as a condition becomes a comparison of its number."""
        match expr:
            case Bool(op, left, right):
                return Bool(op, truth(left), truth(right))
            case Unary("not", Index() as load) if (name := variable(load)) is not None:
                return Compare("<=", name, Num(0))
            case Index() if (name := variable(expr)) is not None:
                return Compare(">=", name, Num(1))
        return map_expr(expr, variable)

    return truth(normal(keep)), tuple(found.values())
