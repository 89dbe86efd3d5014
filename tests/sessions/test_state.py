"""The fold: its laws, staleness from hashes, undo and redo, acceptance."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import (
    Decision,
    DecisionKind,
    Gate,
    Hunk,
    Level,
    Origin,
    Proposal,
    Stage,
    Verdict,
    VerdictKind,
    sha256_of,
)
from sessions.events import (
    Accepted,
    ArtifactSet,
    Body,
    Event,
    HunkCommented,
    HunkDecided,
    InputsSet,
    ProposalMade,
    Rebased,
    Redone,
    Undone,
    Unknown,
    VerdictGiven,
    stamp,
)
from sessions.fold import fold, problem_with, step
from sessions.ids import new_event_id
from sessions.state import SessionState, acceptance_of
from tests.sessions import strategies as own
from tests.sessions.conftest import created, passed


def run(*bodies: Body, on: SessionState | None = None) -> SessionState:
    last = on.last.id if on is not None and on.last is not None else None
    return fold(stamp(bodies, "ana", last), on)


def put(stage: Stage, text: str, name: str = "text") -> ArtifactSet:
    return ArtifactSet(stage, name, sha256_of(text))


def proposal(id_: str = "p1", *hunk_ids: str, after: str = "new") -> Proposal:
    hunks = tuple(
        Hunk(h, f"hunk {h}", "why", "clause", "old", after, (), Origin.RULES) for h in hunk_ids
    )
    return Proposal(id_, Origin.RULES, "the recipe", hunks)


PIPELINE = (
    created(),
    put(Stage.SOURCE, "source"),
    put(Stage.LIFTED, "lifted"),
    passed(Gate.G1, "lifted"),
    ProposalMade(proposal("p1", "h1", "h2")),
    HunkDecided(Decision("p1", DecisionKind.ACCEPTED, "ana")),
    put(Stage.TARGET, "target"),
    passed(Gate.G2, "target", spec="spec"),
    put(Stage.LOWERED, "lowered"),
    passed(Gate.G3, "lowered", headers="headers"),
)


@given(own.logs(), st.data())
def test_a_prefix_then_the_rest_is_the_whole(events: list[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events)))
    assert fold(events[cut:], fold(events[:cut])) == fold(events)


@given(own.logs())
def test_the_fold_is_total_and_forgets_nothing(events: list[Event]) -> None:
    state = fold(events)
    assert state.count == len(events)
    assert state.last == events[-1]
    unknown = [event for event in events if isinstance(event.body, Unknown)]
    assert list(state.unknown) == unknown
    assert state.level in Level and state.accepted_level in Level
    problems = sum(
        problem_with(fold(events[:i]), event) is not None and event not in unknown
        for i, event in enumerate(events)
    )
    assert len(state.problems) == problems


@given(own.logs(), own.decisions)
def test_undo_then_redo_is_the_identity(events: list[Event], decision: Decision) -> None:
    before = fold(events)
    decide = Event(new_event_id(events[-1].id), "t", "ana", HunkDecided(decision))
    decided = step(before, decide)
    if decided.problems != before.problems:
        return  # no such hunk here
    undone = run(Undone(decide.id), on=decided)
    assert undone.draft == before.draft
    assert undone.undo == before.undo
    redone = run(Redone(decide.id), on=undone)
    same = ("draft", "undo", "redo", "verdicts", "level", "hashes", "accepted_hunks")
    for name in same:
        assert getattr(redone, name) == getattr(decided, name)


def test_undo_twice_redo_twice() -> None:
    state = run(created(), ProposalMade(proposal("p1", "h1", "h2")), put(Stage.TARGET, "t0"))
    ids = []
    for hunk in ("h1", "h2"):
        state = run(HunkDecided(Decision(hunk, DecisionKind.ACCEPTED, "ana")), on=state)
        ids.append(state.undo[-1].event)
        state = run(put(Stage.TARGET, f"with {hunk}"), on=state)
    done = state
    for id_ in reversed(ids):
        state = run(Undone(id_), on=state)
    assert state.accepted_hunks == ()
    assert state.stage(Stage.TARGET).sha256 == sha256_of("t0")
    for id_ in ids:
        state = run(Redone(id_), on=state)
    assert state.draft == done.draft


def test_a_new_decision_ends_redo() -> None:
    state = run(*PIPELINE)
    id_ = state.undo[-1].event
    state = run(
        Undone(id_),
        HunkDecided(Decision("h1", DecisionKind.REJECTED, "ana")),
        Redone(id_),
        on=state,
    )
    assert "nothing to redo" in state.problems[-1]


def test_undo_brings_the_old_verdicts_back() -> None:
    state = run(*PIPELINE)
    assert state.level is Level.CPU_VERIFIED
    decided = run(HunkDecided(Decision("h1", DecisionKind.REJECTED, "ana")), on=state)
    edited = run(put(Stage.TARGET, "other"), passed(Gate.G2, "other", VerdictKind.FAIL), on=decided)
    assert edited.level is Level.NONE
    assert run(Undone(decided.undo[-1].event), on=edited).level is Level.CPU_VERIFIED


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        (put(Stage.TARGET, "other target"), {Gate.G2, Gate.G3}),
        (put(Stage.LOWERED, "other lowered"), {Gate.G3}),
        (put(Stage.LIFTED, "other lifted"), {Gate.G1, Gate.G2, Gate.G3}),
        (InputsSet({"spec": sha256_of("other")}), {Gate.G2, Gate.G3}),
        (InputsSet({"kernel": sha256_of("other")}), {Gate.G1, Gate.G2, Gate.G3}),
        (InputsSet({"headers": sha256_of("other")}), {Gate.G3}),
        (InputsSet({"headers": sha256_of("headers")}), set()),
        (put(Stage.TARGET, "target"), set()),
        (ArtifactSet(Stage.LOWERED, "text", None), {Gate.G3}),
        (put(Stage.LOWERED, "a second file", "more"), {Gate.G3}),
    ],
)
def test_an_edit_makes_what_follows_stale(change: Body, stale: set[Gate]) -> None:
    state = run(change, on=run(*PIPELINE))
    found = {v.gate for v in state.verdicts if v.kind is VerdictKind.STALE}
    assert found == stale
    assert state.level is (Level.NONE if stale else Level.CPU_VERIFIED)


def test_lowering_again_after_a_change_upstream_needs_new_verdicts_only_where_hashes_moved() -> (
    None
):
    state = run(put(Stage.TARGET, "other"), put(Stage.LOWERED, "lowered"), on=run(*PIPELINE))
    kinds = {v.gate: v.kind for v in state.verdicts}
    assert kinds == {
        Gate.G1: VerdictKind.PASS,
        Gate.G2: VerdictKind.STALE,
        Gate.G3: VerdictKind.PASS,
    }


def test_a_late_verdict_for_other_bytes_is_stale_at_once() -> None:
    state = run(passed(Gate.G4, "lowered long ago"), on=run(*PIPELINE))
    verdict = state.verdict(Gate.G4)
    assert verdict is not None and verdict.kind is VerdictKind.STALE
    assert state.level is Level.CPU_VERIFIED


def test_not_run_takes_nothing_back() -> None:
    state = run(passed(Gate.G4, "lowered"), on=run(*PIPELINE))
    assert state.level is Level.GPU_VERIFIED
    not_run = VerdictGiven(Verdict(Gate.G4, VerdictKind.NOT_RUN, "no GPU here"))
    assert run(not_run, on=state).level is Level.GPU_VERIFIED


def test_a_later_gpu_result_raises_or_revokes_what_was_accepted() -> None:
    state = run(*PIPELINE)
    state = run(acceptance_of(state), on=state)
    assert state.accepted_level is Level.CPU_VERIFIED and state.acceptance_is_current
    moved = run(put(Stage.TARGET, "next idea"), on=state)
    assert not moved.acceptance_is_current and moved.level is Level.NONE
    assert moved.accepted_level is Level.CPU_VERIFIED
    assert run(passed(Gate.G4, "lowered"), on=moved).accepted_level is Level.GPU_VERIFIED
    failed = run(passed(Gate.G4, "lowered", VerdictKind.FAIL), on=moved)
    assert failed.accepted_level is Level.NONE
    assert failed.acceptance is not None
    assert failed.acceptance.level_then is Level.CPU_VERIFIED


def test_nothing_is_accepted_without_its_level() -> None:
    state = run(*PIPELINE)
    below = run(passed(Gate.G2, "target", VerdictKind.FAIL), on=state)
    assert run(acceptance_of(below), on=below).acceptance is None
    typed_in = Accepted(Level.GPU_VERIFIED, state.hashes)
    assert run(typed_in, on=state).acceptance is None
    other = Accepted(Level.CPU_VERIFIED, {**state.hashes, "lowered": sha256_of("x")})
    assert run(other, on=state).acceptance is None


def test_undo_ends_at_acceptance() -> None:
    state = run(*PIPELINE)
    id_ = state.undo[-1].event
    state = run(acceptance_of(state), Undone(id_), on=state)
    assert "nothing to undo" in state.problems[-1]


def test_an_override_gives_its_own_level_and_needs_a_person() -> None:
    state = run(*PIPELINE[:-1], passed(Gate.G3, "lowered", VerdictKind.OVERRIDDEN))
    assert state.level is Level.OVERRIDDEN
    nobody = Verdict(Gate.G3, VerdictKind.OVERRIDDEN, "r", subject=(("artifact", sha256_of("x")),))
    assert "needs a person" in run(VerdictGiven(nobody), on=state).problems[-1]


def test_a_verdict_without_its_artifact_or_one_stored_as_stale_is_refused() -> None:
    state = run(*PIPELINE)
    bare = VerdictGiven(Verdict(Gate.G2, VerdictKind.PASS))
    assert "needs the hash" in run(bare, on=state).problems[-1]
    stale = VerdictGiven(Verdict(Gate.G2, VerdictKind.STALE))
    assert "never stored" in run(stale, on=state).problems[-1]


def test_decisions_name_a_proposal_a_hunk_or_both() -> None:
    base = run(
        created(), ProposalMade(proposal("p1", "h1", "h2")), ProposalMade(proposal("p2", "h1"))
    )

    def decided(target: str) -> set[tuple[str, str]]:
        state = run(HunkDecided(Decision(target, DecisionKind.ACCEPTED, "ana")), on=base)
        return set(state.draft.decisions)

    assert decided("p1") == {("p1", "h1"), ("p1", "h2")}
    assert decided("h1") == {("p2", "h1")}
    assert decided("p1/h1") == {("p1", "h1")}
    assert decided("nothing") == set()


def test_a_replaced_proposal_is_undecided_and_redo_cannot_decide_it() -> None:
    accept = HunkDecided(Decision("h1", DecisionKind.ACCEPTED, "ana"))
    state = run(created(), ProposalMade(proposal("p1", "h1", after="read before")), accept)
    id_ = state.undo[-1].event
    state = run(Undone(id_), ProposalMade(proposal("p1", "h1", after="never read")), on=state)
    assert run(Redone(id_), on=state).accepted_hunks == ()


def test_a_comment_decides_nothing_and_old_ones_came_with_a_decision() -> None:
    old = run(
        created(), ProposalMade(proposal("p1", "h1", "h2")),
        HunkDecided(Decision("p1/h1", DecisionKind.REJECTED, "ana", "as decided")),
    )  # fmt: skip
    said = old.comment("p1", "h1")
    assert said is not None and (said.text, said.by) == ("as decided", "ana")
    after = run(HunkCommented("p1/h1", "later"), HunkCommented("p1/h2", "and here"), on=old)
    assert after.draft == old.draft and after.undo == old.undo and after.hashes == old.hashes
    assert [c and c.text for c in (after.comment("p1", h) for h in ("h1", "h2"))] == [
        "later", "and here",
    ]  # fmt: skip
    assert run(HunkCommented("p1/h1", ""), on=after).comment("p1", "h1") is None
    again = run(ProposalMade(proposal("p1", "h1", "h2", after="newer")), on=after)
    assert again.comment("p1", "h2") is None
    assert (
        run(HunkCommented("p1/h9", "?"), on=after)
        .problems[-1]
        .endswith("no proposal has a hunk 'p1/h9'")
    )


def test_an_edit_keeps_its_replacement() -> None:
    edit = Decision("h1", DecisionKind.EDITED, "ana", replacement="mine")
    state = run(created(), ProposalMade(proposal("p1", "h1")), HunkDecided(edit))
    assert [d.replacement for _, _, d in state.accepted_hunks] == ["mine"]


def test_a_second_creation_changes_nothing() -> None:
    state = run(created("first"), created("second"))
    assert state.title == "first" and len(state.problems) == 1


def test_states_are_values() -> None:
    state = run(*PIPELINE)
    assert state == replace(state) and state != run(put(Stage.TARGET, "x"), on=state)


def test_what_was_proposed_before_a_rebase_is_history() -> None:
    accept = Decision("p1", DecisionKind.ACCEPTED, "ana")
    before = run(
        created(), ProposalMade(proposal("p1", "h1")), HunkDecided(accept),
        HunkCommented("p1/h1", "good"), put(Stage.TARGET, "target"),
    )  # fmt: skip
    after = run(Rebased("/kernels/flash", "/new.cu"), on=before)
    assert after.rebased == Rebased("/kernels/flash", "/new.cu") and before.rebased is None
    assert not (after.proposals or after.draft.decisions or after.comments or after.undo)
    assert after.created == before.created and after.stage(Stage.TARGET).artifacts
    again = run(ProposalMade(proposal("p1", "h1")), on=after)  # the same name is another proposal
    assert again.decision("p1", "h1") is None
