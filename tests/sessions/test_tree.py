"""Session trees: what is computed is what git computes, and only changed folders are written."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessions.git_store import GitDir
from sessions.pack import Object, blob_oid
from sessions.tree import Tree

# Names that sort differently as files and as folders ("a", "a.b", "a/b", "a-b") on purpose.
names = st.sampled_from(["a", "a.b", "a-b", "a0", "b", "B", "_"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
changes = st.lists(st.tuples(paths, st.none() | st.binary(max_size=3)), max_size=12)


def fits(files: dict[str, str], path: str) -> bool:
    """Whether a file can stand at `path`: no file is a folder too."""
    above = {path.rsplit("/", n)[0] for n in range(1, path.count("/") + 1)}
    return not (above & set(files)) and not any(f.startswith(path + "/") for f in files)


@given(st.lists(changes, max_size=4))
@example([[("a.b/a", b""), ("a.b/a", None), ("a.b", b"")]])  # a file where a folder just was
def test_changes_give_the_same_tree_as_building_anew(rounds: Sequence[Sequence]) -> None:  # type: ignore[type-arg]
    tree = Tree()
    tree.put("session.json", blob_oid(b"{}"))
    files = {"session.json": blob_oid(b"{}")}
    for changes_ in rounds:
        for path, content in changes_:
            if content is None:
                tree.remove(path)
                files.pop(path, None)
            elif fits(files, path):
                tree.put(path, blob_oid(content))
                files[path] = blob_oid(content)
        root, trees = tree.finish()
        assert not trees or trees[-1].oid == root
        assert tree.blobs() == files
        anew = Tree()
        for path, oid in files.items():
            anew.put(path, oid)
        assert anew.finish()[0] == root
        assert tree.finish() == (root, [])


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> GitDir:
    return GitDir.create(tmp_path_factory.mktemp("tree") / "r.git")


def test_git_agrees(repository: GitDir) -> None:
    contents = [b"one", b"two"]
    tree = Tree()
    for path in ("session.json", "a/b", "a.b", "a-b", "a0/x/y", "B", "_", "content/ab/cd"):
        tree.put(path, blob_oid(contents[len(path) % 2]))
    root, trees = tree.finish()
    who = "A <a@b> 0 +0000"
    text = f"tree {root}\nauthor {who}\ncommitter {who}\n\nx\n"
    commit = Object("commit", text.encode())
    repository.write([*(Object("blob", c) for c in contents), *trees, commit])
    listing = repository.list_tree(commit.oid)
    assert listing is not None
    assert Tree.of(listing).blobs() == tree.blobs()
    again = Tree.of(listing)
    again.put("a/c", blob_oid(b"one"))
    _, trees = again.finish()
    assert len(trees) == 2  # the folder and the root
    repository.write(trees)
    assert repository.missing([item.oid for item in trees]) == set()
    done = subprocess.run(
        ["git", "-C", str(Path(repository.path)), "fsck", "--strict"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
