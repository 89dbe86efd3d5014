"""A branch that nobody has tested: conditions that no run of the deck takes both ways.

What a model or a person wrote can be right at every size of a deck and wrong beyond it. So each
condition of theirs must have been seen both ways in runs whose outputs were compared; where the
deck does not do that, cases are looked for that do. What comes out one way at no size that the
spec allows has no other side.

Runs in the torch child only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.gates.analysis.conditions import Condition, Key
from engine.gates.analysis.size_comparisons import affordable
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import Case
from engine.gates.reachability.witness_search import Reach, Reaches
from engine.gates.runs.case_run import Row, Way, run_deck
from engine.gates.runs.deck_cases import bent, drawn_cases
from engine.gates.runs.subject import Failure, Report, Subject, op_text
from engine.transfer.bounds import reads_pairs

TRIES = 3  # cases at most that are run for one side of one condition
MAX_CASES = 12
LONG_SQUARE = 8192  # rows and keys of one case in a square, half a minute

Side = tuple[Condition, bool, Reach]


def other_sides(
    way: Way, subject: Subject, deck: Sequence[Case], report: Report
) -> tuple[Failure | None, list[Row], list[Case]]:
    """Runs cases for the sides that no run has taken; fails where one is left that may be taken.

    A case that may bring many sides at once runs first. The rows are those of the cases that were
    added, which end the deck that is given back.
    """
    watch, cases, rows = subject.watch, list(deck), list[Row]()
    if watch is None or not watch.unseen():
        return None, rows, cases
    reaches = Reaches(subject)
    left = [(one, side, reaches.of(one, side)) for one, side in watch.unseen()]
    solved = dict.fromkeys(case for *_, reach in left if reach.solved for case in reach.cases)
    left = [(one, side, reaches.shared(one, side, reach, solved)) for one, side, reach in left]
    tries = {(one.key, side): _to_try(subject, reach) for one, side, reach in left}
    while len(cases) - len(deck) < MAX_CASES:
        open_ = [row for row in left if not watch.has(row[0], row[1])]
        found = _most_served(open_, tries, cases)
        if found is None:
            # The solver's smallest sizes did not do it, or cannot be afforded: there are others.
            if not any(reach.solved for *_, reach in open_):
                break
            left = [_widened(reaches, row) for row in open_]
            tries |= {(one.key, side): _to_try(subject, reach) for one, side, reach in left}
            continue
        case, one, side = found
        words = one.words(side)
        cases.append(case)
        report(f"for {words}")
        failure, more = run_deck(way, subject, cases, report, len(cases) - 1)
        rows += more
        if failure is not None:
            reason = f"{failure.reason}; this run was made for {words}"
            return _replaced(failure, reason), rows, cases
    left = [_widened(reaches, row) for row in left if not watch.has(row[0], row[1])]
    watch.sampled = [one.words(side) for one, side, reach in left if reach.sampled]
    never = [row for row in left if row[2].possible]
    long = next((c for row in never if (c := _long_case(subject, row[2])) is not None), None)
    if long is not None and long not in cases:
        cases.append(long)
        report("for what is so at no fewer rows and keys")
        failure, more = run_deck(way, subject, cases, report, len(cases) - 1)
        rows += more
        if failure is not None:
            return failure, rows, cases
        never = [row for row in never if not watch.has(row[0], row[1])]
    if not never:
        return None, rows, cases
    # The plainest of them: `a < b` rather than the `and` that it stands in.
    plainest = min(never, key=lambda row: len(row[0].words(row[1])))
    more_to_run = _most_served([plainest], tries, cases)
    return _never(*plainest, more_to_run[0] if more_to_run else None), rows, cases


def _widened(reaches: Reaches, row: Side) -> Side:
    one, side, reach = row
    return (one, side, reaches.wider(one, side, reach)) if reach.solved else row


def _most_served(
    open_: Sequence[Side], tries: Mapping[tuple[Key, bool], Sequence[Case]], run: Sequence[Case]
) -> tuple[Case, Condition, bool] | None:
    """The case that may bring the most sides of those that few cases were run for, the cheapest of
    equals; and the first of these sides."""
    serves: dict[Case, list[tuple[Condition, bool]]] = {}
    for one, side, _ in open_:
        ways = tries[one.key, side]
        if sum(case in run for case in ways) < TRIES:
            for case in ways:
                if case not in run:
                    serves.setdefault(case, []).append((one, side))
    if not serves:
        return None
    case = max(serves, key=lambda c: len(serves[c]))
    return case, *serves[case][0]


def _to_try(subject: Subject, reach: Reach) -> list[Case]:
    """The cheapest cases that may bring it about, as the spec allows them; where it hangs on what
    a mask reads, longer draws of that."""
    tried = reach.cases
    if reach.possible and reads_pairs(subject.recipe.keep):
        # The cheapest sizes may be too few for what the draws of them have to be like.
        tried = (*tried[:1], *drawn_cases(tiles_of(subject.module)), *tried[1:])
    out: list[Case] = []
    for reached in tried:
        case = bent(subject, reached)
        if case is not None and affordable(case) and case not in out:
            out.append(case)
    return out


def _long_case(subject: Subject, reach: Reach) -> Case | None:
    """One case that costs more than others may, where a spec of squares alone has none for less."""
    found = [c for c in (bent(subject, r) for r in reach.cases) if c is not None]
    if any(map(affordable, found)):
        return None
    small = (c for c in found if c.B * c.Hq == 1 and c.Nq == c.Nk <= LONG_SQUARE)
    return min(small, key=lambda c: c.Nk, default=None)


def _never(one: Condition, side: bool, reach: Reach, left: Case | None) -> Failure:
    if left is not None:  # the search ended, not what there was to search
        words = f"no run has {one.words(side)}: more conditions are new than {MAX_CASES} runs "
        words += f"beside the deck's can show both ways, and {left}, which might, was not run"
        return Failure(words, op=op_text(one.path))
    words = f"no run has {one.words(side)}, so nobody has tested what the edit does then"
    if reach.cases:
        words += f"; it could be so at {reach.cases[0]}"
    return Failure(words, op=op_text(one.path))


def _replaced(failure: Failure, reason: str) -> Failure:
    return Failure(reason, failure.op, failure.counterexample)
