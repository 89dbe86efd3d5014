"""A session that enters the store with the first thing that happens to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import StoreError
from engine.types import Stage, sha256_of
from sessions.events import ArtifactSet, Note, TitleSet
from sessions.newborn import NewSession
from sessions.store import Store
from tests.sessions.conftest import created

TEXT = b"the expert's source\n"


def newborn(store: Store) -> NewSession:
    made = ArtifactSet(Stage.SOURCE, "kernel.cu", sha256_of(TEXT))
    return NewSession(store, created(), [made], [TEXT], "ana")


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.git")
    with newborn(store) as session:
        assert session.id == "" and session.state.created == created()
        assert session.artifact(Stage.SOURCE).data == TEXT
        assert session.poll() == () and session.pending == () and session.notices == ()
        session.retry()
    assert not store.exists()


def test_the_first_event_makes_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.git")
    with newborn(store) as session:
        session.append([Note("first")], actor="bo")
        name = session.id
        assert [s.id for s in store.sessions()] == [name]
        session.append([TitleSet("renamed")], actor="bo")
        assert session.state.title == "renamed" and session.read_only is None
        assert "writes it" in (store.writer(name).read_only or "")
    events = store.load(name).events
    assert [e.type for e in events] == ["SessionCreated", "ArtifactSet", "Note", "TitleSet"]
    assert [e.actor for e in events] == ["ana", "ana", "bo", "bo"]
    assert store.load(name).artifact(Stage.SOURCE).data == TEXT


def test_a_store_that_cannot_be_made_is_an_error_and_it_stays_unborn(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "store.git")
    session = newborn(store)
    with pytest.raises(StoreError):
        session.append([Note("first")], actor="bo")
    assert session.id == "" and session.state.created == created()
