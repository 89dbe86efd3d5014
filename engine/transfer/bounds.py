"""Bounds of a predicate over ranges of its variables: where it holds for all, where for none.

A load that depends on the row alone has a least and a largest value over a block's rows, one that
depends on the key alone over a tile's keys: such loads become variables too.
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
from engine.cuir.rewrite import map_expr, substitute
from engine.scalar_algebra.rewrite import FALSE, TRUE
from engine.transfer.linear import Linear, linear, linear_difference, tidy
from engine.transfer.logic import negate, normal
from engine.transfer.schedule import KEY, ROW, Rows, interval

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


# A variable of a predicate and the least and largest value that it takes.
Span = tuple[Name, Expr, Expr]


def tile_full(keep: Expr, rows: Rows, first_key: Expr, last_key: Expr) -> Expr:
    """A condition under which all of the tile is kept (sufficient; exact where it is linear)."""
    return certain(keep, ((KEY, first_key, last_key), (ROW, rows.first, rows.last)))


def certain(keep: Expr, spans: tuple[Span, ...], read: frozenset[str] = frozenset()) -> Expr:
    """A condition under which `keep` holds for all values of its variables (sufficient).

    Of the variables `read` it is also asked whether they have one value only, where that decides.
    """
    return _certain(normal(keep), spans, read)


def _certain(expr: Expr, spans: tuple[Span, ...], read: frozenset[str]) -> Expr:
    if not _names(spans) & free_names(expr):
        return expr  # a condition on the block, such as one on the head, stands as it is
    match expr:
        case Bool(op, left, right):
            return normal(Bool(op, _certain(left, spans, read), _certain(right, spans, read)))
        case Compare(op, left, right) if (
            op == "!=" or _extremes(linear_difference(left, right).to_expr(), spans) is None
        ):
            point = _at_point(expr, spans, read)
            return FALSE if point is None else normal(Bool("and", *point))
        case Compare("==", left, right):
            both = Bool("and", Compare("<=", left, right), Compare(">=", left, right))
            return _certain(both, spans, read)
        case Compare(op, left, right):
            over = _extremes(linear_difference(left, right).to_expr(), spans)
            assert over is not None
            return normal(_readable(op, over[1] if op in ("<", "<=") else over[0]))
    return FALSE


def _names(spans: tuple[Span, ...]) -> frozenset[str]:
    return frozenset(name.id for name, _, _ in spans)


def possible(keep: Expr, spans: tuple[Span, ...], read: frozenset[str]) -> Expr:
    """A condition that holds wherever `keep` does for some values of its variables (necessary).

    What reads one of the variables `read` takes part, and what stands beside it as an alternative;
    all else may hold.
    """
    return _possibly(normal(keep), spans, read)


def _possibly(expr: Expr, spans: tuple[Span, ...], read: frozenset[str]) -> Expr:
    names = _names(spans)
    if not names & free_names(expr):
        return expr if names <= read else TRUE
    match expr:
        case Bool("or", left, right):
            # If no alternative reads, all may hold; else those without a load are asked as well.
            asked = read | names if read & free_names(expr) else read
            return normal(Bool("or", _possibly(left, spans, asked), _possibly(right, spans, asked)))
        case Bool(op, left, right):
            sides = (_possibly(left, spans, read), _possibly(right, spans, read))
            return normal(Bool(op, *sides))
        case Compare(op, left, right) if read & free_names(expr) and op != "!=":
            over = _extremes(linear_difference(left, right).to_expr(), spans)
            if over is None:
                point = _at_point(expr, spans, read)
                return TRUE if point is None else Bool("or", negate(point[0]), point[1])
            if op == "==":
                both = Bool("and", _readable("<=", over[0]), _readable(">=", over[1]))
                return normal(both)
            return normal(_readable(op, over[0] if op in ("<", "<=") else over[1]))
    return TRUE


def _at_point(
    atom: Expr, spans: tuple[Span, ...], read: frozenset[str]
) -> tuple[Expr, Expr] | None:
    """(all variables of the atom have one value, what the atom is there); None where one of them
    is not in `read`."""
    own = {n: (low, high) for n, low, high in spans if n.id in free_names(atom)}
    if not own or not {n.id for n in own} <= read:
        return None
    equal: Expr | None = None
    for low, high in own.values():
        same = Compare("==", low, high)
        equal = same if equal is None else Bool("and", equal, same)
    assert equal is not None
    return equal, substitute(atom, {n.id: low for n, (low, _) in own.items()})


def _extremes(form: Expr, spans: tuple[Span, ...]) -> tuple[Expr, Expr] | None:
    """[min, max] of `form` over all spans; None where it is not monotone in one of them."""
    low, high = form, form
    for name, first, last in spans:
        over_low, over_high = interval(low, name, first, last), interval(high, name, first, last)
        if over_low is None or over_high is None:
            return None
        low, high = over_low[0], over_high[1]
    if {name.id for name, _, _ in spans} & (free_names(low) | free_names(high)):
        return None
    return tidy(low), tidy(high)


def _readable(op: str, difference: Expr) -> Expr:
    """`difference op 0` with positive terms on the left and negative ones on the right."""
    form = linear(difference)
    left = Linear(tuple(t for t in form.terms if t[1] > 0), max(form.constant, 0))
    right = Linear(tuple((a, -c) for a, c in form.terms if c < 0), max(-form.constant, 0))
    return Compare(op, left.to_expr(), right.to_expr())
