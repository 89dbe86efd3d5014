"""Decisions made at one stroke are undone at one stroke, and one costs two git processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.service.session.adaptation import Adaptation
from engine.service.session.decisions import in_words, redo_group, undo_group
from engine.types import Decision, DecisionKind, Hunk, Origin, Proposal, Stage
from sessions.events import (
    ArtifactSet,
    Event,
    HunkDecided,
    InputsSet,
    ProposalMade,
    Redone,
    SessionCreated,
    Undone,
    stamp,
)
from sessions.fold import fold
from sessions.git_run import run_git
from sessions.state import SessionState
from sessions.store import Store
from tests.cubridge_tui.made import ACTOR, bench_of, made

HUNKS = tuple(Hunk(f"h{i}", f"title {i}", "", "", "a", "b", (), Origin.RULES) for i in range(1, 7))
SHA = "a" * 64


def history(strokes: list[list[int]]) -> tuple[Event, ...]:
    bodies: list[object] = [
        SessionCreated("t", "k", SHA, "s", SHA, {}),
        ProposalMade(Proposal("rules", Origin.RULES, "", HUNKS)),
    ]
    for stroke in strokes:
        bodies += [
            HunkDecided(Decision(f"rules/h{i}", DecisionKind.ACCEPTED, "ana")) for i in stroke
        ]
        bodies.append(ArtifactSet(Stage.TARGET, "target.cuir", SHA))
    return stamp(bodies, "ana", None)  # type: ignore[arg-type]


def more(events: tuple[Event, ...], bodies: list[Undone] | list[Redone]) -> tuple[Event, ...]:
    return (*events, *stamp(bodies, "ana", events[-1].id))


strokes_ = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=5)


@given(strokes_, st.integers(1, 5))
def test_undo_takes_back_stroke_by_stroke_and_redo_makes_them_again(
    strokes: list[list[int]], times: int
) -> None:
    events = history(strokes)
    whole = fold(events)
    seen: list[SessionState] = [whole]
    for stroke in list(reversed(strokes))[:times]:
        group = undo_group(events, seen[-1].undo)
        assert len(group) == len(stroke)
        events = more(events, [Undone(e.id) for e in group])
        seen.append(fold(events))
        assert not seen[-1].problems
    for before in reversed(seen[:-1]):
        group = redo_group(events, fold(events).redo)
        events = more(events, [Redone(e.id) for e in group])
        now = fold(events)
        assert (now.draft, now.undo) == (before.draft, before.undo)
        assert not now.problems


def test_a_stroke_in_words() -> None:
    events = history([[4], [1, 2, 3]])
    state = fold(events)
    assert in_words(state, undo_group(events, state.undo)) == "accepted 3 hunks"
    events = history([[4]])
    state = fold(events)
    words = "accepted rules/h4 (title 4)"
    assert in_words(state, undo_group(events, state.undo)) == words
    assert in_words(state, redo_group(events, state.redo)) == ""


@pytest.mark.parametrize(
    "change",
    [InputsSet({"spec": "b" * 64}), ProposalMade(Proposal("rules", Origin.RULES, "", HUNKS))],
)
def test_nothing_is_undone_past_a_changed_input_or_a_proposal_made_again(
    change: InputsSet | ProposalMade,
) -> None:
    """Of what was decided before and of what was undone before; only what came behind."""
    events = history([[1], [2], [3]])
    (last,) = undo_group(events, fold(events).undo)
    events = more(events, [Undone(last.id)])
    assert undo_group(events, fold(events).undo) and redo_group(events, fold(events).redo)
    events = (*events, *stamp([change], "ana", events[-1].id))
    state = fold(events)
    assert not undo_group(events, state.undo) and not redo_group(events, state.redo)
    later = [HunkDecided(Decision(f"rules/h{i}", DecisionKind.REJECTED, "ana")) for i in (4, 5)]
    events = (*events, *stamp(later, "ana", events[-1].id))
    group = undo_group(events, fold(events).undo)
    assert [e.id for e in group] == [events[-1].id, events[-2].id]
    events = more(events, [Undone(e.id) for e in group])
    assert not undo_group(events, fold(events).undo)
    assert len(redo_group(events, fold(events).redo)) == 2


def test_a_decision_takes_two_git_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(folder: Path, arguments: list[str], *rest: Any) -> Any:
        asked.append(next(a for a in arguments if not a.startswith("-") and "=" not in a))
        return run_git(folder, arguments, *rest)

    store = Store.open(tmp_path / "store.git")
    session = made(store, Stage.LIFTED)
    monkeypatch.setattr("sessions.git_store.run_git", counted)
    with bench_of(store) as bench, store.writer(session) as writer:
        work = Adaptation(bench, writer, ACTOR)
        hunk = work.propose_by_rules().hunks[0]
        for kind in (DecisionKind.REJECTED, DecisionKind.ACCEPTED):
            asked.clear()
            work.decide(Decision(f"rules/{hunk.id}", kind, ACTOR))
            assert asked == ["unpack-objects", "update-ref"]
