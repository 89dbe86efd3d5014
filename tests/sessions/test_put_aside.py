"""Sessions put aside and brought back, whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.errors import StoreError
from sessions.events import Note, TitleSet
from sessions.git_store import RefMoved
from sessions.store import Store
from tests.sessions.conftest import created


def test_a_deleted_session_is_nowhere_and_comes_back_whole(
    store: Store, session: str, git: Callable[..., str]
) -> None:
    with store.writer(session) as writer:
        writer.append([Note("kept"), TitleSet("other")], actor="ana")
    before = store.load(session).events
    assert store.delete(session[:9]) == session
    assert store.sessions() == [] and [s.title for s in store.deleted()] == ["other"]
    for look in (store.load, store.find, store.delete, lambda name: store.writer(name)):
        with pytest.raises(StoreError, match="no session"):
            look(session)
    store.pack()
    assert store.restore(session[:9]) == session
    assert store.load(session).events == before and store.deleted() == []
    with store.writer(session) as writer:
        writer.append([Note("goes on")], actor="ana")
    assert git("fsck", "--full", "--strict") == ""
    assert not store.sessions()[0].damaged


def test_what_somebody_writes_is_not_deleted(store: Store, session: str) -> None:
    with store.writer(session), pytest.raises(StoreError, match="was not deleted: process"):
        store.delete(session)
    assert store.load(session).id == session


def test_what_is_not_there_or_not_clear_is_not_restored(store: Store) -> None:
    with pytest.raises(StoreError, match="no deleted session"):
        store.restore("softcap")
    one, two = (store.create(created(), actor="ana") for _ in range(2))
    store.delete(one)
    store.delete(two)
    with pytest.raises(StoreError, match="could be"):
        store.restore("softcap")
    assert store.restore(two) == two


def test_a_session_that_moves_meanwhile_stays(
    store: Store, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(*_: object) -> None:
        raise RefMoved("it")

    monkeypatch.setattr("sessions.git_store.GitDir.move_refs", moved)
    with pytest.raises(StoreError, match="changed meanwhile"):
        store.delete(session)
