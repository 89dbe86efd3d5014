"""Reading a session: its log, state and contents at the tip, or at the last good state behind it.

A damaged tip (power loss, a bad disk, a half-copied store) never hides a session: the reader walks
the reflog and the parents to the newest state that is whole, and says so in `notices`.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import StoreError
from engine.types import Artifact, Stage, sha256_of
from sessions.events import ArtifactSet, Event, TranscriptAdded, decode_log, encode
from sessions.fold import fold
from sessions.git_store import SESSIONS, STORE_SCHEMA, SUMMARY, GitDir
from sessions.pack import blob_oid
from sessions.replay import describe
from sessions.state import SessionState
from sessions.tree import Tree

LOG = "events.jsonl"
CONTENT = "content/"
_SEALED = re.compile(r"events/\d{6}\.jsonl")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A session as one commit has it. `log` is the exact bytes of all event lines."""

    commit: str
    log: bytes
    current: bytes
    events: tuple[Event, ...]
    state: SessionState
    tree: Tree
    schema: int
    notices: tuple[str, ...] = ()
    broken: bool = False


def content_path(sha256: str) -> str:
    """Where a content lies in a session's tree."""
    return f"{CONTENT}{sha256[:2]}/{sha256[2:]}"


def load(git: GitDir, session: str) -> Loaded:
    """The session at its tip, or at the last good state with `broken` set and a notice.

    Raises:
        StoreError: there is no such session, or nothing of it can be read.
    """
    ref = SESSIONS + session
    tip = git.ref(ref)
    first = None if tip is None else load_commit(git, tip)
    if first is not None:
        return first
    queue = [*([tip] if tip else []), *git.reflog(ref)]
    seen: set[str] = set()
    while queue:
        commit = queue.pop(0)
        if commit in seen:
            continue
        seen.add(commit)
        found = load_commit(git, commit) if commit != tip else None
        if found is not None:
            when = found.events[-1].time if found.events else "an unknown time"
            notice = (
                f"the latest state of {session} is damaged; this is the last good one, of {when} "
                f"({found.state.count} events). The next change makes it the latest again."
            )
            return _replace(found, notices=(notice, *found.notices), broken=True)
        parent = git.parent(commit)
        if parent is not None:
            queue.insert(0, parent)
    if not seen and tip is None and ref not in git.logged(SESSIONS):
        raise StoreError(f"there is no session {session}", fix="cubridge sessions list")
    own = f"git -C {shlex.quote(str(git.path))}"
    file = git.path / ref  # git writes no ref over a broken one
    broken = f"rm {shlex.quote(str(file))} and " if tip is None and file.exists() else ""
    raise StoreError(
        f"session {session} is damaged and no earlier state of it can be read",
        fix=f"{own} fsck --lost-found names commits that are left; {broken}{own} update-ref {ref} "
        "COMMIT makes one the latest state",
    )


def load_commit(git: GitDir, commit: str) -> Loaded | None:
    """The session as `commit` has it; None when the log or the tree is damaged."""
    listing = git.list_tree(commit)
    if listing is None or LOG not in listing:
        return None
    tree = Tree.of(listing)
    parts = [*sorted(path for path in listing if _SEALED.fullmatch(path)), LOG]
    oids = [listing[path][1] for path in parts] + [tree.get(SUMMARY) or ""]
    *contents, summary = git.read([oid for oid in oids if oid])
    logs: list[bytes] = []
    for oid, content in zip(oids, contents, strict=False):
        if content is None or blob_oid(content) != oid:
            return None
        logs.append(content)
    notices = _drop_missing(git, tree)
    log = b"".join(logs)
    events = decode_log(log)
    schema = _schema(summary)
    return Loaded(commit, log, logs[-1], events, fold(events), tree, schema, notices)


def summary_of(session: str, state: SessionState) -> bytes:
    """`session.json`: what a list of sessions shows."""
    created = state.created
    summary = {
        "schema_version": STORE_SCHEMA,
        "session": session,
        "title": state.title,
        "kernel": created.kernel if created else "",
        "spec": created.spec if created else "",
        "stage": state.furthest.value if state.furthest else None,
        "level": state.level.value,
        "accepted": state.accepted_level.value if state.acceptance else None,
        "last_step": describe(state.last) if state.last else "",
        "events": state.count,
        "created": state.started,
        "updated": state.last.time if state.last else "",
        "forked_from": state.forked_from.session if state.forked_from else None,
    }
    return (json.dumps(summary, indent=2) + "\n").encode("ascii")


class Kept:
    """Contents by their hash, so that git is asked once: those used last, up to 32 MB in all."""

    def __init__(self, limit: int = 32_000_000) -> None:
        self._limit, self._bytes = limit, 0
        self._contents: dict[str, bytes] = {}  # in the order of use
        self._lock = threading.Lock()

    def get(self, sha256: str) -> bytes | None:
        """The content, which is then the last one to go."""
        with self._lock:
            content = self._contents.pop(sha256, None)
            if content is not None:
                self._contents[sha256] = content
            return content

    def put(self, sha256: str, content: bytes) -> None:
        """Keep a content; the ones not used for longest make room."""
        with self._lock:
            self._bytes += len(content) - len(self._contents.pop(sha256, b""))
            self._contents[sha256] = content
            while self._bytes > self._limit:
                self._bytes -= len(self._contents.pop(next(iter(self._contents))))


