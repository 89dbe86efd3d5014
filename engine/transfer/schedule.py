"""Interval analysis of a keep predicate: which key tiles a block of query rows must visit.

For a block of rows i in [i0, i1] the keys that some row keeps lie in `prefix` (from key 0) and
`rest`; a tile is full when every (i, j) in it is kept. Bounds are exact for predicates that are
monotone in i and linear in j; anything else is treated as "may be kept" and "never full", which is
always sound because partial tiles evaluate the predicate itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.nodes import Binary, Bool, Call, Compare, Expr, Name, Num, Select, Unary, walk_expr
from engine.transfer.linear import Linear, linear, linear_difference, tidy
from engine.transfer.rewrite import free_names, substitute

ROW, KEY = Name("i"), Name("j")
TRUE, FALSE = Num(True), Num(False)
_NEGATE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_MAX_TERMS = 32


@dataclass(frozen=True, slots=True)
class Rows:
    """The first and last query row of a block, as expressions."""

    first: Expr
    last: Expr


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys `low <= j <= high`; empty when high < low."""

    low: Expr
    high: Expr


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """What a block of rows visits: keys from 0 (`prefix`), then `rest`; None is nothing."""

    prefix: KeyRange | None
    rest: KeyRange | None


def minimum(a: Expr, b: Expr) -> Expr:
    return tidy(Call("min", (a, b)))


def maximum(a: Expr, b: Expr) -> Expr:
    return tidy(Call("max", (a, b)))


# --- logic -----------------------------------------------------------------------------------


def negate(expr: Expr) -> Expr:
    match expr:
        case Num(bool() as value):
            return Num(not value)
        case Unary("not", inner):
            return normal(inner)
        case Compare(op, left, right):
            return normal(Compare(_NEGATE[op], left, right))
        case Bool("and", left, right):
            return Bool("or", negate(left), negate(right))
        case Bool("or", left, right):
            return Bool("and", negate(left), negate(right))
        case Select():
            return negate(normal(expr))
        case _:
            return Unary("not", expr)


def normal(expr: Expr) -> Expr:
    """Negations pushed to the atoms, selects and `abs` bounds spelled out with and/or."""
    match expr:
        case Unary("not", inner):
            return negate(inner)
        case Bool(op, left, right):
            a, b = normal(left), normal(right)
            absorbing, neutral = (FALSE, TRUE) if op == "and" else (TRUE, FALSE)
            if absorbing in (a, b):
                return absorbing
            if a == neutral:
                return b
            return a if b == neutral else Bool(op, a, b)
        case Select(cond, then, other):
            yes, no = normal(cond), negate(cond)
            return normal(Bool("or", Bool("and", yes, then), Bool("and", no, other)))
        case Compare(op, Call("abs", (inner,)), bound) if op in ("<", "<="):
            return normal(
                Bool("and", Compare(op, inner, bound), Compare(op, Unary("-", inner), bound))
            )
        case Compare(op, Call("abs", (inner,)), bound) if op in (">", ">="):
            return normal(
                Bool("or", Compare(op, inner, bound), Compare(op, Unary("-", inner), bound))
            )
        case Compare(op, bound, Call("abs", (inner,)) as call) if op in ("<", "<=", ">", ">="):
            mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
            return normal(Compare(mirrored, call, bound))
        case Compare(op, left, right):
            difference = linear_difference(left, right)
            if not difference.terms and op in _NEGATE:
                return Num(_holds(op, difference.constant))
            return expr
        case _:
            return expr


def conjunction(left: Expr, right: Expr) -> Expr:
    """`left and right`, written without parentheses around what is a conjunction itself."""
    if isinstance(right, Bool) and right.op == "and":
        return Bool("and", conjunction(left, right.left), right.right)
    return Bool("and", left, right)


def _holds(op: str, value: int) -> bool:
    return {
        "<": value < 0, "<=": value <= 0, ">": value > 0,
        ">=": value >= 0, "==": value == 0, "!=": value != 0,
    }[op]  # fmt: skip


def disjuncts(expr: Expr) -> tuple[tuple[Expr, ...], ...]:
    """Disjunctive normal form: a tuple of conjunctions. Too large a form stays one atom."""
    match expr:
        case Bool("or", left, right):
            out = disjuncts(left) + disjuncts(right)
        case Bool("and", left, right):
            out = tuple(a + b for a in disjuncts(left) for b in disjuncts(right))
        case _:
            return ((expr,),)
    return out if len(out) <= _MAX_TERMS else ((expr,),)


