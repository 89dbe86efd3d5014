"""What the order of work must be, as goals for all sizes: each block of rows of each batch and head
is one piece of work, and each piece is taken once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import z3

from engine.cuir.nodes import Expr
from engine.prove.domain import Domain
from engine.prove.solver import Condition, Goal, Whole
from engine.prove.terms import Terms, Value, truncated

PIECE = "$piece"  # the name of a piece's number in `WorkOrder`

RANGE = "pieces of work are blocks of rows that exist"
ONCE = "pieces of work are taken once"
NUMBER = "there are as many pieces of work as blocks of rows"


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """Which block of rows each piece of work is: pieces 0 to below `pieces`, where `batch`, `head`
    and `row` (the block's first) are expressions over `PIECE`, the argument struct and `params`,
    what the launcher gives the kernel."""

    batch: Expr
    head: Expr
    row: Expr
    pieces: Expr
    rows: int  # of a block
    params: tuple[tuple[str, Expr], ...]


def work_goals(
    terms: Terms, domain: Domain, fields: Mapping[str, Value], order: WorkOrder
) -> Iterator[Goal]:
    """The goals of one order. Raises `NotWhole` where it hangs on more than sizes."""
    size = domain.sizes
    env = {"args": fields, **{name: terms.value(e, {}) for name, e in order.params}}
    piece, other = z3.Ints("piece other")
    pieces = terms.whole(order.pieces, env, domain.given)
    blocks = truncated(size["Nq"] + order.rows - 1, z3.IntVal(order.rows))

    def at(number: Whole) -> tuple[Whole, Whole, Whole]:
        here = {**env, PIECE: number}
        path = (*domain.given, number >= 0, number < pieces)
        b, h, row = (terms.whole(e, here, path) for e in (order.batch, order.head, order.row))
        return b, h, row

    def stated(name: str, given: tuple[Condition, ...], claim: Condition, twin: Condition) -> Goal:
        shown = {**size, "piece": piece, "b": b, "h": h, "q0": row}
        smallest = (*domain.smallest, piece)
        return Goal(name, (*domain.given, *given), claim, twin, shown, smallest)

    b, h, row = at(piece)
    taken = (piece >= 0, piece < pieces)
    batch, block = z3.And(b >= 0, b < size["B"]), z3.And(row >= 0, row < size["Nq"])
    whole = row % order.rows == 0
    yield stated(NUMBER, (), pieces == blocks * size["Hq"] * size["B"], pieces == blocks)
    claim = z3.And(batch, h >= 0, h < size["Hq"], block, whole)
    yield stated(RANGE, taken, claim, z3.And(batch, h >= 0, h < size["Hq"] - 1, block, whole))
    b2, h2, row2 = at(other)
    two = (*taken, other > piece, other < pieces)
    yield stated(ONCE, two, z3.Or(b != b2, h != h2, row != row2), z3.Or(b != b2, h != h2))
