"""The cache of builds where its disk is full, or it may not be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from engine.build.folder.cache import locked
from engine.errors import StoreError


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "there is no room in "), (errno.EROFS, "cannot be written: Read-only file")],
)
def test_what_cannot_be_written_is_told_with_the_folder(
    tmp_path: Path, code: int, words: str
) -> None:
    with pytest.raises(StoreError, match=words) as error, locked(tmp_path / "a", None):
        raise OSError(code, os.strerror(code))
    assert str(tmp_path / "a") in error.value.message and "XDG_CACHE_HOME" in (
        error.value.fix or ""
    )
