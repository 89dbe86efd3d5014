"""An order of work at one size, on plain numbers: looked at where the solver does not decide."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from engine.cuir.parser import parse_expr
from engine.cuir.scalar import evaluate
from engine.cuir.static.host_constants import scalars_of
from engine.gates.deck import Case
from engine.gates.runs.subject import Subject
from engine.prove.work_order import PIECE, WorkOrder
from engine.spec.decks.deck_inputs import with_own_sizes

MOST_PIECES = 600  # of one size


def fault_at(subject: Subject, order: WorkOrder, case: Case) -> str:
    """What is wrong with the order at the sizes of a case, in words; nothing where it is right."""
    scalars = scalars_of(subject.module)
    known = with_own_sizes(subject.recipe.inputs, case.sizes | subject.columns)
    fields = {s.field: evaluate(parse_expr(s.size, "size"), known) for s in subject.binding.sizes}
    env: dict[str, Any] = {"args": fields}
    env |= {name: scalars.compile(value)({}) for name, value in order.params}
    number = int(scalars.compile(order.pieces)(env))
    blocks = -(-case.Nq // order.rows)
    if number != blocks * case.Hq * case.B:
        return f"{number} pieces, and {blocks * case.Hq * case.B} blocks of rows"
    place = [scalars.compile(e) for e in (order.batch, order.head, order.row)]
    taken: dict[tuple[int, ...], int] = {}
    for piece in range(number):
        b, h, row = (int(part({**env, PIECE: piece})) for part in place)
        words = f"batch {b}, head {h}, rows from {row} on"
        inside = 0 <= b < case.B and 0 <= h < case.Hq and 0 <= row < case.Nq
        if not inside or row % order.rows:
            return f"piece {piece} is {words}: there is no such block"
        if (b, h, row) in taken:
            return f"pieces {taken[b, h, row]} and {piece} are both {words}"
        taken[b, h, row] = piece
    return ""


def sampled_cases(order: WorkOrder) -> Iterator[Case]:
    """Few and many heads, below and beyond any section, with blocks of rows that are whole and
    not; the plainest first."""
    heads, rows = (1, 2, 3, 7, 8, 9, 15, 16, 17, 33), order.rows
    lengths = (1, rows, rows + 1, 2 * rows, 2 * rows + 1, 3 * rows, 5 * rows + 1)
    for nq, (b, h) in product(lengths, product((1, 2, 3), heads)):
        if b * h * -(-nq // rows) <= MOST_PIECES:
            yield Case(b, h, 1, nq, 5, modes=("exact",))
