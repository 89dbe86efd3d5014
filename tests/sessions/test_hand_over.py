"""The writer's place given for a moment to a process that waits for it, and taken back."""

from __future__ import annotations

import fcntl
import threading
import time
from dataclasses import replace

import pytest

from engine.errors import StoreError
from engine.types import Gate, Stage, VerdictKind
from sessions.events import Note, VerdictGiven
from sessions.store import Store
from tests.sessions.conftest import artifact_set, passed


def test_nobody_waits_for_a_lease_that_is_free_or_that_others_only_look_at(
    store: Store, session: str
) -> None:
    with store.writer(session) as first:
        assert not first.awaited and not first.hand_over()
        with store.writer(session) as second:
            assert second.read_only and not first.awaited and not second.awaited
        # Nor does one that would keep it: who works on a session is not put out of it.
        long = threading.Thread(target=store.writer, args=(session,), kwargs={"wait": 0.3})
        long.start()
        while long.is_alive():
            assert not first.awaited
            time.sleep(0.01)
        assert first.read_only is None


def test_who_waits_gets_the_lease_at_rest_and_it_comes_back(store: Store, session: str) -> None:
    with store.writer(session) as app:
        brief = store.writer(session, wait=20.0, brief=True)
        saved = threading.Thread(target=lambda: brief.append([Note("agent")], actor="bot"))
        saved.start()
        while not app.awaited:
            time.sleep(0.005)
        assert app.hand_over() and app.read_only is not None
        with pytest.raises(StoreError, match="for a moment"):
            app.append([Note("no")], actor="ana")
        saved.join()
        while not app.take_over():
            time.sleep(0.005)
        app.append([Note("mine again")], actor="ana")
    assert store.load(session).state.notes == ("agent", "mine again")


def test_who_lends_the_lease_gets_it_back_and_no_other_view_does(
    store: Store, session: str
) -> None:
    with store.writer(session) as app, store.writer(session) as view:
        with app._lease.waiting():
            assert app.hand_over()
        assert not view.take_over() and view.read_only is not None
        store.writer(session, brief=True).append([Note("agent")], actor="bot")
        assert not view.take_over()
        assert app.take_over() and not view.take_over()
        with app._lease.waiting():
            assert app.hand_over()
        app.close()  # it wants it no more
        assert view.take_over()


def test_a_gate_that_was_overridden_meanwhile_is_not_judged_anew(
    store: Store, session: str
) -> None:
    lifted, artifact = artifact_set(Stage.LIFTED, "lifted")
    given = passed(Gate.G1, "lifted")
    mine = replace(given.verdict, kind=VerdictKind.OVERRIDDEN, reason="I know", by="ana")
    with store.writer(session) as app:
        app.append([lifted], [artifact.data], actor="ana")
    brief = store.writer(session, brief=True)
    with store.writer(session) as app:
        app.append([VerdictGiven(mine)], actor="ana")
    with pytest.raises(StoreError, match="by someone else meanwhile"):
        brief.append([given], actor="bot")
    assert store.load(session).state.verdict(Gate.G1) == mine


def test_two_that_look_whether_it_is_awaited_do_not_see_each_other(
    store: Store, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.writer(session) as app, app._lease.waiting(), app._lease.waiting():
        assert app.awaited
    with store.writer(session) as app:
        seen: list[bool] = []
        flock = fcntl.flock

        def while_another_looks(fd: int, how: int) -> None:
            flock(fd, how)
            monkeypatch.setattr(fcntl, "flock", flock)
            seen.append(app.awaited)

        monkeypatch.setattr(fcntl, "flock", while_another_looks)
        assert not app.awaited and seen == [False]


def test_what_cannot_be_saved_yet_keeps_the_lease(
    store: Store, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "full")

    with store.writer(session) as app:
        with monkeypatch.context() as patch:
            patch.setattr("sessions.writer.write_commit", fails)
            with pytest.raises(StoreError):
                app.append([Note("waits")], actor="ana")
        with app._lease.waiting():
            assert app.awaited and not app.hand_over()
            app.retry()
            assert app.hand_over()


def test_a_brief_writer_adds_verdicts_behind_what_others_saved_and_no_artifacts(
    store: Store, session: str
) -> None:
    lifted, artifact = artifact_set(Stage.LIFTED, "lifted")
    with store.writer(session) as app:
        app.append([lifted], [artifact.data], actor="ana")
    brief = store.writer(session, wait=0.1, brief=True)
    with store.writer(session) as app:
        app.append([Note("meanwhile")], actor="ana")
        with pytest.raises(StoreError, match="writes it"):
            brief.append([passed(Gate.G1, "lifted")], actor="bot")
    brief.append([Note("free again")], actor="bot")
    brief = store.writer(session, brief=True)
    with store.writer(session) as app:
        app.append([Note("meanwhile")], actor="ana")
    other, made = artifact_set(Stage.LIFTED, "other")
    with pytest.raises(StoreError, match="by someone else meanwhile"):
        brief.append([other], [made.data], actor="bot")
    brief.append([passed(Gate.G1, "lifted")], actor="bot")
    state = store.load(session).state
    assert (
        state.notes == ("meanwhile", "free again", "meanwhile")
        and state.verdict(Gate.G1) is not None
    )
