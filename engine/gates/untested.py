"""A branch that nobody has tested: conditions that no run of the deck takes both ways.

What a model or a person wrote can be right at every size of a deck and wrong beyond it. So each
condition of theirs must have been seen both ways in runs whose outputs were compared; where the
deck does not do that, cases are looked for that do. What comes out one way at no size that the
spec allows has no other side.

Runs in the torch child only.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.gates.cases import bent
from engine.gates.conditions import Condition
from engine.gates.deck import Case
from engine.gates.reach import Reach, Reaches
from engine.gates.running import Row, Way, run_deck
from engine.gates.sizes import affordable
from engine.gates.subject import Failure, Report, Subject, op_text

TRIES = 2  # cases that may bring one side of one condition
MAX_CASES = 12


def other_sides(
    way: Way, subject: Subject, deck: Sequence[Case], report: Report
) -> tuple[Failure | None, list[Row], list[Case]]:
    """Runs cases for the sides that no run has taken; fails at the first that none takes.

    The rows are those of the cases that were added, which end the deck that is given back.
    """
    watch, cases, rows = subject.watch, list(deck), list[Row]()
    if watch is None or not watch.unseen():
        return None, rows, cases
    reaches, left = Reaches(subject), list[tuple[Condition, bool, Reach]]()
    for one, side in watch.unseen():
        if watch.has(one, side):  # by a case that was run for another one
            continue
        reach = reaches.of(one, side)
        for case in _to_try(subject, reach):
            if case in cases or len(cases) - len(deck) == MAX_CASES:
                continue
            cases.append(case)
            report(f"for {one.words(side)}")
            failure, more = run_deck(way, subject, cases, report, len(cases) - 1)
            rows += more
            if failure is not None:
                words = f"{failure.reason}; this run was made for {one.words(side)}"
                return _replaced(failure, words), rows, cases
            if watch.has(one, side):
                break
        if reach.possible:
            left.append((one, side, reach))
    never = [row for row in left if not watch.has(row[0], row[1])]
    if never:  # the plainest of them: `a < b` rather than the `and` that it stands in
        return _never(*min(never, key=lambda row: len(row[0].words(row[1])))), rows, cases
    return None, rows, cases


def _to_try(subject: Subject, reach: Reach) -> list[Case]:
    """The cheapest cases that may bring it about, as the spec allows them."""
    out: list[Case] = []
    for reached in reach.cases:
        case = bent(subject, reached)
        if case is not None and affordable(case) and case not in out:
            out.append(case)
    return out[:TRIES]


def _never(one: Condition, side: bool, reach: Reach) -> Failure:
    words = f"no run has {one.words(side)}, so nobody has tested what the edit does then"
    if reach.cases:
        words += f"; it could be so at {reach.cases[0]}"
    return Failure(words, op=op_text(one.path))


def _replaced(failure: Failure, reason: str) -> Failure:
    return Failure(reason, failure.op, failure.counterexample)
