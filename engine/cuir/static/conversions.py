"""C++'s usual conversions between numbers, in the one order that lifting, typing and lowering keep;
and the numbers that C++ counts without a sign: `block_id`, `grid_dim` and `sizeof`.

CuIR has whole numbers with a sign alone. In C++ an operation with one of those counts is done
without: the sum, difference or product of such numbers is right once it is stored in an `int`, a
comparison, quotient or remainder only where no operand can be below 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.cuir.nodes import Binary, Call, Expr, Num
from engine.cuir.ops.traits import COUNTS

NUMBERS = ("bool", "i32", "u32", "i64", "u64", "f32")
"""From the narrowest on. No variable, parameter or result is unsigned: `u32` and `u64` are what C++
makes of block numbers and sizes before they are stored."""
INTEGERS = NUMBERS[:-1]
UNSIGNED = frozenset({"u32", "u64"})


def promoted(kind: str) -> str:
    """What C++ makes of one operand: bool counts as int. A shift has the kind of its left one."""
    return "i32" if kind == "bool" else kind


def wider(kinds: Iterable[str]) -> str:
    """The one of some numbers' kinds that holds all."""
    return max(kinds, key=NUMBERS.index)


def common(kinds: list[str]) -> str | None:
    """C++'s common type of scalars, or None when one is no scalar."""
    if not kinds or any(k not in NUMBERS for k in kinds):
        return None
    return wider(map(promoted, kinds))


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
