"""Whole numbers that leave their type: CuIR counts exactly, the kernel in `int`.

What overflows an `int` is undefined in C++, and right in every run of a gate whose sizes are small
enough. So each sum, difference, product, shift, negation and conversion is bounded at all legal
sizes: by intervals, and where they are too wide by the solver, which knows how names hang together.
What may overflow is shown with sizes; what neither bounds is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from engine.cuir.nodes import (
    Binary,
    Call,
    Expr,
    Module,
    Name,
    Num,
    Path,
    map_stmt_exprs,
    rebuild,
    stmt_exprs,
    walk,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.cuir.rewrite import map_blocks
from engine.cuir.static.legal_sizes import USUAL, LegalSizes
from engine.gates.widths.intervals import LOADED, WIDTHS, Range
from engine.gates.widths.value_ranges import At, Ranges, expressions
from engine.gates.widths.width_proofs import UNSEEN, proofs
from engine.lower.spelling.legal import legal
from engine.prove.solver import Proven, Unknown, Witness


@dataclass(frozen=True, slots=True)
class Overflow:
    """The op and why, in words."""

    path: Path
    message: str


def overflow(
    module: Module, base: Module | None = None, sizes: LegalSizes = USUAL
) -> Overflow | None:
    """The first whole number of `module` that its type may not hold at a legal size.

    `base` is the module before an edit of a free hand: what the edit counts is not taken on trust,
    while the expert's counters of tiles are (a block goes fewer rounds than `STEPS`).
    """
    counting = None if base is None else _standing(base)
    ranges = _narrowed(_spelled(legal(module)), sizes)
    wide: dict[tuple[str, Expr], tuple[Path, str]] = {}
    for path, expr, at in expressions(ranges):
        kind = at.kind(expr)
        if kind in WIDTHS and not _held(expr, at, kind, ranges):
            counter = _counts(expr, at, ranges)
            if not counter or (counting is not None and (at.function, expr) not in counting):
                wide.setdefault((at.function, expr), (path, kind))
    bounds = {
        key: WIDTHS[kind]
        for key, (_, kind) in wide.items()
        if not _counts(key[1], ranges.at(key[0]), ranges)
    }
    answers = proofs(ranges, bounds) if bounds else {}
    unproven = [key for key in wide if not isinstance(answers.get(key), Proven)]
    if not unproven:
        return None
    # The solver stops at a few: what it did not look at is not what is wrong.
    seen = [k for k in unproven if answers.get(k) != UNSEEN] or unproven
    key = next((k for k in seen if isinstance(answers.get(k), Witness)), seen[0])
    path, kind = wide[key]
    answer, bits = answers.get(key), 64 if kind == "i64" else 32
    match answer:
        case Witness():
            where = f" (at {answer})"
        case Unknown(reason):
            where = f" ({reason})"
        case _:
            where = ""
    return Overflow(
        path,
        f"{print_expr(key[1])} may be more than {bits} bits hold{where}: make one operand "
        f"i64(..), or the numbers smaller; counted with {sizes}, and loaded numbers up to {LOADED}",
    )


def _spelled(module: Module) -> Module:
    """The module with the sum that C++ makes in `ceil_div`."""

    def spelled(expr: Expr) -> Expr:
        match rebuild(expr, spelled):
            case Call("ceil_div", (left, right)):
                return Binary("//", Binary("-", Binary("+", left, right), Num(1)), right)
            case other:
                return other

    functions = tuple(
        replace(f, body=map_blocks(f.body, lambda b: tuple(map_stmt_exprs(s, spelled) for s in b)))
        for f in module.functions
    )
    return replace(module, functions=functions)


def _narrowed(module: Module, sizes: LegalSizes) -> Ranges:
    """The module's ranges, where intervals lose a device function's result with the solver's: the
    row and the head of a piece of work."""
    ranges = Ranges(module, sizes)
    rows = (0, 2 * sizes.length)  # what a row, a head or a number of tiles lies in
    lost = {
        function
        for function, values in ranges.returned.items()
        if ranges.functions[function].kind == "device"
        and any(not _held(e, ranges.at(function), "i32", ranges) for e in values)
    }
    asked: dict[tuple[str, Expr], Range] = {
        (at.function, expr): rows
        for _, expr, at in expressions(ranges)
        if isinstance(expr, Call) and expr.fn in lost
    }
    answers = proofs(ranges, asked) if asked else {}
    wrong = {
        expr.fn
        for (_, expr), answer in answers.items()
        if isinstance(expr, Call) and not isinstance(answer, Proven)
    }
    known = dict.fromkeys(lost - wrong, rows)
    return Ranges(module, sizes, known) if known else ranges


@lru_cache(maxsize=8)
def _standing(base: Module) -> frozenset[tuple[str, Expr]]:
    return frozenset(
        (str(path[0]), node)
        for path, stmt in walk(_spelled(legal(base)))
        for expr in stmt_exprs(stmt)
        for node in walk_expr(expr)
    )


def _counts(expr: Expr, at: At, ranges: Ranges) -> bool:
    """Whether an expression counts in more rounds than intervals know of."""
    match expr:
        case Binary("+" | "-", Name(id), _):
            return (at.function, id) in ranges.counters
    return False


def _held(expr: Expr, at: At, kind: str, ranges: Ranges) -> bool:
    """Whether intervals show that the type holds an expression, and that its shift is one."""
    if _counts(expr, at, ranges):
        return False
    match expr:
        case Binary("<<" | ">>", _, count):
            places = ranges.of(count, at)
            if places is not None and not 0 <= places[0] <= places[1] < (32, 64)[kind == "i64"]:
                return False
        case Call("i32" | "int" | "i64", (operand,)) if at.kind(operand) != "f32":
            return _within(ranges.of(operand, at), kind)
    return _within(ranges.of(expr, at), kind)


def _within(found: Range | None, kind: str) -> bool:
    low, high = WIDTHS[kind]
    return found is not None and low <= found[0] and found[1] <= high
