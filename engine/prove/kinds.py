"""The kinds of value that a tile schedule takes: sizes at which each of them is seen.

A run judges only what its sizes bring about. Each number that a schedule's functions give is seen
as zero and as another number where it can be either, and each `min`, `max` and choice on both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

import z3

from engine.cuir.nodes import CONTRARY, Binary, Call, Compare, Expr, Num, Select
from engine.cuir.printer import print_expr
from engine.prove.domain import Domain
from engine.prove.schedule import AskedTerms, TileSchedule
from engine.prove.solver import Condition, Unknown, Witness, find
from engine.prove.terms import Path, Terms, Value, as_truth

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: in words, and when it is so, somewhere in a run."""

    words: str
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Reaching:
    """The kinds that the smallest sizes for them do not bring about in a run, and those that the
    solver did not decide."""

    unseen: tuple[str, ...]
    undecided: tuple[str, ...]


def kinds_of(
    terms: Terms, domain: Domain, fields: Mapping[str, Value], asked: TileSchedule
) -> tuple[Kind, ...]:
    """The kinds of value that a schedule's functions may take. Raises `NotWhole` where they read
    more than sizes."""
    seen: list[tuple[Expr, Value, Path]] = []
    watched = terms.shown_to(lambda expr, value, path: seen.append((expr, value, path)))
    out: dict[str, Kind] = {}

    def collect(name: str, value: Value, path: Path) -> None:
        other, zero = ends(name, z3.is_bool(value))
        found = [(other, (*path, as_truth(value))), (zero, (*path, z3.Not(as_truth(value))))]
        for expr, term, at in seen:
            words = sides(expr, name)
            if words is not None and not z3.is_const(term):
                ways = zip(words, _conditions(expr, term), strict=True)
                found += [(way, (*at, *path, condition)) for way, condition in ways]
        seen.clear()
        for way, conditions in found:
            out.setdefault(way, Kind(way, conditions))

    at = AskedTerms(watched, domain, fields, asked)
    # The count is computed for the others as well: each is collected from a call of its own.
    seen.clear()
    collect(asked.count, at.call(asked.count), at.rows)
    for name in asked.passing:
        if name is not None:
            collect(name, at.call(name), (*at.rows, at.count > 0))
    step = (*at.rows, at.step >= 0, at.step < at.count)
    collect(asked.index, at.call(asked.index), step)
    index = AskedTerms(terms, domain, fields, asked).index(at.step)
    mine = (*step, at.step >= at.lead, at.step < at.count - at.tail, at.n == index)
    collect(asked.full, as_truth(at.call(asked.full)), mine)
    return tuple(out.values())


def sides(expr: Expr, function: str) -> tuple[str, str] | None:
    """Words for what a subexpression can be, one way and the other; None where it has no sides."""
    match expr:
        case Call("min", (left, right)):
            ways = (Compare("<", left, right), Compare(">", left, right))
        case Call("max", (left, right)):
            ways = (Compare(">", left, right), Compare("<", left, right))
        case Compare(op, left, right):
            ways = (expr, Compare(CONTRARY[op], left, right))
        case Select(cond, _, _):
            return f"{print_expr(cond)} ({function})", f"not {print_expr(cond)} ({function})"
        case Binary("//" | "%", _, _) | Call("ceil_div" | "floor_div" | "floor_mod", _):
            ways = (Compare("!=", expr, Num(0)), Compare("==", expr, Num(0)))
        case _:
            return None
    return f"{print_expr(ways[0])} ({function})", f"{print_expr(ways[1])} ({function})"


def _conditions(expr: Expr, term: Value) -> tuple[Condition, Condition]:
    """When a subexpression is so: the one side, the other."""
    match expr:
        case Call("min" | "max" as fn, _):
            a, b = term.arg(0).arg(0), term.arg(0).arg(1)
            return (a < b, a > b) if fn == "min" else (a > b, a < b)
        case Select():
            return term.arg(0), z3.Not(term.arg(0))
        case Compare():
            return term, z3.Not(term)
    return term != 0, term == 0


def ends(function: str, truth: bool) -> tuple[str, str]:
    """Words for what a function gives: a condition, or a number."""
    return (f"{function} holds", f"{function} does not hold") if truth else (
        f"{function} is not 0", f"{function} is 0"
    )  # fmt: skip


def sizes_that_reach(
    kinds: Iterable[Kind], domain: Domain, seen: Set[str], seen_at: Callable[[Sizes], Set[str]]
) -> Reaching:
    """Looks for the smallest sizes that bring about each kind that is not among those `seen`.

    `seen_at` takes sizes to be run and says which kinds that brings about: one may serve several. A
    kind that no legal size brings about is none.
    """
    known, unseen, undecided = set(seen), list[str](), list[str]()
    for kind in kinds:
        if kind.words in known:
            continue
        found = find(kind.conditions, domain.sizes, domain.smallest)
        if isinstance(found, Witness):
            known |= seen_at(found.values)
            if kind.words not in known:
                unseen.append(kind.words)
        elif isinstance(found, Unknown):
            undecided.append(kind.words)
    return Reaching(tuple(unseen), tuple(undecided))
