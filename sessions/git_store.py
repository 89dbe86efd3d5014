"""Object, tree, commit and ref plumbing on our bare repository.

Every command has an explicit `--git-dir`, no user or system configuration, no hooks,
`core.fsync=all`, and object names or our own checked ref names as its only arguments. A save is two
of them: one stores all its objects, one moves its refs, each from the value it is known to have.

Measured facts behind the shape: GitPython's own writers skip fsync, `index.commit` runs hooks, and
a `Repo` keeps two children and six descriptors open; one-shot plumbing does none of that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import StoreError
from sessions.git_run import GitKilled, run_git, said_by_git
from sessions.pack import Object, pack_of

SESSIONS = "refs/cubridge/sessions/"
DELETED = "refs/cubridge/deleted/"
UNDONE = "refs/cubridge/undone/"
NOTHING = "0" * 40
STORE_SCHEMA = 1
SUMMARY = "session.json"  # of each session's commit: what a list of sessions says of it
WRITER = "CuBridge", "cubridge@localhost"  # of every commit and entry of a reflog

_OID = re.compile(r"[0-9a-f]{40}")
_CONFIG = {
    "core.fsync": "all",
    "core.fsyncMethod": "fsync",
    "core.hooksPath": "/dev/null",
    "core.logAllRefUpdates": "always",
    "core.autocrlf": "false",
    "core.looseCompression": "1",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_COMMITTER_NAME": WRITER[0],
    "GIT_COMMITTER_EMAIL": WRITER[1],
}


class RefMoved(Exception):
    """Someone else moved the ref since its old value was read."""


@dataclass(frozen=True, slots=True)
class Update:
    """One ref's move; `old` is the value it must have now (`NOTHING`: it must not exist).

    `NOTHING` as the new value deletes the ref, with its log.
    """

    ref: str
    new: str
    old: str


@dataclass(frozen=True, slots=True)
class GitDir:
    """A bare repository. Holds no process and no descriptor between calls."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> GitDir:
        """An empty bare repository at `path`, readable by its owner only."""
        path.mkdir(mode=0o700)
        git = cls(path)
        git._run("init", "--quiet", "--bare", "--initial-branch=none", "--object-format=sha1")
        for name, value in _CONFIG.items():
            if name != "core.hooksPath":
                git._run("config", "--local", name, value)
        path.chmod(0o700)
        return git

    def write(self, objects: Sequence[Object]) -> None:
        """Store objects, all in one git call; git checks each against the pack's sum.

        Raises:
            StoreError: they could not be stored.
        """
        if not self._here():
            raise self._gone()
        self._run("unpack-objects", "-q", stdin=pack_of(objects))

    def move_refs(self, updates: Sequence[Update], why: str) -> None:
        """Move all refs or none, each from exactly its old value, with a reflog entry each.

        Raises:
            RefMoved: a ref no longer has its old value.
            StoreError: the refs could not be written.
        """
        lines = [f"update {u.ref} {u.new} {u.old}\n" for u in updates]
        try:
            self._run(
                "update-ref", "--create-reflog", "-m", why, "--stdin",
                stdin="".join(["start\n", *lines, "prepare\n", "commit\n"]).encode(),
            )  # fmt: skip
        except StoreError:
            for update in updates:
                if (self.ref(update.ref) or NOTHING) != update.old:
                    raise RefMoved(update.ref) from None
            raise

    def sync(self, oids: Iterable[str], refs: Iterable[str]) -> None:
        """Make the folders' entries durable: git syncs files, but not the folders they are in."""
        objects = self.path / "objects"
        folders = {objects / oid[:2] for oid in oids}
        folders |= {objects} if folders else set()
        for ref in refs:
            folders |= {(self.path / ref).parent, (self.path / "logs" / ref)}
        for path in folders:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                fd = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)

    def ref(self, ref: str) -> str | None:
        """The ref's value, None when it does not exist or is unreadable.

        A loose ref is read directly (this is called twice a second by whoever follows a session);
        git is asked when it is packed.
        """
        with contextlib.suppress(OSError):
            text = (self.path / ref).read_text("ascii", "replace").strip()
            return text if _OID.fullmatch(text) else None
        return self.refs(ref).get(ref)

    def refs(self, prefix: str) -> dict[str, str]:
        """All refs under a prefix, with their values."""
        out = self._run("for-each-ref", "--format=%(objectname) %(refname)", prefix)
        return {ref: oid for oid, ref in (line.split(" ", 1) for line in out.decode().splitlines())}

    def reflog(self, ref: str) -> list[str]:
        """The values that the ref had, newest first, as far as its log is readable."""
        try:
            lines = (self.path / "logs" / ref).read_bytes().splitlines()
        except OSError:
            return []
        found = (line[41:81].decode("ascii", "replace") for line in reversed(lines))
        return [oid for oid in dict.fromkeys(found) if _OID.fullmatch(oid) and oid != NOTHING]

    def logged(self, prefix: str) -> list[str]:
        """Refs under `prefix` that have a file or a log, broken ones included."""
        found: set[str] = set()
        for root in (self.path / prefix, self.path / "logs" / prefix):
            with contextlib.suppress(OSError):
                found |= {
                    entry.name
                    for entry in os.scandir(root)
                    if entry.is_file() and not entry.name.endswith(".lock")
                }
        return [prefix + name for name in sorted(found)]

    def read(self, names: Sequence[str]) -> list[bytes | None]:
        """The contents of objects (`oid`, or `oid:path`); None for what is missing or damaged."""
        if not names:
            return []
        contents: list[bytes | None] = []
        while len(contents) < len(names):
            rest = names[len(contents) :]
            out = self._run("cat-file", "--batch", stdin=_lines(rest), check=False)
            found = _parse_batch(out, rest)
            contents += found
            if len(found) < len(rest):
                contents.append(None)  # git gave up at a damaged object: go on behind it
        return contents

    def clear_damaged(self, oids: Iterable[str]) -> None:
        """Move damaged object files of these names away, so that they can be written again.

        Git takes an object whose file exists for stored, even when the file is empty.
        """
        here = [oid for oid in oids if self._object(oid).exists()]
        for oid, content in zip(here, self.read(here), strict=True):
            kind = "blob" if content is None else self._kind(oid)
            if content is None or Object(kind, content).oid != oid:
                kept = self.path / "cubridge" / "damaged"
                kept.mkdir(mode=0o700, exist_ok=True)
                self._object(oid).rename(kept / oid)

    def missing(self, oids: Sequence[str]) -> set[str]:
        """Which of these objects are not there, or are empty files."""
        if not oids:
            return set()
        out = self._run("cat-file", "--batch-check", stdin=_lines(oids), check=False)
        lines = out.decode("ascii", "replace").splitlines()
        here = {line.split(" ", 1)[0] for line in lines if not line.endswith(" missing")}
        return set(oids) - here

    def list_tree(self, commit: str) -> dict[str, tuple[str, str]] | None:
        """Every path of a commit with its type and object name; None when it is damaged."""
        try:
            out = self._run("ls-tree", "-r", "-t", "-z", commit)
        except GitKilled:
            raise
        except StoreError:
            return None
        entries: dict[str, tuple[str, str]] = {}
        for line in out.decode("utf-8", "surrogateescape").split("\0"):
            if line:
                head, path = line.split("\t", 1)
                _mode, kind, oid = head.split(" ")
                entries[path] = (kind, oid)
        return entries

    def history(self, commit: str) -> list[tuple[str, int]]:
        """The commits behind `commit`, newest first, with the length of each one's event log."""
        trailer = "%(trailers:key=CuBridge-Events,valueonly,separator=)"
        out = self._run("log", f"--format=%H %x09{trailer}", commit, "--")
        found = []
        for line in out.decode("ascii", "replace").splitlines():
            oid, _, count = line.partition("\t")
            found.append((oid.strip(), int(count) if count.strip().isdigit() else 0))
        return found

    def parent(self, commit: str) -> str | None:
        """The first parent of a commit that can be read."""
        content = self.read([commit])[0]
        match = re.search(rb"^parent ([0-9a-f]{40})$", content or b"", re.MULTILINE)
        return match[1].decode() if match else None

    def pack(self) -> None:
        """Pack loose objects; nothing that a ref or a reflog reaches is dropped."""
        self._run("repack", "-q", "-a", "-d", "-l")

    def lock_file(self, ref: str) -> Path:
        """Where git keeps its own lock while it moves the ref."""
        return self.path / f"{ref}.lock"

    def _here(self) -> bool:
        return (self.path / "HEAD").exists()

    def _gone(self) -> GitKilled:
        return GitKilled(f"the store {self.path} is gone", fix="restore the folder")

    def _object(self, oid: str) -> Path:
        return self.path / "objects" / oid[:2] / oid[2:]

    def _kind(self, oid: str) -> str:
        return self._run("cat-file", "-t", oid).decode("ascii").strip()

    def _run(
        self,
        *args: str,
        stdin: bytes = b"",
        check: bool = True,
    ) -> bytes:
        options = [part for name, value in _CONFIG.items() for part in ("-c", f"{name}={value}")]
        command = [f"--git-dir={self.path}", *options, *args]
        try:
            done = run_git(self.path, command, stdin, _ENVIRONMENT)
        except GitKilled:
            if not self._here():
                raise self._gone() from None
            raise
        if done.code == 0 or (done.code > 0 and not check):
            return done.out
        error = _error(self.path, args[0], done.code, done.err)
        if done.code > 0:
            raise error
        raise GitKilled(error.message, fix=error.fix) from error


