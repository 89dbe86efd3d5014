"""A session that enters the store with the first thing that happens to it.

Choosing a kernel and a spec to look at is no event: who only looks leaves nothing behind.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from sessions.commit import Blob, by_sha256
from sessions.events import Body, Event, SessionCreated, stamp
from sessions.fold import fold
from sessions.git_store import STORE_SCHEMA
from sessions.session import Kept, Loaded
from sessions.store import Store
from sessions.tree import Tree
from sessions.writer import Writer


class NewSession(Writer):
    """A writer whose `id` is empty until the first `append`, which makes the session."""

    def __init__(
        self,
        store: Store,
        created: SessionCreated,
        more: Sequence[Body],
        blobs: Sequence[Blob],
        actor: str,
    ) -> None:
        # Not `super().__init__`: that reads the session, and there is none yet.
        self._store, self._beginning = store, (created, tuple(more), tuple(blobs), actor)
        self.id = ""
        self._brief = None
        self.holder = ""
        self.read_only = None
        self._damaged = set()
        self._kept = Kept()
        self._removed_lock = None
        self._lock = threading.RLock()
        self._contents = by_sha256(blobs)
        events = stamp([created, *more], actor, None)
        self._set(Loaded("", b"", b"", events, fold(events), Tree(), STORE_SCHEMA), ())

    def append(
        self, bodies: Sequence[Body], blobs: Iterable[Blob] = (), *, actor: str
    ) -> tuple[Event, ...]:
        """As `Writer.append`; the first one puts the session into the store before."""
        with self._lock:
            if not self.id:
                created, more, contents, by = self._beginning
                session = self._store.create(created, more, contents, actor=by)
                lock = self._lock
                super().__init__(self._store.git, session)
                self._lock = lock
            return super().append(bodies, blobs, actor=actor)

    def poll(self) -> tuple[Event, ...]:
        return super().poll() if self.id else ()

    def retry(self) -> None:
        if self.id:
            super().retry()

    def close(self) -> None:
        if self.id:
            super().close()
        else:
            self.read_only = "it was closed"
