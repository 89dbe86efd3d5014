"""Whole numbers that leave their type: CuIR counts exactly, the kernel in `int`.

What overflows an `int` is undefined in C++, and right in every run of a gate whose sizes are small
enough. So each sum, difference, product, shift, negation and conversion is bounded at all legal
sizes: by intervals, and where they are too wide by the solver, which knows how names hang together.
What may overflow is shown with sizes; what neither bounds is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from engine.cuir.nodes import Binary, Call, Expr, Module, Name, Num, Path, walk, walk_expr
from engine.cuir.printer import print_expr
from engine.gates.ranges import (
    HEADS,
    LENGTH,
    LOADED,
    PAIRS,
    WIDTHS,
    At,
    Range,
    Ranges,
    expressions,
)
from engine.gates.width_proofs import proofs
from engine.lower.legal import legal
from engine.prove.solver import Proven, Witness
from engine.transfer.rewrite import stmt_exprs

ROWS = (0, 2 * LENGTH)  # what a row, a head or a number of tiles lies in
COUNTED_WITH = (
    f"counted with {LENGTH} rows and keys, {HEADS} heads and batches, {PAIRS} heads of all batches "
    f"and loaded numbers up to {LOADED}"
)


@dataclass(frozen=True, slots=True)
class Overflow:
    """The op and why, in words."""

    path: Path
    message: str


def overflow(module: Module, base: Module | None = None) -> Overflow | None:
    """The first whole number of `module` that its type may not hold at a legal size.

    Of an edit, `base` is the module before it: what stands there already is not asked.
    """
    there = frozenset() if base is None else _standing(base)
    ranges = _narrowed(legal(module))
    wide: dict[tuple[str, Expr], tuple[Path, str]] = {}
    for path, expr, at in expressions(ranges):
        kind = at.kind(expr)
        asked = kind in WIDTHS and (at.function, expr) not in there
        if asked and not _held(expr, at, kind, ranges):
            wide.setdefault((at.function, expr), (path, kind))
    bounds = {key: WIDTHS[kind] for key, (_, kind) in wide.items()}
    answers = proofs(ranges, bounds) if bounds else {}
    for key, (path, kind) in wide.items():
        answer = answers[key]
        if not isinstance(answer, Proven):
            bits = 64 if kind == "i64" else 32
            where = f" (at {answer})" if isinstance(answer, Witness) else ""
            return Overflow(
                path,
                f"{print_expr(key[1])} may be more than {bits} bits hold{where}: make one operand "
                f"i64(..), or the numbers smaller; {COUNTED_WITH}",
            )
    return None


def _narrowed(module: Module) -> Ranges:
    """The module's ranges, where intervals lose a device function's result with the solver's: the
    row and the head of a piece of work."""
    ranges = Ranges(module)
    lost = {
        function
        for function, values in ranges.returned.items()
        if ranges.functions[function].kind == "device"
        and any(not _held(e, ranges.at(function), "i32", ranges) for e in values)
    }
    asked = {
        (at.function, expr): ROWS
        for _, expr, at in expressions(ranges)
        if isinstance(expr, Call) and expr.fn in lost
    }
    answers = proofs(ranges, asked) if asked else {}
    wrong = {
        expr.fn
        for (_, expr), answer in answers.items()
        if isinstance(expr, Call) and not isinstance(answer, Proven)
    }
    return Ranges(module, dict.fromkeys(lost - wrong, ROWS)) if lost - wrong else ranges


@lru_cache(maxsize=8)
def _standing(base: Module) -> frozenset[tuple[str, Expr]]:
    return frozenset(
        (str(path[0]), node)
        for path, stmt in walk(legal(base))
        for expr in stmt_exprs(stmt)
        for node in walk_expr(expr)
    )


def _held(expr: Expr, at: At, kind: str, ranges: Ranges) -> bool:
    """Whether intervals show that the type holds an expression, and that its shift is one."""
    match expr:
        case Binary("+" | "-", Name(id), _) if (at.function, id) in ranges.counters:
            return True  # a block goes fewer rounds than that
        case Binary("<<" | ">>", _, count):
            places = ranges.of(count, at)
            if places is not None and not 0 <= places[0] <= places[1] < (32, 64)[kind == "i64"]:
                return False
    low, high = WIDTHS[kind]
    least, most = _exact(expr, at, ranges)
    return low <= least and most <= high


def _exact(expr: Expr, at: At, ranges: Ranges) -> Range:
    """What an expression may be before its type cuts it off."""
    match expr:
        case Call("i32" | "int" | "i64", (operand,)) if at.kind(operand) != "f32":
            found = ranges.of(operand, at)
        case Call("ceil_div", (left, right)):  # of which C++ makes the sum first
            found = ranges.of(Binary("-", Binary("+", left, right), Num(1)), at)
        case _:
            found = ranges.of(expr, at)
    return (0, 0) if found is None else found
