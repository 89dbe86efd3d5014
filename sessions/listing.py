"""A store at a place, and the list of its sessions, without what a session consists of.

The app's first frame shows this list, and would wait for the events and all that reads them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from engine.errors import InputError, StoreError
from engine.files import read_file
from engine.types import Level
from engine.types.plain import JsonObject
from sessions.git_store import DELETED, SESSIONS, STORE_SCHEMA, SUMMARY, GitDir, writable_fix
from sessions.ids import is_session_id

MARKER = Path("cubridge") / "store.json"
WHAT = "CuBridge session store"


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One line of the list of sessions. Texts are data: show them through `replay.plain`.

    `damaged` is true when the latest state cannot be read and this is an earlier one.
    """

    id: str
    title: str
    kernel: str
    spec: str
    level: Level
    accepted: Level | None
    stage: str
    last_step: str
    events: int
    created: str
    updated: str
    damaged: bool = False


def default_path(environment: Mapping[str, str] | None = None) -> Path:
    """$CUBRIDGE_STORE, else $XDG_DATA_HOME/cubridge/store.git, else below ~/.local/share."""
    env = os.environ if environment is None else environment
    named = env.get("CUBRIDGE_STORE")
    if named:
        return Path(named).expanduser()
    data = env.get("XDG_DATA_HOME", "")
    # The XDG rules: a relative path there is to be ignored.
    base = Path(data) if data.startswith("/") else Path.home() / ".local" / "share"
    return base / "cubridge" / "store.git"


class Listing:
    """A store as the list of its sessions. Make one with `Listing.open`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._git = GitDir(path)

    @property
    def git(self) -> GitDir:
        """The repository, for those who write sessions."""
        return self._git

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None) -> Self:
        """The store at `path`, or at the default place. It need not exist yet.

        Raises:
            StoreError: what is there is not our store, or cannot be read.
        """
        place = Path(path).expanduser() if path is not None else default_path()
        store = cls(Path(os.path.abspath(place)))
        store.exists()
        return store

    def exists(self) -> bool:
        """Whether the store has been made.

        Raises:
            StoreError: something else is in its place.
        """
        other = "name another place with --store or $CUBRIDGE_STORE; nothing there was changed"
        try:
            entries = {entry.name for entry in os.scandir(self.path)}
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            raise StoreError(f"{self.path} is not a folder, so not a store", fix=other) from None
        except OSError as error:
            raise StoreError(
                f"the store {self.path} cannot be read ({error.strerror})",
                fix=writable_fix(self.path),
            ) from None
        if not entries:
            return False
        marker = self._marker()
        if marker is None or not {"objects", "refs", "HEAD"} <= entries:
            what = "a git repository" if {".git", "HEAD"} & entries else "a folder with other files"
            raise StoreError(f"{self.path} is {what}, not a CuBridge store", fix=other)
        version = marker.get("schema_version")
        if not isinstance(version, int) or version > STORE_SCHEMA:
            raise StoreError(
                f"the store {self.path} was written by a newer version of CuBridge",
                fix="install that version, or name another place with --store",
            )
        return True

    def sessions(self) -> list[SessionSummary]:
        """All sessions, the one changed last first. Two git calls, however many there are."""
        found, ids = self._summaries(SESSIONS)
        logged = [ref.removeprefix(SESSIONS) for ref in self._git.logged(SESSIONS)]
        unread = {*ids, *filter(is_session_id, logged)} - {s.id for s in found}
        return _latest([*found, *map(self._damaged, sorted(unread))])

    def deleted(self) -> list[SessionSummary]:
        """The sessions that `delete` put aside and `restore` brings back."""
        return _latest(self._summaries(DELETED)[0])

    def _summaries(self, place: str) -> tuple[list[SessionSummary], list[str]]:
        """What the sessions whose refs are at `place` say of themselves, and all their ids."""
        if not self.exists():
            return [], []
        refs = {r.removeprefix(place): oid for r, oid in self._git.refs(place).items()}
        ids = list(filter(is_session_id, refs))
        contents = self._git.read([f"{refs[session]}:{SUMMARY}" for session in ids])
        found = [_summary(session, told) for session, told in zip(ids, contents, strict=True)]
        return [summary for summary in found if summary is not None], ids

    def _damaged(self, session: str) -> SessionSummary:
        from sessions.session import load, summary_of

        try:
            loaded = load(self._git, session)
        except StoreError as error:
            return SessionSummary(
                session, "", "", "", Level.NONE, None, "none", error.message, 0, "", "", True
            )
        summary = _summary(session, summary_of(session, loaded.state), damaged=True)
        assert summary is not None
        return summary

    def _marker(self) -> JsonObject | None:
        try:
            found = json.loads(read_file(self.path / MARKER, ""))
        except (InputError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("what") == WHAT else None


def _latest(summaries: Iterable[SessionSummary]) -> list[SessionSummary]:
    """Those changed last first."""
    return sorted(summaries, key=lambda s: (s.updated, s.id), reverse=True)


def _summary(session: str, content: bytes | None, damaged: bool = False) -> SessionSummary | None:
    if content is None:
        return None
    try:
        obj = json.loads(content)
        return SessionSummary(
            id=session,
            title=str(obj["title"]),
            kernel=str(obj["kernel"]),
            spec=str(obj["spec"]),
            level=Level(obj["level"]),
            accepted=Level(obj["accepted"]) if obj["accepted"] else None,
            stage=str(obj["stage"] or "none"),
            last_step=str(obj["last_step"]),
            events=int(obj["events"]),
            created=str(obj["created"]),
            updated=str(obj["updated"]),
            damaged=damaged,
        )
    except (ValueError, KeyError, TypeError):
        return None
