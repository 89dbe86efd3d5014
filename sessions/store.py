"""The store: a bare git repository with one ref per session.

Opening looks and changes nothing; the repository is made by the first session. Whatever can go
wrong is one `StoreError` that says what to do.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from engine.errors import StoreError, nearest
from sessions.commit import Blob, by_sha256, write_commit
from sessions.events import (
    Body,
    Event,
    Forked,
    SessionCreated,
    TitleSet,
    decode_log,
    stamp,
    stroke_end,
)
from sessions.fold import fold, problem_with
from sessions.git_store import (
    DELETED,
    NOTHING,
    SESSIONS,
    STORE_SCHEMA,
    DiskFull,
    GitDir,
    RefMoved,
    Update,
    store_error,
    writable_fix,
)
from sessions.ids import is_session_id, new_session_id
from sessions.listing import MARKER, WHAT, Listing
from sessions.session import Loaded, Session, load, load_commit
from sessions.state import SessionState
from sessions.tree import Tree
from sessions.writer import Writer

_PROBE = b"\0" * 4096  # a file of a block: a full disk has room for an empty one


class Store(Listing):
    """A store whose sessions are made, opened, copied and put aside. Make one with `Store.open`."""

    def create(
        self,
        created: SessionCreated,
        more: Sequence[Body] = (),
        blobs: Iterable[Blob] = (),
        *,
        actor: str,
    ) -> str:
        """Start a session (and its first events) and give its id, made from the title.

        Raises:
            StoreError: the store cannot be made or written.
        """
        self._make()
        contents = by_sha256(blobs)
        events = stamp([created, *more], actor, None)
        state = SessionState()
        for event in events:
            problem = problem_with(state, event)
            if problem is not None:
                raise StoreError(f"{event.type} cannot start a session: {problem}")
            state = fold((event,), state)
        empty = Loaded("", b"", b"", (), SessionState(), Tree(), STORE_SCHEMA)
        while True:
            session = new_session_id(created.title)
            with contextlib.suppress(RefMoved):
                self._start(session, empty, None, events, contents)
                return session

    def load(self, name: str) -> Session:
        """The session with this id, or the only one whose id begins so, read-only.

        Raises:
            StoreError: no such session, several, or one that cannot be read.
        """
        session = self.find(name)
        return Session(self._git, session, load(self._git, session))

    def writer(self, name: str, *, wait: float = 0.0, brief: bool = False) -> Writer:
        """The session open for writing, as a context manager.

        Only one process writes a session. When another one does, and does not stop within `wait`
        seconds, what is returned is a read-only view that says who writes. A command that must
        write passes `wait` and gets the session as the other one left it. A `brief` writer writes
        only while it saves something; an app that has the session open lends it that moment.
        """
        return Writer(self._git, self.find(name), wait=wait, brief=brief)

    def fork(
        self, name: str, *, actor: str, title: str | None = None, at: str | None = None
    ) -> str:
        """A new session that begins with another one's history, up to and with event `at` and what
        was done at one stroke with it.

        Raises:
            StoreError: no such session or event.
        """
        source = self.load(name)
        base = load_commit(self._git, source.commit)
        if base is None:  # it moved or broke since
            raise StoreError(f"{source.id} cannot be read", fix="try again")
        parent = source.commit
        if at is not None:
            base, parent = self._up_to(source, base, at)
        name_ = title if title is not None else f"{source.state.title} (copy)"
        last = base.events[-1].id if base.events else None
        events = stamp([Forked(source.id, parent), TitleSet(name_)], actor, last)
        while True:
            session = new_session_id(name_)
            with contextlib.suppress(RefMoved):
                self._start(session, base, parent, events, {})
                return session

    def find(self, name: str) -> str:
        """The id of the session that `name` is, or is the only beginning of."""
        if not is_session_id(name):
            raise StoreError(
                f"{name[:40]!r} cannot be a session's id", fix="cubridge sessions list"
            )
        if not self.exists():
            raise StoreError(
                f"there is no session {name}: the store {self.path} does not exist yet",
                fix="cubridge adapt makes the first session, or name a store with --store",
            )
        refs = {*self._git.logged(SESSIONS), *self._git.refs(SESSIONS)}
        ids = sorted(filter(is_session_id, (ref.removeprefix(SESSIONS) for ref in refs)))
        matches = _meant(name, ids)
        if len(matches) == 1:
            return matches[0]
        if matches:
            some = ", ".join(matches[:5]) + (", ..." if len(matches) > 5 else "")
            raise StoreError(f"{name} could be {some}", fix="type more of the id")
        beginnings = {session[: len(name)]: session for session in reversed(ids)}
        near = nearest(name, ids) or beginnings.get(nearest(name, beginnings), "")
        raise StoreError(
            f"there is no session {name}",
            fix=f"do you mean {near}? Else cubridge sessions list shows them"
            if near
            else "cubridge sessions list",
        )

    def delete(self, name: str) -> str:
        """Put a session aside, whole and with its undone decisions; its id. `restore` brings it
        back.

        Raises:
            StoreError: no such session, or somebody has it open for writing.
        """
        with self.writer(name) as writer:
            if writer.read_only is not None:
                raise StoreError(
                    f"{writer.id} was not deleted: {writer.read_only}",
                    fix="close it there, then delete it again",
                )
            self._move(writer.id, SESSIONS, DELETED, "deleted")
            return writer.id

    def restore(self, name: str) -> str:
        """Bring a deleted session back; its id.

        Raises:
            StoreError: no deleted session is called so, or begins so.
        """
        matches = _meant(name, [s.id for s in self.deleted()])
        if len(matches) != 1:
            problem = f"could be {', '.join(matches[:5])}" if matches else "is no deleted session"
            raise StoreError(f"{name!r} {problem}", fix="cubridge sessions restore lists them")
        self._move(matches[0], DELETED, SESSIONS, "restored")
        return matches[0]

    def _move(self, session: str, old: str, new: str, why: str) -> None:
        """Move a session's ref from one place to another, in one transaction."""
        tip = self._git.ref(old + session)
        if tip is None:
            raise StoreError(f"{session} is damaged and stays where it is", fix="see docs/store.md")
        try:
            updates = [Update(new + session, tip, NOTHING), Update(old + session, NOTHING, tip)]
            self._git.move_refs(updates, why)
            self._git.sync((), [new + session, old + session])
        except RefMoved:
            raise StoreError(f"{session} was changed meanwhile", fix="try again") from None
        except OSError as error:
            raise store_error(self.path, error) from None

    def pack(self) -> None:
        """Pack the store's objects into one file; nothing reachable is dropped."""
        if self.exists():
            self._git.pack()

    def _make(self) -> None:
        """Create the repository beside its place and move it there, so that it is whole or not."""
        if self.exists():
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=".cubridge-", dir=self.path.parent))
        except OSError as error:
            raise StoreError(
                f"no store can be made at {self.path} ({error.strerror})",
                fix="name a writable place with --store or $CUBRIDGE_STORE",
            ) from None
        try:
            made = folder / "store.git"
            GitDir.create(made)
            for name in ("", "locks", "damaged"):
                (made / "cubridge" / name).mkdir(mode=0o700)
            marker = {"what": WHAT, "schema_version": STORE_SCHEMA}
            with (made / MARKER).open("w") as file:
                file.write(json.dumps(marker) + "\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                made.rename(self.path)
            except OSError as error:
                # Another process made it first; `exists` says whether it is one of ours.
                if not self.exists():
                    raise StoreError(f"no store can be made at {self.path}: {error}") from None
            fd = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise StoreError(
                f"no store can be made at {self.path} ({error.strerror})",
                fix="name a writable place with --store or $CUBRIDGE_STORE",
            ) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(
        self,
        session: str,
        base: Loaded,
        parent: str | None,
        events: Sequence[Event],
        contents: Mapping[str, bytes],
    ) -> None:
        ref = SESSIONS + session
        try:
            draft = write_commit(self._git, session, base, events, contents, parent)
            self._git.sync(draft.oids, ())
            self._git.move_refs([Update(ref, draft.loaded.commit, NOTHING)], "created")
            self._git.sync((), [ref])
        except OSError as error:
            raise store_error(self.path, error) from None

    def _up_to(self, source: Session, base: Loaded, at: str) -> tuple[Loaded, str]:
        """`base` cut after the stroke of the event `at`, and the commit that it then hangs on."""
        index = next((i for i, event in enumerate(base.events) if event.id == at), None)
        if index is None:
            raise StoreError(
                f"{source.id} has no event {at!r}", fix=f"cubridge replay {source.id} lists them"
            )
        index = stroke_end(base.events, index)
        history = self._git.history(source.commit)
        parent = next((oid for oid, count in history if count <= index + 1), source.commit)
        kept = [line for line in base.log.split(b"\n") if line][: index + 1]
        log = b"".join(line + b"\n" for line in kept)
        events = decode_log(log)
        tree = base.tree.copy()
        tree.keep_only("events", set())
        return Loaded(parent, log, log, events, fold(events), tree, base.schema), parent


def _meant(name: str, ids: Sequence[str]) -> list[str]:
    """The sessions that `name` may mean: the one of this id, else those whose ids begin so."""
    return [name] if name in ids else [session for session in ids if session.startswith(name)]


def check_writable(store: Store) -> None:
    """Writes and removes a small file where the store writes, before work is done that could not
    be kept.

    Raises:
        StoreError: it cannot be written (read-only, full, not ours to write), and what to do.
    """
    place = store.path / "objects" if store.exists() else _nearest(store.path.parent)
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(_PROBE)
            file.flush()
    except OSError as error:
        told = store_error(store.path, error)
        if isinstance(told, DiskFull):
            raise told from None
        raise StoreError(
            f"the store {store.path} cannot be written ({error.strerror})", fix=writable_fix(place)
        ) from None


def _nearest(folder: Path) -> Path:
    """The innermost folder that exists: the store is made below it."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder
