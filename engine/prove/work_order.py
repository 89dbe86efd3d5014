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

HEADS = "pieces of work are of batches and heads that exist"
ROWS = "pieces of work are blocks of rows that exist"
ONCE = "pieces of work are taken once"
APART = "pieces of work of two sections differ"
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
    yield stated(NUMBER, (), pieces == blocks * size["Hq"] * size["B"], pieces == blocks)
    # A batch and a head of it are one number, which has fewer products than the two.
    number = z3.simplify(b * size["Hq"] + h, som=True)
    heads = z3.And(number >= 0, number < size["B"] * size["Hq"], h >= 0, h < size["Hq"])
    fewer = z3.And(number >= 0, number < size["B"] * size["Hq"] - 1)
    yield stated(HEADS, taken, heads, fewer)
    # Of whole blocks: the first row is one that there is where the block is.
    block = z3.simplify(row / order.rows)
    within = z3.And(block < blocks, block >= 0, row == block * order.rows)
    yield stated(ROWS, taken, within, z3.And(block >= 0, block < blocks - 1))
    # Two pieces of one section, or of two: as one question it is too hard.
    two = (*taken, other > piece, other < pieces)
    swap = (piece, other)
    section = next(_sections(number), None)
    later = [z3.substitute(term, swap) for term in (number, block)]
    if section is None:
        yield stated(ONCE, two, z3.Or(number != later[0], block != later[1]), number != later[0])
        return
    others = z3.substitute(section, swap)
    there = [z3.substitute(term, (others, section)) for term in later]
    for name, split, (number2, block2) in (
        (ONCE, section == others, there),
        (APART, section != others, later),
    ):
        differ = z3.Or(number != number2, block != block2)
        twin = number != number2
        if name == APART:  # as if each second head were the one before it
            twin = z3.Or((number + 1) / 2 != (number2 + 1) / 2, block != block2)
        yield stated(name, (*two, split), differ, twin)


def _sections(term: Whole) -> Iterator[Whole]:
    """Quotients in a term by what is no constant, inner ones first."""
    for child in term.children():
        yield from _sections(child)
    if z3.is_app_of(term, z3.Z3_OP_IDIV) and not z3.is_int_value(term.arg(1)):
        yield term
