"""The cache of builds: one folder per content, one writer per folder, the oldest removed."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engine.errors import Interrupted, StoreError

_ROOM = 1 << 20  # bytes
_MOST_BUILDS = 256  # folders kept, the ones used last


def default_cache() -> Path:
    """$XDG_CACHE_HOME/cubridge/build, else ~/.cache/cubridge/build."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if named.startswith("/") else Path.home() / ".cache"
    return base / "cubridge" / "build"


@contextmanager
def locked(folder: Path, cancel: threading.Event | None) -> Iterator[None]:
    """One ninja at a time per folder; waits for another process's.

    Raises:
        StoreError: something of it could not be written, by us or by who has the lock.
        Interrupted: `cancel` was set.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / ".lock", "a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if cancel is not None and cancel.wait(0.05):
                        raise Interrupted("the build was cancelled") from None
                    if cancel is None:
                        time.sleep(0.05)
            os.utime(folder / ".lock")
            yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise no_room(folder, "XDG_CACHE_HOME") from None
        raise StoreError(
            f"the build folder {folder} cannot be written: {error.strerror or error}",
            fix="free space there, or set XDG_CACHE_HOME to a folder that you may write to",
        ) from None


def is_full(folder: Path) -> bool:
    """Whether the disk of a folder has no room for what a compiler writes: it says anything then,
    and seldom that."""
    return shutil.disk_usage(folder).free < _ROOM


def no_room(folder: Path, variable: str) -> StoreError:
    """What is said where a disk is full; `variable` is what would name another one."""
    return StoreError(f"there is no room in {folder}", fix=f"make room there, or set {variable}")


def prune(root: Path, current: Path) -> None:
    """Remove the builds that were used longest ago, beyond what the cache keeps."""
    entries = []
    for entry in root.iterdir():
        with suppress(OSError):
            entries.append(((entry / ".lock").stat().st_mtime, entry))
    for _, entry in sorted(entries, reverse=True)[_MOST_BUILDS:]:
        if entry == current:
            continue
        with suppress(OSError), open(entry / ".lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry, ignore_errors=True)


def write(path: Path, data: bytes) -> None:
    """Write unless it is there already: ninja goes by times."""
    with suppress(OSError):
        if path.read_bytes() == data:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)
