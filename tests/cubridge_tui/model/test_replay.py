"""A saved session as a tape: what is shown at each step, and where jumps land."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubridge_tui.model.replay import (
    NAMES,
    Tape,
    changed_stage,
    details,
    next_decision,
    text_at,
    timeline,
)
from cubridge_tui.model.rows import RowKind
from engine.service.session.adaptation import Adaptation
from engine.types import Decision, DecisionKind, Stage
from sessions.events import HunkDecided, ProposalMade
from sessions.session import Session
from sessions.store import Store
from tests.cubridge_tui.made import ACTOR, bench_of, made


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A session with a rejection, an undo, a redo and a second decision."""
    store = Store.open(tmp_path_factory.mktemp("replay") / "store.git")
    session = made(store, Stage.LOWERED)
    with bench_of(store) as bench, store.writer(session) as writer:
        work = Adaptation(bench, writer, ACTOR)
        hunk = work.state.proposals[0].hunks[1]
        work.decide(Decision(f"rules/{hunk.id}", DecisionKind.REJECTED, ACTOR, "not [/] this"))
        work.undo()
        work.redo()
    return store.load(session)


def test_the_last_position_is_the_session_itself(played: Session) -> None:
    tape = Tape.of(played.id, played.events)
    assert tape.state(tape.last) == played.state
    assert len(timeline(tape)) == len(tape.steps) < len(played.events)
    target = played.artifact(Stage.TARGET, NAMES[Stage.TARGET][0])
    shown = text_at(tape, tape.last, Stage.TARGET, played.content)
    assert "\n".join(r.text for r in shown.rows if r.number) == target.text.rstrip("\n")


def test_every_step_shows_the_text_of_its_moment(played: Session) -> None:
    tape = Tape.of(played.id, played.events)
    for position, each in enumerate(tape.steps):
        for stage, (name, _) in NAMES.items():
            sha = each.after.stage(stage).artifacts.get(name)
            shown = text_at(tape, position, stage, played.content)
            if sha is None:
                assert not shown.rows and shown.note
                continue
            text = "\n".join(r.text for r in shown.rows if r.number is not None)
            assert text == played.content(sha).decode().rstrip("\n")


def test_a_step_that_changes_a_text_shows_what_it_changed(played: Session) -> None:
    tape = Tape.of(played.id, played.events)
    changing = [
        i
        for i, s in enumerate(tape.steps)
        if changed_stage(s) is Stage.TARGET and s.before.stage(Stage.TARGET).artifacts
    ]
    found = 0
    for position in changing:
        kinds = {r.kind for r in text_at(tape, position, Stage.TARGET, played.content).rows}
        found += bool(kinds & {RowKind.ADD, RowKind.DEL, RowKind.OUT_ADD})
    # accepting, rejecting, undoing and redoing all change the target
    assert found >= 4


def test_jumps(played: Session) -> None:
    tape = Tape.of(played.id, played.events)
    here, seen = 0, []
    while (there := tape.jump(here, tape.stages, 1)) != here:
        here = there
        seen.append(changed_stage(tape.steps[here]))
    # The rejection, its undo and its redo bring the target back after lowering.
    assert tape.stages[0] == 0  # the source, with which the session begins
    assert seen[:3] == [Stage.LIFTED, Stage.TARGET, Stage.LOWERED]
    assert len(tape.decisions) == 4
    last = tape.jump(tape.last + 1, tape.decisions, -1)
    assert tape.steps[last].event.type == "Redone"
    assert tape.jump(last, tape.decisions, 1) == last
    assert tape.jump(0, (), 1) == 0


def test_details_say_what_the_line_does_not(played: Session) -> None:
    tape = Tape.of(played.id, played.events)
    words = [w for s, b in zip(tape.steps, tape.beats, strict=True) for w in details(s, b)]
    assert any(w.startswith("with it: wrote target.cuir") for w in words)
    assert any("not [/] this" in w for w in words)
    assert any("softcap" in w.lower() or "score" in w.lower() for w in words)


def test_a_damaged_text_is_a_note(played: Session) -> None:
    from engine.errors import StoreError

    def gone(sha: str) -> bytes:
        raise StoreError(f"content {sha[:12]} is damaged")

    tape = Tape.of(played.id, played.events)
    shown = text_at(tape, tape.last, Stage.TARGET, gone)
    assert not shown.rows and "damaged" in shown.note


def test_an_empty_history() -> None:
    tape = Tape.of("x", ())
    assert tape.last == 0 and tape.state(0).count == 0
    assert text_at(tape, 0, Stage.SOURCE, lambda _: b"").note