class Session:
    """A session, read-only: its events, its state, its contents. `poll` follows a live writer."""

    def __init__(self, git: GitDir, session: str, loaded: Loaded) -> None:
        self.id = session
        self._git = git
        self._loaded = loaded
        self._damaged: set[str] = set()  # objects found damaged while reading
        self._kept = Kept()

    @property
    def commit(self) -> str:
        """The commit of the store that this is read from."""
        return self._loaded.commit

    @property
    def events(self) -> tuple[Event, ...]:
        """The whole history."""
        return self._loaded.events

    @property
    def state(self) -> SessionState:
        """What the history adds up to."""
        return self._loaded.state

    @property
    def notices(self) -> tuple[str, ...]:
        """What the person must know: a recovery, damaged contents. Empty when all is well."""
        return self._loaded.notices

    def contents(self) -> dict[str, str]:
        """The hash of every content that the history names or the session keeps, with a name for
        it: `lowered/kernel.cu`, `package.tar`, or the beginning of the hash."""
        kept = (p.split("/")[1:] for p in self._loaded.tree.blobs() if p.startswith(CONTENT))
        names = {sha256: f"content {sha256[:12]}" for sha256 in map("".join, kept)}
        for event in self.events:
            match event.body:
                case ArtifactSet(stage, name, str(sha256)):
                    names[sha256] = f"{stage.value}/{name}"
                case TranscriptAdded(name=name, sha256=sha256):
                    names[sha256] = name
        return names

    def damaged(self) -> dict[str, str]:
        """Of `contents`, those that the store has lost or changed; all are read at once."""
        named = self.contents()
        places = {sha256: self._loaded.tree.get(content_path(sha256)) for sha256 in named}
        kept = {sha256: oid for sha256, oid in places.items() if oid}
        found = dict(zip(kept, self._git.read([*kept.values()]), strict=True))
        whole = {sha for sha, data in found.items() if data is not None and sha256_of(data) == sha}
        return {sha256: name for sha256, name in named.items() if sha256 not in whole}

    def content(self, sha256: str) -> bytes:
        """The content with this hash, checked against it.

        Raises:
            StoreError: the session never had it, or it is damaged.
        """
        kept = self._kept.get(sha256)
        if kept is not None:
            return kept
        oid = self._loaded.tree.get(content_path(sha256))
        content = self._git.read([oid])[0] if oid else None
        if content is not None and sha256_of(content) == sha256:
            self._kept.put(sha256, content)
            return content
        if oid is not None:
            self._damaged.add(oid)
        elif not self._mentions(sha256):
            raise StoreError(f"content {sha256[:12]} is not in this session ({self.id})")
        raise StoreError(
            f"content {sha256[:12]} of {self.id} is damaged or missing",
            fix="run the step that made it again, or restore the store from a copy",
        )

    def artifact(self, stage: Stage, name: str | None = None) -> Artifact:
        """A stage's current artifact; its only one when no name is given.

        Raises:
            StoreError: the stage has no such artifact, or it is damaged.
        """
        artifacts = self.state.stage(stage).artifacts
        if name is None and len(artifacts) == 1:
            name = next(iter(artifacts))
        if name is None or name not in artifacts:
            have = ", ".join(sorted(artifacts)) or "none"
            raise StoreError(f"{self.id} has no such {stage} artifact (it has: {have})")
        return Artifact.of(stage, name, self.content(artifacts[name]))

    def poll(self) -> tuple[Event, ...]:
        """New events since the last look; cheap when nothing moved."""
        if self._git.ref(SESSIONS + self.id) == self._loaded.commit:
            return ()
        before = self._loaded
        after = load(self._git, self.id)
        if after.broken and after.commit == before.commit:
            self._loaded = after
            return ()
        self._loaded = after
        old = len(before.events) if after.log.startswith(before.log) else 0
        return after.events[old:]

    def _mentions(self, sha256: str) -> bool:
        return any(sha256.encode() in encode(event) for event in self.events)


def _drop_missing(git: GitDir, tree: Tree) -> tuple[str, ...]:
    """Take files whose objects are gone out of the tree (the log still names them)."""
    blobs = tree.blobs()
    missing = git.missing(sorted(set(blobs.values())))
    lost = sorted(path for path, oid in blobs.items() if oid in missing)
    for path in lost:
        tree.remove(path)
    return tuple(f"damaged: {path} cannot be read" for path in lost)


def _schema(summary: bytes | None) -> int:
    try:
        found = json.loads(summary or b"")
    except ValueError:
        return STORE_SCHEMA
    version = found.get("schema_version") if isinstance(found, Mapping) else None
    return version if isinstance(version, int) else STORE_SCHEMA


def _replace(loaded: Loaded, *, notices: tuple[str, ...], broken: bool) -> Loaded:
    return Loaded(
        loaded.commit,
        loaded.log,
        loaded.current,
        loaded.events,
        loaded.state,
        loaded.tree,
        loaded.schema,
        notices,
        broken,
    )
