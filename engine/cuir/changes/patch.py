"""Making the edits of a diff, all of them or some hunks' alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from engine.cuir.changes.edits import (
    FIELDS,
    SPEC,
    Diff,
    Edit,
    EditHunk,
    EditKind,
    Node,
    head_of,
    index_of,
)
from engine.cuir.nodes import Field, Function, Module, Path, Stmt, blocks, walk, with_blocks


def apply(difference: Diff, old: Module, only: Iterable[EditHunk] | None = None) -> Module:
    """`old` with the edits made; with `only`, those of the given hunks and no other.

    Raises:
        ValueError: `old` is not the module that the diff was made from.
    """
    chosen = difference.edits
    if only is not None:
        wanted = {id(edit) for hunk in only for edit in hunk.edits}
        chosen = tuple(edit for edit in difference.edits if id(edit) in wanted)
    return _Apply(difference, old, chosen).module()


class _Apply:
    """Every block of the result is what stayed, in order, with what came put among it.

    The full diff says where everything goes; `chosen` says which edits are made.
    """

    def __init__(self, difference: Diff, old: Module, chosen: tuple[Edit, ...]) -> None:
        self.old = old
        self.nodes: dict[Path, Stmt] = dict(walk(old))
        self.edits = difference.edits
        self.chosen = {id(edit) for edit in chosen}
        self.came: dict[Path, dict[int, Edit]] = {}
        self.left: dict[Path, Edit] = {}
        self.changed: dict[Path, Edit] = {}
        for edit in self.edits:
            self.check(edit)
            if edit.kind is EditKind.CHANGE:
                assert edit.old_path is not None
                self.changed[edit.old_path] = edit
                continue
            if edit.new_path is not None and len(edit.new_path) > 1:
                self.came.setdefault(edit.new_path[:-1], {})[index_of(edit.new_path)] = edit
            if edit.old_path is not None:
                self.left[edit.old_path] = edit

    def made(self, edit: Edit) -> bool:
        return id(edit) in self.chosen

    def check(self, edit: Edit) -> None:
        path = edit.old_path
        if path is None or path[0] in (FIELDS, SPEC):
            return
        found: Node | None = self.nodes.get(path)
        if len(path) == 1:
            found = next((f for f in self.old.functions if f.name == path[0]), None)
        here = head_of(found)
        if here is None or here != head_of(edit.old):
            raise ValueError(f"the diff was made from another module: see what is at {path}")

    def module(self) -> Module:
        spec = self.old.spec
        change = self.changed.get((SPEC,))
        if change is not None and self.made(change):
            assert isinstance(change.new, tuple)
            spec = change.new
        return Module(spec, tuple(self.fields()), tuple(self.functions()))

    def merge(self, count: int, at_old: Path | None, at_new: Path) -> Iterator[int | Edit]:
        """The items of one block in the result: an old index (it stays), or an edit (it came)."""
        came = self.came.get(at_new, {})
        gone = {} if at_old is None else self.left
        stay = [i for i in range(count) if at_old is None or (*at_old, i) not in gone]
        old_next, position, seen = 0, 0, 0
        while seen < len(stay) or position in came:
            edit = came.get(position)
            position += 1
            if edit is not None:
                if self.made(edit):
                    yield edit
                continue
            while old_next < stay[seen]:
                yield from self.unmade(at_old, old_next)
                old_next += 1
            yield stay[seen]
            old_next = stay[seen] + 1
            seen += 1
        for i in range(old_next, count):
            yield from self.unmade(at_old, i)

    def unmade(self, at_old: Path | None, i: int) -> Iterator[int]:
        """Index i when the edit that takes it away is not made."""
        if at_old is not None and not self.made(self.left[(*at_old, i)]):
            yield i

    def fields(self) -> Iterator[Field]:
        for item in self.merge(len(self.old.fields), (FIELDS,), (FIELDS,)):
            if isinstance(item, Edit) and item.kind is EditKind.INSERT:
                assert isinstance(item.new, Field)
                yield item.new
                continue
            path = item.old_path if isinstance(item, Edit) else (FIELDS, item)
            assert path is not None
            change = self.changed.get(path)
            if change is not None and self.made(change):
                assert isinstance(change.new, Field)
                yield change.new
            else:
                yield self.old.fields[index_of(path)]

    def functions(self) -> Iterator[Function]:
        by_name = {f.name: i for i, f in enumerate(self.old.functions)}
        # Functions have no index in their path: put the ordered edits into the same merge.
        came = self.came.setdefault(("functions",), {})
        for edit in self.edits:
            if edit.order is not None and edit.kind is not EditKind.CHANGE:
                came[edit.order] = edit
        for name, i in by_name.items():
            if (name,) in self.left:
                self.left["functions", i] = self.left[(name,)]
        for item in self.merge(len(self.old.functions), ("functions",), ("functions",)):
            if isinstance(item, Edit):
                made = item.new if item.kind is EditKind.INSERT else None
                if isinstance(made, Function):
                    body = self.block(None, made.body, item.path)
                    yield replace(made, body=body)
                    continue
                assert item.old_path is not None
                item = by_name[str(item.old_path[0])]
            yield self.function(self.old.functions[item])

    def function(self, was: Function) -> Function:
        path: Path = (was.name,)
        change = self.changed.get(path)
        head, new_path = was, path
        if change is not None:
            assert isinstance(change.new, Function) and change.new_path is not None
            new_path = change.new_path
            head = change.new if self.made(change) else was
        return replace(head, body=self.block(path, was.body, new_path))

    def block(self, at_old: Path | None, body: tuple[Stmt, ...], at_new: Path) -> tuple[Stmt, ...]:
        """`at_old` is None inside what was inserted: all of `body` stays there."""
        out: list[Stmt] = []
        for position, item in self.placed(len(body), at_old, at_new):
            path = (*at_new, position)
            if not isinstance(item, Edit):
                old_path = None if at_old is None else (*at_old, item)
                out.append(self.stmt(old_path, body[item], path))
            elif item.kind is EditKind.INSERT:
                assert item.new is not None and not isinstance(item.new, Field | Function | tuple)
                out.append(self.stmt(None, item.new, path))
            else:
                assert item.old_path is not None
                out.append(self.stmt(item.old_path, self.nodes[item.old_path], path))
        return tuple(out)

    def placed(
        self, count: int, at_old: Path | None, at_new: Path
    ) -> Iterator[tuple[int, int | Edit]]:
        """The merged items with the index that each has in the diff's new module."""
        came = self.came.get(at_new, {})
        position = 0
        for item in self.merge(count, at_old, at_new):
            if isinstance(item, Edit):
                yield index_of(item.path), item
                continue
            if at_old is not None and (*at_old, item) in self.left:
                # It should have gone and was kept: it has no place in the new module.
                yield self.nowhere(), item
                continue
            while position in came:
                position += 1
            yield position, item
            position += 1

    def nowhere(self) -> int:
        return -1

    def stmt(self, old_path: Path | None, was: Stmt, new_path: Path) -> Stmt:
        head = was
        if old_path is not None:
            left = self.left.get(old_path)
            if left is not None and left.kind is EditKind.MOVE:
                # Its own edits are told by the place that it goes to, made or not.
                assert left.new_path is not None
                new_path = left.new_path
            change = self.changed.get(old_path)
            if change is not None and self.made(change):
                assert change.new is not None
                assert not isinstance(change.new, Field | Function | tuple)
                head = change.new
        inner: dict[str, tuple[Stmt, ...]] = {}
        for branch, body in blocks(was):
            at_old = None if old_path is None else (*old_path, branch)
            inner[branch] = self.block(at_old, body, (*new_path, branch))
        return with_blocks(head, inner)