def test_only_a_beginning(tmp_path: Path) -> None:
    """A session of which only the beginning exists plays too."""
    store = Store.open(tmp_path / "store.git")
    session = store.load(made(store, Stage.SOURCE))
    tape = Tape.of(session.id, session.events)
    assert tape.stage_at(tape.last) is Stage.SOURCE


def test_a_decision_shows_its_hunks_whether_the_text_has_them_or_not(played: Session) -> None:
    """Also a hunk that only inserts, and one that a rejection leaves out of the text."""
    tape = Tape.of(played.id, played.events)
    (proposal,) = played.state.proposals
    for position, each in enumerate(tape.steps):
        body = each.event.body
        if not isinstance(body, HunkDecided | ProposalMade):
            continue
        stage = tape.stage_at(position)
        rows = text_at(tape, position, stage, played.content).rows
        whole = isinstance(body, ProposalMade) or body.decision.target == "rules"
        names = [h.id for h in proposal.hunks] if whole else [body.decision.target.split("/")[1]]  # type: ignore[union-attr]
        assert sorted(r.hunk for r in rows if r.kind is RowKind.HEAD) == [
            f"rules/{name}" for name in sorted(names)
        ]
        for hunk in (h for h in proposal.hunks if h.id in names):
            said = {r.text.strip() for r in rows if r.hunk == f"rules/{hunk.id}"}
            assert {line.strip() for line in hunk.after.splitlines() if line.strip()} <= said
    decided = [s for s in tape.steps if isinstance(s.event.body, HunkDecided)]
    assert len(decided) == 2


def test_a_rejected_hunk_stands_where_it_would_have_changed_the_text(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.git")
    session = made(store, Stage.LIFTED)
    with bench_of(store) as bench, store.writer(session) as writer:
        work = Adaptation(bench, writer, ACTOR)
        proposal = work.propose_by_rules()
        keep = next(h for h in proposal.hunks if h.after.startswith("s = keep("))
        added = next(h for h in proposal.hunks if not h.before and "map(s" in h.after)
        for hunk in (keep, added):
            work.decide(Decision(f"rules/{hunk.id}", DecisionKind.REJECTED, ACTOR))
    played = store.load(session)
    tape = Tape.of(session, played.events)
    places = [i for i, s in enumerate(tape.steps) if isinstance(s.event.body, HunkDecided)]
    for position, hunk in zip(places, (keep, added), strict=True):
        rows = text_at(tape, position, tape.stage_at(position), played.content).rows
        at = next(i for i, r in enumerate(rows) if r.kind is RowKind.HEAD)
        assert "rejected" in rows[at].text
        mine = [r for r in rows if r.hunk == f"rules/{hunk.id}" and r.sign == "x"]
        assert mine and all(r.number is None for r in mine)
        around = " ".join(r.text for r in rows[at - 4 : at + 6])
        assert "keep(" in around and "row_max(" in around
        # As in the review: what a rejected hunk would replace stays, without a sign.
        stays = [r for r in rows if r.number and r.hunk]
        assert bool(stays) is bool(hunk.before) and {r.kind for r in stays} <= {RowKind.SAME}


def test_the_next_decision_is_about_the_stage_that_was_reached(played: Session) -> None:
    tape = Tape.of(played.id, played.events)
    seen = [next_decision(step.after) for step in tape.steps]
    stages = list(dict.fromkeys(stage for stage, _ in seen))
    assert stages == [Stage.SOURCE, Stage.LIFTED, Stage.TARGET, Stage.LOWERED]
    asked = [hunk for stage, hunk in seen if hunk]
    assert asked and set(asked) == {"rules/h1"}


def test_decisions_at_one_stroke_are_one_step_with_all_their_hunks(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.git")
    session = made(store, Stage.LIFTED)
    with bench_of(store) as bench, store.writer(session) as writer:
        work = Adaptation(bench, writer, ACTOR)
        hunks = work.propose_by_rules().hunks[:3]
        work.decide(*(Decision(f"rules/{h.id}", DecisionKind.ACCEPTED, ACTOR) for h in hunks))
    played = store.load(session)
    tape = Tape.of(session, played.events)
    assert tape.decisions == (tape.last,)
    assert "accepted 3 hunks at one stroke" in timeline(tape)[-1].text
    assert [w.split(" (")[0] for w in details(tape.steps[-1], tape.beats[-1])[:3]] == [
        f"accepted {h.title}" for h in hunks
    ]
    rows = text_at(tape, tape.last, tape.stage_at(tape.last), played.content).rows
    assert {r.hunk for r in rows if r.kind is RowKind.ADD} == {f"rules/{h.id}" for h in hunks}
    gone = [r.text.strip() for r in rows if r.kind is RowKind.DEL]
    assert gone == [x.strip() for h in hunks for x in h.before.splitlines() if x.strip()]