def _lines(names: Sequence[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def _parse_batch(out: bytes, names: Sequence[str]) -> list[bytes | None]:
    contents: list[bytes | None] = []
    at = 0
    while len(contents) < len(names):
        end = out.find(b"\n", at)
        if end < 0:
            break
        head = out[at:end].split(b" ")
        if len(head) == 3 and head[2].isdigit() and len(head[0]) == 40:
            size = int(head[2])
            content = out[end + 1 : end + 1 + size]
            if len(content) < size:
                break
            contents.append(content)
            at = end + 1 + size + 1
        else:
            contents.append(None)
            at = end + 1
    return contents


class DiskFull(StoreError):
    """The disk of the store has no room; nothing that was saved before is touched."""


def store_error(path: Path, error: OSError) -> StoreError:
    """An operating system's refusal, in words and with what to do."""
    if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return DiskFull("the store's disk is full", fix=f"free space for {path}")
    said = error.strerror or str(error)
    return StoreError(f"the store cannot be written ({said})", fix=writable_fix(path))


def _error(path: Path, command: str, code: int, err: str) -> StoreError:
    """What went wrong, in words, from git's own message."""
    if code == -signal.SIGXFSZ or any(words in err for words in _FULL):
        return store_error(path, OSError(errno.ENOSPC, ""))
    said = said_by_git(err) or "no message"
    if any(words in err for words in _NOT_WRITABLE):
        return StoreError(f"the store cannot be written: {said}", fix=writable_fix(path))
    if ".lock': File exists" in err:
        lock = err.split("'")[1] if err.count("'") > 1 else "the lock file"
        return StoreError(
            f"another git process is writing, or was killed while it wrote: {said}",
            fix=f"if no git is running on the store, remove {lock}",
        )
    return StoreError(f"git {command} failed ({code}): {said}", fix=f"git -C {path} fsck")


_FULL = "No space left on device", "File too large", "Disk quota exceeded"
_NOT_WRITABLE = "Read-only file system", "ermission denied", "insufficient permission"


def writable_fix(path: Path) -> str:
    """The sentence for a store that cannot be written."""
    try:
        mode = stat.filemode(path.stat().st_mode)
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return (
                f"{path} is on a read-only file system: name another place in $CUBRIDGE_STORE, or "
                "mount it for writing"
            )
    except OSError:
        mode = "unreadable"
    return f"make {path} writable ({mode} now), or name another place in $CUBRIDGE_STORE"
