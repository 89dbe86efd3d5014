"""Decisions follow edits, not places; what is not the same edit has none."""

from __future__ import annotations

from engine.cuir.changes.ids import assign
from engine.cuir.changes.renaming import Renaming
from engine.cuir.nodes import Module
from engine.transfer.proposals.carry import carried, known_edits
from engine.transfer.proposals.review import propose
from engine.types import DecisionKind, Origin
from tests.engine.cuir.changes.test_diff import kernel

KEEP = "        s = keep(s, lambda i, j: j < args.Nk, at=[q0, step * BN])\n"
MASKED = KEEP.replace("j < args.Nk", "j < args.Nk and j <= i")
STORE = "    store(sQ, m)\n"
DOUBLED = "    m = map(m, lambda x: x + x)\n" + STORE
YES, NO = DecisionKind.ACCEPTED, DecisionKind.REJECTED
Change = tuple[str, str]


def decided(
    kinds: list[DecisionKind | None], theirs: Change, *mine: Change
) -> list[DecisionKind | None]:
    """What is decided of the hunks that `mine` makes of the changed kernel, where `kinds` was
    decided of those of the old one."""

    def made(base: Module, changed: Module) -> list[DecisionKind | None]:
        proposal = propose(
            base, changed, id="p", origin=Origin.RULES, reason="", ids=assign(base)
        )  # fmt: skip
        found = carried(base, changed, proposal, known)
        return [found.get(h.id) for h in proposal.hunks]

    known = known_edits(kernel(), kernel((KEEP, MASKED), (STORE, DOUBLED)), kinds)
    return made(kernel(theirs), kernel(theirs, *mine))


def test_decisions_follow_their_edits() -> None:
    theirs = ("    tiles = ", "    first = 0\n    tiles = ")
    mine = ((KEEP, MASKED), (STORE, DOUBLED))
    assert decided([YES, NO], theirs, *mine) == [YES, NO]
    assert decided([None, NO], theirs, *mine) == [None, NO]
    named = (KEEP, MASKED.replace("i, j: j <", "r, c: c <").replace("and j <= i", "and c <= r"))
    assert decided([YES, NO], theirs, named, mine[1]) == [YES, NO]


def test_an_edit_of_another_statement_or_to_another_text_is_asked() -> None:
    mine = ((KEEP, MASKED), (STORE, DOUBLED))
    other = (KEEP, MASKED.replace("j <= i", "j < i"))
    assert decided([YES, YES], ("BM = 128", "BM = 64"), other, mine[1]) == [None, YES]
    theirs = ("at=[q0, step * BN]", "at=[q0, step * BN + 0]")
    changed = tuple(text.replace(*theirs) for text in (KEEP, MASKED))
    assert decided([YES, YES], theirs, (changed[0], changed[1]), mine[1]) == [None, YES]


def test_decisions_that_fit_no_hunks_are_none() -> None:
    assert known_edits(kernel(), kernel((KEEP, MASKED)), [YES, NO]) == {}


def test_each_edit_is_renamed_by_itself() -> None:
    changes = ((KEEP, MASKED), (STORE, DOUBLED), ("BM = 128", "BM = 64"), ("Nk: i32", "Nk: i64"))
    base, proposed = kernel(), kernel(*changes)
    most = {"flash_fwd": {"m": "most", "s": "scores"}}
    first, second = (
        Renaming({}, most),
        Renaming({"flash_fwd": "forward"}, {"launch": {"BM": "ROWS"}}),
    )
    kinds = [NO, YES, NO, YES]
    renamed = (second(first(module)) for module in (base, proposed))
    assert known_edits(base, proposed, kinds, [first, second]) == known_edits(*renamed, kinds)
    assert known_edits(base, proposed, kinds, [first]) != known_edits(base, proposed, kinds)


def test_decisions_on_wide_hunks_are_of_all_their_edits() -> None:
    """A proposal that was kept when contiguous edits were one hunk."""
    proposed = kernel((STORE, "    m = map(m, lambda x: x + 1.0)\n" + DOUBLED))
    assert set(known_edits(kernel(), proposed, [NO, YES]).values()) == {
        frozenset({NO}), frozenset({YES})
    }  # fmt: skip
    assert set(known_edits(kernel(), proposed, [NO]).values()) == {frozenset({NO})}
