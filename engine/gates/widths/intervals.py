"""Whole numbers between two ends: what sizes and ops may be, and what arithmetic makes of it."""

from __future__ import annotations

from engine.cuir.scalar import truncating_div

LOADED = 2**30  # the largest magnitude of a number that somebody else put into memory
STEPS = 2**30  # more rounds than a block does
GRID = (2**31 - 1, 65_535, 65_535)
WIDTHS = {"bool": (0, 1), "i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}

Range = tuple[int, int]


def joined(*ranges: Range | None) -> Range | None:
    """The hull; None where one is no whole number."""
    known = [r for r in ranges if r is not None]
    if not known or len(known) < len(ranges):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def arithmetic(op: str, a: Range, b: Range) -> Range:
    """The range of `x op y` for x in a and y in b, as if nothing wrapped."""
    match op:
        case "+":
            return a[0] + b[0], a[1] + b[1]
        case "-":
            return a[0] - b[1], a[1] - b[0]
        case "*":
            ends = [x * y for x in a for y in b]
            return min(ends), max(ends)
        case "<<" | ">>":
            counts = [min(max(y, 0), 64) for y in b]
            ends = [x << y if op == "<<" else x >> y for x in a for y in counts]
            return min(ends), max(ends)
        case "//":
            divisors = {y for y in (*b, -1, 1) if y and b[0] <= y <= b[1]} or {1}
            numbers = {*a, 0} if a[0] <= 0 <= a[1] else {*a}
            ends = [truncating_div(x, y) for x in numbers for y in divisors]
            return min(ends), max(ends)
        case "%":
            most = max(abs(b[0]), abs(b[1]), 1) - 1
            return -min(max(-a[0], 0), most), min(max(a[1], 0), most)
    return _bits(op, a, b)


def _bits(op: str, a: Range, b: Range) -> Range:
    above = (1 << max(abs(n).bit_length() for n in (*a, *b))) - 1
    if op == "&" and (a[0] >= 0 or b[0] >= 0):
        return 0, min([r[1] for r in (a, b) if r[0] >= 0])
    if a[0] >= 0 and b[0] >= 0:
        return 0, above
    return -above - 1, above
