"""A session goes on from any of its steps: what its decisions make came with them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from cubridge_tui.desk import Desk
from engine.service.session.adaptation import Adaptation
from engine.service.session.decisions import redo_group, undo_group
from engine.service.upkeep import recheck as rechecking
from engine.service.upkeep.recheck import recheck
from engine.types import Decision, DecisionKind, Stage
from sessions.session import Session
from sessions.store import Store
from tests.cubridge_tui.made import ACTOR, VARIANTS, TableChild, bench_of, made


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is done again with the child that did it first."""
    child = TableChild(VARIANTS["softcap_causal"])
    monkeypatch.setattr(rechecking, "Child", lambda: closing(child))


def all_the_same(session: Session) -> bool:
    return all(row.same for row in recheck(session, lambda _: None))


def test_every_step_can_be_gone_on_from(tmp_path: Path) -> None:
    """Every key of decisions works there, and the history can be done again, before and after."""
    store = Store.open(tmp_path / "store.git")
    session = made(store, Stage.LIFTED)
    with bench_of(store) as bench:
        with store.writer(session) as writer:
            work = Adaptation(bench, writer, ACTOR)
            hunks = work.propose_by_rules().hunks
            first, second = (f"rules/{hunk.id}" for hunk in hunks[:2])
            work.decide(Decision(first, DecisionKind.REJECTED, ACTOR))
            work.decide(*(Decision(n, DecisionKind.ACCEPTED, ACTOR) for n in (first, second)))
            assert work.undo() and work.undo() and work.redo()
            work.accept_all(work.state.proposals[0])
            work.judge_target()
        events = store.load(session).events
        forks = {}
        for event in events:
            fork = store.fork(session, actor=ACTOR, at=event.id)
            forks.setdefault(len(store.load(fork).events), fork)
        assert 8 <= len(forks) < len(events)
        for fork in forks.values():
            assert all_the_same(store.load(fork))
            desk = Desk(bench, fork, ACTOR, {})
            try:
                state = desk.work.state
                if redo_group(desk.writer.events, state.redo):
                    desk.redo()
                if undo_group(desk.writer.events, state.undo):
                    desk.undo()
                if not state.proposals:
                    continue
                desk.decide(first, DecisionKind.REJECTED)
                desk.accept_rest(*desk.work.state.proposals)
                desk.undo()
                desk.redo()
                desk.work.judge_target()
                assert not desk.work.state.problems
            finally:
                desk.close()
        assert all_the_same(store.load(fork))
