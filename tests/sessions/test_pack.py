"""Packs: git reads back what was put in, under the names that were computed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessions.git_store import GitDir
from sessions.pack import Object


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> GitDir:
    return GitDir.create(tmp_path_factory.mktemp("pack") / "r.git")


@settings(max_examples=15)
@given(st.lists(st.binary(max_size=5000), min_size=1, max_size=4))
@example([b"", b"x" * 15, b"x" * 16, b"x" * 2047, b"x" * 2048, b"x" * 300_000])
def test_git_reads_what_was_packed(repository: GitDir, contents: list[bytes]) -> None:
    blobs = [Object("blob", content) for content in contents]
    repository.write(blobs)
    assert repository.read([blob.oid for blob in blobs]) == contents


def test_git_is_told_of_a_store_that_is_gone(tmp_path: Path) -> None:
    from engine.errors import StoreError

    with pytest.raises(StoreError, match="is gone"):
        GitDir(tmp_path / "no.git").write([Object("blob", b"x")])
