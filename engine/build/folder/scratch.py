"""Temporary folders that a killed process leaves for the next one to remove."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "cubridge-run-"


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder, removed at the end. It is locked for as long as its process lives; those
    that nobody holds any more are removed first."""
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, or one that ends right now
            lock = _lock(left)
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(BlockingIOError, FileNotFoundError):  # taken for one that is left
            lock = _lock(folder)
            if folder.is_dir():
                break
            os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _lock(folder: Path) -> int:
    """The descriptor of a folder that nobody else holds.

    Raises:
        OSError: someone does, or it is not ours to hold.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
