"""The writer's lease: a kernel lock on one file per session, released when its holder dies.

The lock decides; what the file says (who holds it, since when) is only a hint for the reader, so
a file left behind by a dead process, or one that names a reused pid, blocks nobody. Whoever waits
for it holds a lock on a second file meanwhile, by which the holder sees that it is awaited. A
holder that lends it keeps a lock on a third file until it has it back, so that nobody else stays
in its place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.errors import InputError
from engine.files import read_file
from engine.types.plain import JsonObject


class Lease:
    """An exclusive lock on `path`, or the knowledge of who has it."""

    __slots__ = ("_fd", "_lender", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._lender: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object has the lock."""
        return self._fd is not None

    def acquire(self, since: str, *, brief: bool = False) -> bool:
        """Try once; False when another process has it, or has lent it and this is not for a moment.

        Raises:
            OSError: the file cannot be opened for writing (a read-only store), or the file system
                has no locks.
        """
        if self._fd is not None:
            return True
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        fd = _made(self.path)
        try:
            got = _lock(fd)
        except OSError:
            os.close(fd)
            raise
        # Asked with the lock in hand: its holder may have lent it until then.
        if not got or (not brief and self._lender is None and _is_locked(self._lent)):
            os.close(fd)
            return False
        self._fd = fd
        self._close_lender()
        hint = {"pid": os.getpid(), "host": platform.node(), "since": since}
        with contextlib.suppress(OSError):  # the hint is a courtesy; a full disk may refuse it
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(hint).encode(), 0)
        return True

    @contextlib.contextmanager
    def waiting(self) -> Iterator[Callable[[], None]]:
        """The holder sees for as long as this lasts that the lock is awaited.

        Of several that wait, one is seen at a time: call what this gives at every turn.

        Raises:
            OSError: as `acquire`.
        """
        fd = _made(self._awaited)

        def show() -> None:
            _lock(fd)  # else another one waits, or somebody looks just now

        try:
            show()
            yield show
        finally:
            os.close(fd)

    @property
    def awaited(self) -> bool:
        """Whether another process waits for the lock."""
        return _is_locked(self._awaited)

    def lend(self) -> None:
        """Give the lock to who waits for it, and only for a moment: until this acquires it again,
        or is released, others acquire it but briefly."""
        with contextlib.suppress(OSError):
            self._lender = _made(self._lent)
            _lock(self._lender)
        self._give_up()

    @property
    def _awaited(self) -> Path:
        return self.path.with_suffix(".awaited")

    @property
    def _lent(self) -> Path:
        return self.path.with_suffix(".lent")

    def holder(self) -> str:
        """Who has the lock, in words, as far as the file tells."""
        hint: JsonObject = {}
        with contextlib.suppress(InputError, ValueError):
            found = json.loads(read_file(self.path, "", 4096))
            hint = found if isinstance(found, dict) else {}
        pid, host, since = (hint.get(key) for key in ("pid", "host", "since"))
        if not isinstance(pid, int) or not isinstance(host, str) or not isinstance(since, str):
            return "another process"
        where = "" if host == platform.node() else f" on {host!r}"
        return f"process {pid}{where}, since {since[:24]!a}".replace("'", "")

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would race with the next holder."""
        self._give_up()
        self._close_lender()

    def _give_up(self) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

    def _close_lender(self) -> None:
        if self._lender is not None:
            os.close(self._lender)
            self._lender = None


def _made(path: Path) -> int:
    """A file to lock, open; made where it is not there."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(fd: int, how: int = fcntl.LOCK_EX) -> bool:
    """Try once to lock an open file; False when another one has it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _is_locked(path: Path) -> bool:
    """Whether another one has locked a file; with a shared lock, so that who looks is not seen."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _lock(fd, fcntl.LOCK_SH)
    except OSError:  # no locks here
        return False
    finally:
        os.close(fd)
