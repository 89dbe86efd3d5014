"""Products of sizes beyond 32 bits: in Python a size is any whole number, in C++ an int."""

from __future__ import annotations

from engine.cuir.nodes import Binary, Call, Expr, Name, Num, Unary
from engine.cuir.rewrite import map_expr
from engine.cuir.static.legal_sizes import COLUMNS, USUAL
from engine.transfer.schedule import is_wide

HELD = 2**31 - 1
_LARGEST = {**USUAL.most, "D": COLUMNS, "Dv": COLUMNS}


def with_wide_products(expr: Expr) -> Expr:
    """A recipe's expression whose products of sizes count in 64 bits where 32 may not hold them.

    The functions that floor take 32 bits: of a wide number they are written by what truncates.
    """

    def wide(node: Expr) -> Expr | None:
        match node:
            case Binary("*", left, right) if (_most(node) or 0) > HELD:
                first, second = map_expr(left, wide), map_expr(right, wide)
                return Binary("*", Call("i64", (first,)), second)
            case Call("floor_mod" | "floor_div" as name, (value, by)):
                value, by = map_expr(value, wide), map_expr(by, wide)
                if is_wide(value) and not is_wide(by):
                    rest = Binary("%", Binary("+", Binary("%", value, by), by), by)
                    whole = Binary("//", Binary("-", value, rest), by)
                    return Call("i32", (rest,)) if name == "floor_mod" else whole
        return None

    return map_expr(expr, wide)


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
