"""Whether a store can be written, found out before work is done that could then not be kept."""

from __future__ import annotations

import tempfile
from pathlib import Path

from engine.errors import StoreError
from sessions.git_store import DiskFull, store_error, writable_fix
from sessions.store import Store

_PROBE = b"\0" * 4096  # a file of a block: a full disk has room for an empty one


def check_writable(store: Store) -> None:
    """Writes and removes a small file where the store writes.

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
