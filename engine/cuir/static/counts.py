"""Numbers that C++ counts without a sign: `block_id`, `grid_dim` and `sizeof`.

CuIR has whole numbers with a sign alone, and these are among them. In C++ an operation with one of
them is done without a sign: the sum, difference or product of such numbers is right once it is
stored in an `int`, a comparison, quotient or remainder only where no operand can be below 0.
"""

from __future__ import annotations

from engine.cuir.nodes import Binary, Call, Expr, Num
from engine.cuir.ops.traits import COUNTS

RING = frozenset({"+", "-", "*", "&", "|", "^"})  # exact modulo any power of two
_KEEPS = frozenset({"+", "*", "//", "%", "&", "|", "^", "<<", ">>"})


def never_negative(expr: Expr) -> bool:
    """Whether an expression is of counts and literals alone, and of operations that keep the sign:
    C++ computes it as CuIR does, with a sign or without."""
    match expr:
        case Num(int() as value):
            return value >= 0
        case Call(fn):
            return fn in COUNTS
        case Binary(op, left, right):
            return op in _KEEPS and never_negative(left) and never_negative(right)
    return False
