"""Bounds of a predicate over ranges of its variables: where it holds for all, where for none."""

from __future__ import annotations

from engine.cuir.nodes import Bool, Compare, Expr, Name, free_names
from engine.cuir.rewrite import substitute
from engine.transfer.linear import Linear, linear, linear_difference, tidy
from engine.transfer.logic import FALSE, TRUE, negate, normal
from engine.transfer.schedule import KEY, ROW, Rows, interval

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