def factored(expr: Expr) -> Expr:
    """`a and b or a and c` as `a and (b or c)`: what every alternative asks for is asked once."""
    terms = disjuncts(expr)
    common = [atom for atom in terms[0] if all(atom in term for term in terms[1:])]
    if len(terms) < 2 or not common:
        return expr
    rest: Expr | None = None
    for term in terms:
        left = [atom for atom in term if atom not in common]
        if not left:
            return _all(common)  # this alternative asks for nothing else
        rest = _all(left) if rest is None else Bool("or", rest, _all(left))
    assert rest is not None
    short = Bool("and", _all(common), rest)
    return short if sum(1 for _ in walk_expr(short)) < sum(1 for _ in walk_expr(expr)) else expr


def _all(atoms: list[Expr]) -> Expr:
    out = atoms[0]
    for atom in atoms[1:]:
        out = Bool("and", out, atom)
    return out


# --- intervals -------------------------------------------------------------------------------


def interval(expr: Expr, name: Name, low: Expr, high: Expr) -> tuple[Expr, Expr] | None:
    """[min, max] of `expr` while `name` runs over [low, high]; None when it is not monotone."""
    if name.id not in free_names(expr):
        return expr, expr

    def go(inner: Expr) -> tuple[Expr, Expr] | None:
        return interval(inner, name, low, high)

    match expr:
        case Name():
            return low, high
        case Unary("-", operand):
            inner = go(operand)
            return inner and (Unary("-", inner[1]), Unary("-", inner[0]))
        case Binary("+", left, right):
            a, b = go(left), go(right)
            return (Binary("+", a[0], b[0]), Binary("+", a[1], b[1])) if a and b else None
        case Binary("-", left, right):
            a, b = go(left), go(right)
            return (Binary("-", a[0], b[1]), Binary("-", a[1], b[0])) if a and b else None
        case Binary("*", left, Num(int() as factor)) | Binary("*", Num(int() as factor), left):
            inner = go(left)
            if inner is None:
                return None
            scaled = [Binary("*", e, Num(factor)) for e in inner]
            return (scaled[0], scaled[1]) if factor >= 0 else (scaled[1], scaled[0])
        case Binary("//", left, divisor) if _positive(divisor):
            inner = go(left)
            return inner and (Binary("//", inner[0], divisor), Binary("//", inner[1], divisor))
        case Call("floor_div", (left, divisor)) if _positive(divisor):
            inner = go(left)
            return inner and (
                Call("floor_div", (inner[0], divisor)),
                Call("floor_div", (inner[1], divisor)),
            )
        case Call(("min" | "max") as fn, (left, right)):
            a, b = go(left), go(right)
            return (Call(fn, (a[0], b[0])), Call(fn, (a[1], b[1]))) if a and b else None
    return None


def _positive(expr: Expr) -> bool:
    return isinstance(expr, Num) and not isinstance(expr.value, bool) and expr.value > 0


@dataclass(frozen=True, slots=True)
class _Bound:
    """low(i) <= j <= high(i); None is unbounded on that side."""

    low: Expr | None
    high: Expr | None


def _bound(atom: Expr) -> _Bound | None:
    """Bounds on j that an atom implies exactly, or None when it cannot be solved for j."""
    if not isinstance(atom, Compare) or atom.op == "!=":
        return None
    form = linear_difference(atom.left, atom.right)  # form op 0
    carriers = [(a, c) for a, c in form.terms if "j" in free_names(a)]
    if len(carriers) != 1 or abs(carriers[0][1]) != 1:
        return None
    carrier, sign = carriers[0]
    match carrier:
        case Name("j"):
            width: Expr | None = None
        case Call("floor_div", (Name("j"), divisor)) | Binary("//", Name("j"), divisor) if (
            _positive(divisor)
        ):
            width = divisor
        case _:
            return None
    rest = form.without(carrier).scaled(-sign)  # carrier (op or mirrored op) rest
    op = atom.op if sign > 0 else {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}[atom.op]
    high = {"<": -1, "<=": 0, "==": 0}.get(op)
    low = {">": 1, ">=": 0, "==": 0}.get(op)
    return _Bound(
        None if low is None else _first_key(rest, low, width),
        None if high is None else _last_key(rest, high, width),
    )


