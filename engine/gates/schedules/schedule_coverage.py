"""Which kinds of value of the tile schedule the runs of a deck bring about, and sizes for the rest.

Runs judge values and orders: what the schedule never does in a run, nobody has seen it do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import CuBridgeError
from engine.gates.analysis.size_comparisons import affordable
from engine.gates.deck import Case
from engine.gates.runs.deck_cases import bent
from engine.gates.runs.subject import Subject
from engine.gates.schedules.schedule_at_size import Noting, kinds_at
from engine.gates.schedules.schedule_calls import asked_schedule
from engine.gates.schedules.schedule_goals import case_at, domain_for, fields_of
from engine.prove.kinds import Sizes, kinds_of, sizes_that_reach
from engine.prove.terms import Terms

NAMED = 3  # kinds that a verdict names; it counts the others


@dataclass(frozen=True, slots=True)
class Reached:
    """Cases that bring about what the deck's do not, and the kinds that no run brings about."""

    cases: tuple[Case, ...] = ()
    missing: tuple[str, ...] = ()

    def words(self) -> str:
        """What a verdict says of it; nothing where runs bring about what there is."""
        if not self.missing:
            return ""
        named, more = ", ".join(self.missing[:NAMED]), len(self.missing) - NAMED
        return f"no run has {named}" + (f" and {more} more such" if more > 0 else "")

    def to_json(self) -> dict[str, Any]:
        return {"unreached": list(self.missing)} if self.missing else {}


def reached(subject: Subject, deck: Sequence[Case]) -> Reached:
    """What a subject's deck lacks to see each kind of value of its schedule; nothing where the
    schedule hangs on what the inputs hold."""
    try:
        asked = asked_schedule(subject.module)
        domain, terms = domain_for(subject), Terms.of(subject.module)
        kinds = kinds_of(terms, domain, fields_of(subject, terms, domain), asked)
        runs = [case for case in deck if case.Nq and "exact" in case.modes]
        noting = Noting(subject.module)
        seen = frozenset[str]().union(*(kinds_at(subject, asked, case, noting) for case in runs))
    except CuBridgeError:
        return Reached()  # the schedule hangs on more than sizes: runs judge it, and proofs say so
    more: dict[Case, None] = {}

    def case_of(sizes: Sizes) -> Case | None:
        case = bent(subject, case_at(sizes))
        return case if case is not None and affordable(case) else None

    def seen_at(sizes: Sizes) -> frozenset[str]:
        case = case_of(sizes)
        if case is None:
            return frozenset()
        more[case] = None
        return kinds_at(subject, asked, case, noting)

    found = sizes_that_reach(kinds, domain, seen, seen_at)
    brought = seen.union(*(kinds_at(subject, asked, case, noting) for case in more))
    lost = [*found.unseen, *(f"(perhaps) {words}" for words in found.undecided)]
    return Reached(tuple(more), tuple(w for w in lost if w not in brought))
