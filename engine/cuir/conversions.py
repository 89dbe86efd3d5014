"""C++'s usual conversions between numbers: the one order that lifting, typing and lowering keep."""

from __future__ import annotations

from collections.abc import Iterable

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
