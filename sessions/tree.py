"""A session's files as a git tree, of which only changed folders are written again.

Pure: trees are made here, in git's own format, with their object names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sessions.pack import Object

_Entry = tuple[str, str]  # type ("blob" or "tree"), object name


@dataclass(slots=True)
class Tree:
    """Folders (path, "" for the root) with their entries; `dirty` are those to be written."""

    folders: dict[str, dict[str, _Entry]] = field(default_factory=lambda: {"": {}})
    dirty: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, listing: Mapping[str, _Entry]) -> Tree:
        """The tree that `git ls-tree -r -t` lists."""
        tree = cls()
        for path, (kind, oid) in listing.items():
            folder, _, name = path.rpartition("/")
            tree.folders.setdefault(folder, {})[name] = (kind, oid)
        return tree

    def copy(self) -> Tree:
        """An independent copy."""
        return Tree({path: dict(files) for path, files in self.folders.items()}, set(self.dirty))

    def get(self, path: str) -> str | None:
        """The object name of the file at `path`."""
        folder, _, name = path.rpartition("/")
        kind, oid = self.folders.get(folder, {}).get(name, ("", ""))
        return oid if kind == "blob" else None

    def files(self, folder: str) -> dict[str, str]:
        """The files directly in a folder, by name."""
        entries = self.folders.get(folder, {})
        return {name: oid for name, (kind, oid) in entries.items() if kind == "blob"}

    def blobs(self) -> dict[str, str]:
        """Every file by path."""
        return {
            f"{folder}/{name}" if folder else name: oid
            for folder in self.folders
            for name, oid in self.files(folder).items()
        }

    def put(self, path: str, oid: str) -> None:
        """Set a file; folders appear as needed."""
        folder, _, name = path.rpartition("/")
        if self.folders.get(folder, {}).get(name) != ("blob", oid):
            self.folders.setdefault(folder, {})[name] = ("blob", oid)
            self._touch(folder)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there; folders left empty go too."""
        folder, _, name = path.rpartition("/")
        if self.get(path) is not None:
            del self.folders[folder][name]
            self._touch(folder)

    def keep_only(self, folder: str, names: set[str]) -> None:
        """Remove the files of a folder that are not named."""
        for name in set(self.files(folder)) - names:
            self.remove(f"{folder}/{name}")

    def finish(self) -> tuple[str, list[Object]]:
        """Close the changed folders, deepest first: the root's object name, and the trees that are
        to be stored. The root is the last of them when anything changed."""
        trees: list[Object] = []
        for folder in sorted(self.dirty, key=lambda path: (-_depth(path), path)):
            entries = self.folders[folder]
            if not entries and folder:
                del self.folders[folder]
                self._enter(folder, None)
                continue
            trees.append(_tree_of(entries))
            if folder:
                self._enter(folder, trees[-1].oid)
        self.dirty.clear()
        return _tree_of(self.folders[""]).oid, trees

    def _touch(self, folder: str) -> None:
        while folder not in self.dirty:
            self.dirty.add(folder)
            if not folder:
                break
            parent = folder.rpartition("/")[0]
            self.folders.setdefault(parent, {})
            folder = parent

    def _enter(self, folder: str, oid: str | None) -> None:
        parent, _, name = folder.rpartition("/")
        if oid is None:
            if self.folders[parent].get(name, ("", ""))[0] == "tree":  # a file may stand there now
                del self.folders[parent][name]
        else:
            self.folders[parent][name] = ("tree", oid)


def _depth(path: str) -> int:
    return path.count("/") + 1 if path else 0


_MODES = {"blob": "100644", "tree": "40000"}


def _tree_of(entries: Mapping[str, _Entry]) -> Object:
    def order(item: tuple[str, _Entry]) -> bytes:
        name, (kind, _) = item
        return (name + "/" if kind == "tree" else name).encode()

    body = b"".join(
        f"{_MODES[kind]} {name}".encode() + b"\0" + bytes.fromhex(oid)
        for name, (kind, oid) in sorted(entries.items(), key=order)
    )
    return Object("tree", body)
