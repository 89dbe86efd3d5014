"""Products of sizes beyond 32 bits: in Python a size is any whole number, in C++ an int."""

from __future__ import annotations

from engine.cuir.nodes import Binary, Call, Compare, Expr, Name, Num, Unary
from engine.cuir.rewrite import map_expr
from engine.cuir.static.legal_sizes import COLUMNS, USUAL

HELD = 2**31 - 1
_COUNTED = {"i": "Nq", "j": "Nk"}  # what counts from 0, and up to which size
_LARGEST = {**USUAL.most, "D": COLUMNS, "Dv": COLUMNS}


def with_wide_products(expr: Expr) -> Expr:
    """A recipe's expression whose products of sizes count in 64 bits where 32 may not hold them.

    What a row or a key alone is compared with stays an int: any number beyond the rows or keys that
    there are says what the first one beyond them says.
    """

    def wide(node: Expr) -> Expr | None:
        match node:
            case Compare(op, Name(id) as one, bound) if id in _COUNTED and _beyond(bound):
                return Compare(op, one, _clamped(map_expr(bound, wide), _COUNTED[id]))
            case Compare(op, bound, Name(id) as one) if id in _COUNTED and _beyond(bound):
                return Compare(op, _clamped(map_expr(bound, wide), _COUNTED[id]), one)
            case Binary("*", left, right) if _beyond(node):
                first, second = map_expr(left, wide), map_expr(right, wide)
                return Binary("*", Call("i64", (first,)), second)
        return None

    return map_expr(expr, wide)


def _beyond(expr: Expr) -> bool:
    return (_most(expr) or 0) > HELD


def _clamped(expr: Expr, size: str) -> Expr:
    """From -1 to a size, as an int."""
    least, most = Call("i64", (Num(-1),)), Call("i64", (Name(size),))
    return Call("i32", (Call("min", (Call("max", (expr, least)), most)),))


def _most(expr: Expr) -> int | None:
    """What a whole number of sizes alone is at most, either way; None for another expression."""
    match expr:
        case Num(int() as value):
            return abs(value)
        case Name(id):
            return _LARGEST.get(id)
        case Unary("-", operand):
            return _most(operand)
        case Binary("+" | "-" | "*" | "//" | "%" as op, left, right):
            a, b = _most(left), _most(right)
            if a is None or b is None:
                return None
            return a * b if op == "*" else a + b if op in "+-" else a
    return None
