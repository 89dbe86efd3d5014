"""Interval analysis of a keep predicate: which key tiles a block of query rows must visit.

For a block of rows i in [i0, i1] the keys that some row keeps lie in `prefix` (from key 0) and
`rest`; a tile is full when every (i, j) in it is kept. Bounds are exact for predicates that are
monotone in i and linear in j; anything else is treated as "may be kept" and "never full", which is
always sound because partial tiles evaluate the predicate itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import product

from engine.cuir.nodes import (
    MIRRORED,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Name,
    Num,
    Select,
    Unary,
    children,
    free_names,
)
from engine.scalar_algebra.rewrite import FALSE, TRUE
from engine.transfer.linear import Linear, linear_difference, tidy
from engine.transfer.logic import disjuncts, negate, normal

ROW, KEY = Name("i"), Name("j")


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
    op = atom.op if sign > 0 else MIRRORED[atom.op]
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


@dataclass(frozen=True, slots=True)
class _Piece:
    """Keys low to high, of the blocks of which `when` holds (None: of all)."""

    low: Expr
    high: Expr
    when: Expr | None

    def within(self, other: _Piece) -> bool:
        """Whether `other` certainly has all keys of this one."""
        return (
            other.when in (None, self.when)
            and _at_most(other.low, self.low)
            and _at_most(self.high, other.high)
        )


@lru_cache(1 << 12)
def _at_most(a: Expr, b: Expr) -> bool:
    """Whether a <= b for certain."""
    difference = linear_difference(a, b)
    if not difference.terms:
        return difference.constant <= 0
    match a:
        case Call("min", (x, y)) if _at_most(x, b) or _at_most(y, b):
            return True
        case Call("max", (x, y)) if _at_most(x, b) and _at_most(y, b):
            return True
    match b:
        case Call("min", (x, y)):
            return _at_most(a, x) and _at_most(a, y)
        case Call("max", (x, y)):
            return _at_most(a, x) or _at_most(a, y)
    return False


def _conjunction(atoms: tuple[Expr, ...], rows: Rows, keys: Expr) -> _Piece | None:
    """Keys that a conjunction may keep for some row of the block; None when it never can."""
    low: Expr = Num(0)
    high: Expr = tidy(Binary("-", keys, Num(1)))
    when: Expr = TRUE
    bounds: list[_Bound] = []
    for atom in atoms:
        bound = _bound(atom)
        if bound is not None:
            bounds.append(bound)
            if bound.low is not None and (over := interval(bound.low, ROW, rows.first, rows.last)):
                low = maximum(low, _held(tidy(over[0]), keys))
            if bound.high is not None and (
                over := interval(bound.high, ROW, rows.first, rows.last)
            ):
                high = minimum(high, _held(tidy(over[1]), keys))
        elif "j" not in free_names(atom):
            when = normal(Bool("and", when, _possible(atom, rows)))
    for at_least, at_most in product(bounds, bounds):
        when = normal(Bool("and", when, _meeting(at_least.low, at_most.high)))
    if when == FALSE or _at_most(tidy(Binary("+", high, Num(1))), low):
        return None
    return _Piece(low, high, None if when == TRUE else when)


def _held(key: Expr, keys: Expr) -> Expr:
    """A key as an int: one of 64 bits that lies beyond the keys is the first beyond them."""
    if not is_wide(key):
        return key
    least, most = Call("i64", (Num(-1),)), Call("i64", (keys,))
    return Call("i32", (Call("min", (Call("max", (key, least)), most)),))


def is_wide(expr: Expr) -> bool:
    """Whether a whole number counts in 64 bits."""
    match expr:
        case Call(("i32" | "i64") as to, _):
            return to == "i64"
        case Select(_, value, other):
            return is_wide(value) or is_wide(other)
    return any(map(is_wide, children(expr)))


def _meeting(low: Expr | None, high: Expr | None) -> Expr:
    """A condition on sizes that is true where a row's keys from `low` to `high` are some, if both
    move with the row alike: of its ends, first and last row then tell nothing of each other."""
    if low is None or high is None or ROW.id not in free_names(low) & free_names(high):
        return TRUE
    form = linear_difference(low, high)
    if any(ROW.id in free_names(term) for term, _ in form.terms):
        return TRUE
    if not form.terms:
        return TRUE if form.constant <= 0 else FALSE
    return normal(Compare("<=", form.to_expr(), Num(0)))


def _possible(atom: Expr, rows: Rows) -> Expr:
    """A condition on the block that is true when an atom without j may hold for one of its rows."""
    if ROW.id not in free_names(atom):
        return atom
    if not isinstance(atom, Compare):
        return TRUE
    form = linear_difference(atom.left, atom.right).to_expr()
    over = interval(form, ROW, rows.first, rows.last)
    if over is None:
        return TRUE
    low, high = tidy(over[0]), tidy(over[1])
    match atom.op:
        case "<" | "<=":
            return normal(Compare(atom.op, low, Num(0)))
        case ">" | ">=":
            return normal(Compare(atom.op, high, Num(0)))
        case "==":
            return normal(Bool("and", Compare("<=", low, Num(0)), Compare(">=", high, Num(0))))
    return normal(Bool("or", Compare("<", low, Num(0)), Compare(">", high, Num(0))))


def key_ranges(keep: Expr, rows: Rows, keys: Expr) -> KeyRanges:
    """The keys that the block must visit. `keys` is the number of keys (Nk)."""
    prefix, rest = _pieces(keep, rows, keys)
    return KeyRanges(_hull(prefix, keys), _hull(rest, keys))


def _pieces(keep: Expr, rows: Rows, keys: Expr) -> tuple[list[_Piece], list[_Piece]]:
    """The pieces from key 0 on, and the others; none lies within another."""
    found = [p for c in disjuncts(normal(keep)) if (p := _conjunction(c, rows, keys)) is not None]
    pieces: list[_Piece] = []
    for piece in found:
        if not any(piece.within(other) for other in pieces):
            pieces = [other for other in pieces if not other.within(piece)] + [piece]
    prefix = [p for p in pieces if p.low == Num(0)]
    return prefix, [p for p in pieces if p not in prefix]


@dataclass(frozen=True, slots=True)
class Slack:
    """Why the ranges may have tiles without a kept pair: atoms that bound no range, and whether
    the keys between two pieces are visited as well."""

    unbounded: tuple[Expr, ...]
    spans: bool

    def __bool__(self) -> bool:
        return bool(self.unbounded) or self.spans


def slack(keep: Expr) -> Slack:
    """What `key_ranges` of `keep` leaves open for every block of rows."""
    rows = Rows(Name("first"), Name("last"))
    loose: dict[Expr, None] = {}
    for atoms in disjuncts(normal(keep)):
        with_both = any({ROW.id, KEY.id} <= free_names(atom) for atom in atoms)
        for atom in atoms:
            # Of a block cut by a condition on rows, the other rows' keys are visited as well.
            cuts = with_both and free_names(atom) & {ROW.id, KEY.id} == {ROW.id}
            if cuts or not _bounds_exactly(atom, rows):
                loose[atom] = None
    _, rest = _pieces(keep, rows, Name("Nk"))
    apart = len(rest) == 2 and rest[0].when is not None and rest[1].when == negate(rest[0].when)
    return Slack(tuple(loose), len(rest) > 1 and not apart)


def bounding(keep: Expr) -> Expr:
    """The mask without what leaves `key_ranges` open: what it keeps of a block's keys, from the
    first to the last, is what they hold."""
    loose = slack(keep).unbounded
    if not loose:
        return keep
    terms = (tuple(a for a in atoms if a not in loose) for atoms in disjuncts(normal(keep)))
    ands = (reduce(partial(Bool, "and"), atoms) if atoms else TRUE for atoms in terms)
    return normal(reduce(partial(Bool, "or"), ands))


def _bounds_exactly(atom: Expr, rows: Rows) -> bool:
    """Whether the range of an atom leaves out every tile in which it never holds."""
    if not {ROW.id, KEY.id} & free_names(atom):
        return True
    if not isinstance(atom, Compare):
        return False
    if KEY.id not in free_names(atom):
        form = linear_difference(atom.left, atom.right).to_expr()
        return interval(form, ROW, rows.first, rows.last) is not None
    if atom.op == "!=":  # takes one key of each row, where it is one on the key itself
        return abs(linear_difference(atom.left, atom.right).coefficient(KEY)) == 1
    bound = _bound(atom)
    ends = [] if bound is None else [e for e in (bound.low, bound.high) if e is not None]
    return bool(ends) and all(interval(e, ROW, rows.first, rows.last) is not None for e in ends)


def _hull(pieces: list[_Piece], keys: Expr) -> KeyRange | None:
    """One range over all pieces. What a piece adds, it adds only where its condition holds: what
    heads or batches of one kind keep is not visited for the others."""
    cases: dict[Expr | None, _Piece] = {}
    for piece in pieces:
        have = cases.get(piece.when, piece)
        low, high = minimum(have.low, piece.low), maximum(have.high, piece.high)
        cases[piece.when] = _Piece(low, high, piece.when)
    if not cases:
        return None
    one, *others = cases.values()
    lows = [p.low if p.when is None or not others else Select(p.when, p.low, keys)
            for p in cases.values()]  # fmt: skip
    if all(p.low == one.low for p in others):
        lows = [one.low]
    highs = [p.high if p.when is None else Select(p.when, p.high, Num(-1)) for p in cases.values()]
    return KeyRange(reduce(minimum, lows), reduce(maximum, highs))
