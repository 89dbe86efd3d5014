"""Writing a session: append events, acknowledged once the ref has moved and is on the disk.

When saving fails, the events wait in memory (`pending`), the state includes them, and `retry`
saves them; what was acknowledged is never touched. When someone else moved the ref (a store on a
file system without locks, a person with plain git), the writer reads again and retries.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.errors import StoreError
from engine.types import VerdictKind
from sessions.commit import Blob, by_sha256, write_commit
from sessions.events import (
    ArtifactSet,
    Body,
    Event,
    Note,
    ProposalMade,
    TranscriptAdded,
    Undone,
    Unknown,
    VerdictGiven,
    encode_log,
    now,
    stamp,
)
from sessions.fold import fold, problem_with
from sessions.git_store import (
    NOTHING,
    SESSIONS,
    STORE_SCHEMA,
    UNDONE,
    GitDir,
    RefMoved,
    Update,
    store_error,
)
from sessions.lease import Lease
from sessions.session import (
    Loaded,
    Session,
    content_path,
    load,
)
from sessions.state import SessionState

_ATTEMPTS = 8
_STALE_LOCK_SECONDS = 2.0


class NotSaved(StoreError):
    """Saving failed; the events wait in the writer's `pending`, and `retry` saves them."""


class Writer(Session):
    """A session open for writing, as a context manager that holds the writer's lease.

    Without the lease it is a read-only view: `read_only` says why, `holder` who writes. Once that
    one is gone `take_over` makes it the writer. Who keeps a session open gives the lease to a brief
    writer that waits for it by `hand_over`, while it has nothing to write, and takes it back so.
    """

    def __init__(
        self, git: GitDir, session: str, *, wait: float = 0.0, brief: bool = False
    ) -> None:
        """Open the session; try for up to `wait` seconds to become its writer.

        A `brief` one waits so, and has the lease, only while it saves something: for work that
        takes long beside an app that has the session open, which lends it the lease.
        """
        self._brief = wait if brief else None
        self.holder = ""
        self.read_only: str | None = None
        self._lease = Lease(git.path / "cubridge" / "locks" / f"{session}.lock")
        self._lock = threading.RLock()
        self._pending: tuple[Event, ...] = ()
        self._contents: dict[str, bytes] = {}
        self._removed_lock: Path | None = None
        try:
            if not brief:
                self._acquire(wait)
            super().__init__(git, session, load(git, session))
        except BaseException:
            self._lease.release()
            raise
        self._set(self._loaded, ())
        if self._loaded.schema > STORE_SCHEMA:
            self._only_read()

    @property
    def state(self) -> SessionState:
        """What the history adds up to, events that are still waiting to be saved included."""
        loaded, pending = self._view
        return fold(pending, loaded.state)

    @property
    def events(self) -> tuple[Event, ...]:
        """The whole history, events that are still waiting to be saved included."""
        loaded, pending = self._view
        return loaded.events + pending

    @property
    def pending(self) -> tuple[Event, ...]:
        """Events that could not be saved yet; empty when all is on the disk."""
        return self._view[1]

    @property
    def notices(self) -> tuple[str, ...]:
        """What the person must know."""
        removed = self._removed_lock
        extra = (f"removed {removed}, left by a git that was killed",) if removed else ()
        return self._loaded.notices + extra

    def append(
        self, bodies: Sequence[Body], blobs: Iterable[Blob] = (), *, actor: str
    ) -> tuple[Event, ...]:
        """Save what just happened, as one commit; returns once it is on the disk.

        `blobs` are the contents that the events name by hash and the session does not have yet.

        Raises:
            NotSaved: it could not be saved; the events are in `pending`.
            StoreError: the session is read-only, or an event makes no sense where it stands
                (then nothing was changed).
        """
        with self._lock, self._leased(bodies):
            state = self.state
            last = self.events[-1].id if self.events else None
            events = stamp(bodies, actor, last)
            contents = by_sha256(blobs)
            for event in events:
                problem = problem_with(state, event) or self._lacks(event, contents)
                if problem is not None or isinstance(event.body, Unknown):
                    raise StoreError(f"{event.type} was not added to {self.id}: {problem}")
                state = fold((event,), state)
            encode_log(events)  # refuses what JSON cannot hold before anything changes
            self._contents |= contents
            self._set(self._loaded, self._pending + events)
            self._save()
            return events

    def retry(self) -> None:
        """Save what is pending, if anything.

        Raises:
            NotSaved: it still cannot be saved.
        """
        with self._lock:
            if self._pending:
                with self._leased(()):
                    self._save()

    def content(self, sha256: str) -> bytes:
        """The content with this hash, also of an event that is still pending."""
        waiting = self._contents.get(sha256)
        return super().content(sha256) if waiting is None else waiting

    def poll(self) -> tuple[Event, ...]:
        """New events of others: only a read-only view follows, a writer makes its own."""
        if self.read_only is None:
            return ()
        found = super().poll()
        self._set(self._loaded, self._pending)
        return found

    def take_over(self) -> bool:
        """Become the writer where the one that was is gone; whether this did.

        A view that is read-only for another reason stays so.

        Raises:
            StoreError: the session cannot be read any more; nothing is taken over.
        """
        with self._lock:
            if self.read_only is None or not self.holder or self._lease.awaited:
                return False
            before, self.read_only, self.holder = (self.read_only, self.holder), None, ""
            try:
                self._acquire(0.0)
                if self.read_only is None:  # what the other one saved last
                    self._set(load(self._git, self.id), ())
            except BaseException:
                self._lease.release()
                self.read_only, self.holder = before
                raise
            if self._loaded.schema > STORE_SCHEMA:
                self._only_read()
            return self.read_only is None

    @property
    def awaited(self) -> bool:
        """Whether this is the writer and a brief one of another process waits to be it."""
        return bool(self.id) and self.read_only is None and self._lease.awaited

    def hand_over(self) -> bool:
        """Let a process write that waits for it, and follow it read-only; whether this did.

        One that has events to save keeps the lease.
        """
        with self._lock:
            if self._pending or not self.awaited:
                return False
            self._lease.lend()
            self.holder = "another process"
            self.read_only = f"{self.holder} writes it for a moment"
            return True

    def close(self) -> None:
        """Give the lease back; pending events are tried once more first.

        Raises:
            NotSaved: they still cannot be saved, and are lost with this writer.
        """
        try:
            if self.read_only is None:
                self.retry()
        finally:
            self._lease.release()
            self.read_only = self.read_only or "it was closed"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # An error on its way out is the one to see, not that its events could not be saved.
        with contextlib.suppress(*((NotSaved,) if kind is not None else ())):
            self.close()

    def _set(self, loaded: Loaded, pending: tuple[Event, ...]) -> None:
        """Change both at once: another thread that reads the state sees before or after."""
        self._view = (loaded, pending)
        self._loaded, self._pending = loaded, pending

    def _acquire(self, wait: float) -> None:
        try:
            if self._lease.acquire(now(), brief=self._brief is not None):
                return
            waiting: contextlib.AbstractContextManager[Callable[[], None]]
            waiting = contextlib.nullcontext(lambda: None)
            if self._brief is not None:
                waiting = self._lease.waiting()
            with waiting as show:
                deadline = time.monotonic() + wait
                while time.monotonic() < deadline:
                    show()
                    time.sleep(0.05)
                    if self._lease.acquire(now(), brief=self._brief is not None):
                        return
        except OSError as error:
            self.read_only = f"the store cannot be locked ({error.strerror})"
            return
        self.holder = self._lease.holder()
        self.read_only = f"{self.holder} writes it"

    @contextlib.contextmanager
    def _leased(self, bodies: Sequence[Body]) -> Iterator[None]:
        """The lease while `bodies` are saved."""
        if self._brief is not None:
            self._acquire(self._brief)
        try:
            if self.read_only is not None:
                raise StoreError(
                    f"{self.id} is open read-only: {self.read_only}",
                    fix="close the other one, or fork the session",
                )
            if self._brief is not None:
                self._catch_up(bodies)
            yield
        finally:
            if self._brief is not None:
                self._lease.release()
                if self.holder:  # another's now, which the next time need not be
                    self.read_only, self.holder = None, ""

    def _catch_up(self, bodies: Sequence[Body]) -> None:
        """Take in what others saved since this was read.

        A verdict names what it is about. An artifact and a proposal are about what stood when
        they were made, so they are refused where that may have changed; so is a verdict on a gate
        that a person may have overridden since.
        """
        before = self._loaded.commit
        if self._git.ref(SESSIONS + self.id) == before:
            return
        self._reread()
        gates = [body.verdict.gate for body in bodies if isinstance(body, VerdictGiven)]
        about = any(isinstance(body, ArtifactSet | ProposalMade) for body in bodies) or any(
            v.kind is VerdictKind.OVERRIDDEN for v in self._loaded.state.verdicts if v.gate in gates
        )
        if about and self._loaded.commit != before:
            raise StoreError(
                f"{self.id} was changed by someone else meanwhile",
                fix="look at the new state and do the same again",
            )

    def _only_read(self) -> None:
        self._lease.release()
        self.read_only = "the session was written by a newer version of CuBridge"
        self.holder = ""

    def _lacks(self, event: Event, contents: Mapping[str, bytes]) -> str | None:
        match event.body:
            case ArtifactSet(sha256=str(sha256)) | TranscriptAdded(sha256=sha256):
                here = sha256 in contents or sha256 in self._contents
                if not here and self._loaded.tree.get(content_path(sha256)) is None:
                    return f"no content with the hash {sha256[:12]} was given"
        return None

    def _save(self) -> None:
        try:
            for attempt in range(_ATTEMPTS):
                with contextlib.suppress(RefMoved):
                    self._save_once()
                    return
                time.sleep(random.uniform(0, 0.02 * (attempt + 1)))
                self._reread()
            raise StoreError("others keep changing the session")
        except (StoreError, OSError) as error:
            told = error if isinstance(error, StoreError) else store_error(self._git.path, error)
            count = len(self._pending)
            raise NotSaved(
                f"{count} event{'s' * (count != 1)} of {self.id} not saved: {told.message}",
                fix=told.fix,
            ) from error

    def _save_once(self) -> None:
        if not self._pending:
            return
        ref = SESSIONS + self.id
        base, events = self._loaded, list(self._pending)
        if base.broken:
            last = base.events[-1].id if base.events else None
            events = [*stamp([Note(base.notices[0])], "store", last), *events]
        draft = write_commit(
            self._git,
            self.id,
            base,
            events,
            self._contents,
            base.commit,
            frozenset(self._damaged),
        )
        undone = [f"{UNDONE}{self.id}/{e.id}" for e in events if isinstance(e.body, Undone)]
        updates = [Update(ref, draft.loaded.commit, self._old_value(ref))]
        updates += [Update(name, base.commit, NOTHING) for name in undone]
        self._git.sync(draft.oids, ())
        self._remove_stale_lock(ref)
        self._git.move_refs(updates, f"{len(events)} events")
        self._git.sync((), [ref, *undone])
        self._set(draft.loaded, ())
        for sha256, content in self._contents.items():
            self._kept.put(sha256, content)
        self._contents.clear()

    def _old_value(self, ref: str) -> str:
        """What the ref must hold now: our commit, or what recovery found in its place."""
        if not self._loaded.broken:
            return self._loaded.commit
        if not load(self._git, self.id).broken:
            raise RefMoved(ref)  # someone else has repaired it meanwhile
        path = self._git.path / ref
        kept = self._git.path / "cubridge" / "damaged"
        kept.mkdir(mode=0o700, exist_ok=True)
        if path.exists():
            (kept / f"{self.id}-{time.time_ns()}").write_bytes(path.read_bytes())
            path.unlink()  # git itself refuses to replace what is not an object name
        return self._git.ref(ref) or NOTHING

    def _reread(self) -> None:
        """Take in what others saved, and check that what is pending still makes sense."""
        loaded = load(self._git, self.id)
        saved = {event.id for event in loaded.events}
        self._set(loaded, tuple(event for event in self._pending if event.id not in saved))
        state = loaded.state
        for event in self._pending:
            problem = problem_with(state, event)
            if problem is not None:
                self._set(loaded, ())
                self._contents.clear()
                raise StoreError(
                    f"{self.id} was changed by someone else meanwhile, and {event.type} no longer "
                    f"fits: {problem}",
                    fix="look at the new state and decide again",
                )
            state = fold((event,), state)

    def _remove_stale_lock(self, ref: str) -> None:
        """Wait for git's own lock on the ref, and remove one that a killed git left behind.

        We hold the lease, so no writer of ours is behind that lock, and git itself holds it for
        milliseconds: one that stays the same is left over. Its removal is told in `notices`.
        """
        lock = self._git.lock_file(ref)
        with contextlib.suppress(FileNotFoundError):
            seen = lock.stat()
            deadline = time.monotonic() + _STALE_LOCK_SECONDS
            while time.monotonic() < deadline:
                time.sleep(0.05)
                now_ = lock.stat()
                if (now_.st_ino, now_.st_mtime_ns) != (seen.st_ino, seen.st_mtime_ns):
                    return
            lock.unlink()
            self._removed_lock = lock