def _first_key(rest: Linear, shift: int, width: Expr | None) -> Expr:
    value = Linear(rest.terms, rest.constant + shift).to_expr()
    return value if width is None else tidy(Binary("*", value, width))


def _last_key(rest: Linear, shift: int, width: Expr | None) -> Expr:
    value = Linear(rest.terms, rest.constant + shift).to_expr()
    if width is None:
        return value
    return tidy(Binary("-", Binary("*", Binary("+", value, Num(1)), width), Num(1)))


def _conjunction(atoms: tuple[Expr, ...], rows: Rows, keys: Expr) -> KeyRange | None:
    """Keys that a conjunction may keep for some row of the block; None when it never can."""
    low: Expr = Num(0)
    high: Expr = tidy(Binary("-", keys, Num(1)))
    nowhere: list[Expr] = []  # conditions on the block under which nothing is kept
    for atom in atoms:
        if atom == FALSE:
            return None
        bound = _bound(atom)
        if bound is not None:
            if bound.low is not None and (over := interval(bound.low, ROW, rows.first, rows.last)):
                low = maximum(low, tidy(over[0]))
            if bound.high is not None and (
                over := interval(bound.high, ROW, rows.first, rows.last)
            ):
                high = minimum(high, tidy(over[1]))
        elif isinstance(atom, Compare) and "j" not in free_names(atom):
            possible = _possible(atom, rows)
            if possible == FALSE:
                return None
            if possible is not None and possible != TRUE:
                nowhere.append(possible)
    for possible in nowhere:
        high = Select(possible, high, Num(-1))
    return KeyRange(low, high)


def _possible(atom: Compare, rows: Rows) -> Expr | None:
    """A condition on the block that is true when the atom may hold for one of its rows."""
    form = linear_difference(atom.left, atom.right).to_expr()
    over = interval(form, ROW, rows.first, rows.last)
    if over is None:
        return None
    low, high = tidy(over[0]), tidy(over[1])
    match atom.op:
        case "<" | "<=":
            return normal(Compare(atom.op, low, Num(0)))
        case ">" | ">=":
            return normal(Compare(atom.op, high, Num(0)))
        case "==":
            return normal(Bool("and", Compare("<=", low, Num(0)), Compare(">=", high, Num(0))))
    return None


def key_ranges(keep: Expr, rows: Rows, keys: Expr) -> KeyRanges:
    """The keys that the block must visit. `keys` is the number of keys (Nk)."""
    pieces = [r for c in disjuncts(normal(keep)) if (r := _conjunction(c, rows, keys)) is not None]
    prefix: KeyRange | None = None
    rest: KeyRange | None = None
    for piece in pieces:
        if piece.low == Num(0):
            prefix = piece if prefix is None else KeyRange(Num(0), maximum(prefix.high, piece.high))
        elif rest is None:
            rest = piece
        else:
            rest = KeyRange(minimum(rest.low, piece.low), maximum(rest.high, piece.high))
    if prefix is not None and prefix.high == tidy(Binary("-", keys, Num(1))):
        rest = None  # the prefix is everything
    return KeyRanges(prefix, rest)


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
    match expr:
        case Bool(op, left, right):
            return normal(Bool(op, _certain(left, spans, read), _certain(right, spans, read)))
        case Num(bool()):
            return expr
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
        case _:
            # A condition without i and j (a flag, a size) may stand as it is.
            names = {name.id for name, _, _ in spans}
            return expr if not names & free_names(expr) and isinstance(expr, Compare) else FALSE


def possible(keep: Expr, spans: tuple[Span, ...], read: frozenset[str]) -> Expr:
    """A condition that holds wherever `keep` does for some values of its variables (necessary).

    What reads one of the variables `read` takes part, and what stands beside it as an alternative;
    all else may hold.
    """
    return _possibly(normal(keep), spans, read)


def _possibly(expr: Expr, spans: tuple[Span, ...], read: frozenset[str]) -> Expr:
    match expr:
        case Bool("or", left, right):
            # If no alternative reads, all may hold; else those without a load are asked as well.
            asked = read | {name.id for name, _, _ in spans} if read & free_names(expr) else read
            return normal(Bool("or", _possibly(left, spans, asked), _possibly(right, spans, asked)))
        case Bool(op, left, right):
            sides = (_possibly(left, spans, read), _possibly(right, spans, read))
            return normal(Bool(op, *sides))
        case Num(bool()):
            return expr
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
