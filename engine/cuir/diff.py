"""The difference of two CuIR modules as edits: insert, delete, change, move.

`apply(diff(old, new), old) == new`, and applying a part of the hunks gives the module in which just
those were accepted. Edits name statements by path: `old_path` in the old module, `new_path` in the
new one. A change is of a statement's own text (a loop's header, not its body); an insert or delete
is of a whole statement, less what moved in or out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from engine.cuir.matching import Pairs, match_modules, shell, signature, with_blocks
from engine.cuir.nodes import (
    Expr,
    Field,
    Function,
    Module,
    Path,
    Stmt,
    blocks,
    walk,
)  # fmt: skip
from engine.cuir.printer import print_expr, print_function, print_stmts

# Paths of what is not a statement; no C++ function beside `struct Args` can have such a name.
FIELDS = "Args"
SPEC = "specialisation()"

Spec = tuple[tuple[str, Expr], ...]
Node = Stmt | Function | Field | Spec


class EditKind(StrEnum):
    INSERT = "insert"
    DELETE = "delete"
    CHANGE = "change"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit. `old` and `new` are the nodes; which are set follows from the kind.

    insert: `new` at `new_path`. delete: `old` at `old_path`. change: both, without their blocks.
    move: both paths and the moved node as it was (`old`). A function's path does not say where it
    stands among the functions, so `order` does (its index in the new module).
    """

    kind: EditKind
    old_path: Path | None = None
    new_path: Path | None = None
    old: Node | None = None
    new: Node | None = None
    order: int | None = None

    @property
    def path(self) -> Path:
        """Where a reader looks for it: the new place, or the old one of what is gone."""
        path = self.new_path if self.new_path is not None else self.old_path
        assert path is not None
        return path


@dataclass(frozen=True, slots=True)
class Diff:
    """Edits in reading order, the hunk each belongs to, and what is which statement."""

    edits: tuple[Edit, ...]
    groups: tuple[int, ...]
    pairs: Mapping[Path, Path]

    def __bool__(self) -> bool:
        return bool(self.edits)


@dataclass(frozen=True, slots=True)
class EditHunk:
    """Edits that a reviewer decides on together, in reading order.

    Contiguous edits of one block; all edits of one device function; and edits that need each other
    (a statement moved into an inserted one).
    """

    edits: tuple[Edit, ...]

    @property
    def function(self) -> str:
        return str(self.edits[0].path[0])


def diff(old: Module, new: Module, same: Mapping[Path, Path] | None = None) -> Diff:
    """The edits that turn `old` into `new`; empty exactly when they are equal.

    `same` maps old paths to new paths that are known to be the same statement (equal ids).
    """
    if old == new:
        identity = {path: path for path, _ in walk(old)}
        return Diff((), (), identity | {(f.name,): (f.name,) for f in old.functions})
    pairs = match_modules(old, new, same)
    walker = _Walker(old, new, pairs)
    walker.run()
    return Diff(tuple(walker.edits), _groups(walker.edits, walker.runs), pairs)


def hunks(difference: Diff) -> tuple[EditHunk, ...]:
    """The edits in groups, in reading order of each group's first edit."""
    grouped: dict[int, list[Edit]] = {}
    for edit, group in zip(difference.edits, difference.groups, strict=True):
        grouped.setdefault(group, []).append(edit)
    return tuple(EditHunk(tuple(edits)) for edits in grouped.values())


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


def before_text(hunk: EditHunk, old: Module) -> str:
    """CuIR text of what the hunk takes away or changes; empty for a pure insertion."""
    return _hunk_text(hunk, old, new_side=False)


def after_text(hunk: EditHunk, new: Module) -> str:
    """CuIR text of what the hunk puts there; empty for a pure deletion."""
    return _hunk_text(hunk, new, new_side=True)


def _hunk_text(hunk: EditHunk, module: Module, *, new_side: bool) -> str:
    paths = [edit.new_path if new_side else edit.old_path for edit in hunk.edits]
    first = next((path for path in paths if path is not None), None)
    whole = {f.name: f for f in module.functions}
    if first is not None and first[0] in whole and whole[str(first[0])].kind == "device":
        return print_function(whole[str(first[0])]) + "\n"
    lines: list[str] = []
    for edit in hunk.edits:
        node = edit.new if new_side else edit.old
        if edit.kind is EditKind.MOVE:
            node = edit.old
        lines += _node_lines(node)
    return "".join(f"{line}\n" for line in lines)


def _node_lines(node: Node | None) -> list[str]:
    if node is None:
        return []
    if isinstance(node, Field):
        return [f"{node.name}: {node.type}"]
    if isinstance(node, Function):
        lines = print_function(node).split("\n")
        return lines if node.body else lines[:-1]
    if isinstance(node, tuple):
        return [f"{name}={print_expr(value)}" for name, value in node]
    lines = print_stmts((node,), 0, ("",), {})
    # The header of a changed block statement is shown without an empty body.
    return lines[:1] if shell(node) == node and blocks(node) else lines


# --- making the edits ------------------------------------------------------------------------


class _Walker:
    """Reads both modules side by side. `runs[k]` numbers the stretch that edit k stands in."""

    def __init__(self, old: Module, new: Module, pairs: Pairs) -> None:
        self.old, self.new, self.pairs = old, new, pairs
        self.back = {after: before for before, after in pairs.items()}
        self.old_nodes = dict(walk(old))
        self.new_nodes = dict(walk(new))
        self.stays = self.in_place()
        self.edits: list[Edit] = []
        self.runs: list[int] = []
        self.number = 0
        self.whole = False  # inside a device function, which is one hunk

    def in_place(self) -> set[Path]:
        """Old paths of paired statements that are not moved."""
        stays: set[Path] = set()
        blocks_of: dict[tuple[Path, Path], list[tuple[int, int]]] = {}
        for before, after in self.pairs.items():
            if len(before) == 1:
                continue
            if self.same_block(before[:-1], after[:-1]):
                where = blocks_of.setdefault((before[:-1], after[:-1]), [])
                where.append((_index(before), _index(after)))
        for (old_at, _), places in blocks_of.items():
            stays |= {(*old_at, i) for i, _ in _increasing(sorted(places))}
        return stays

    def same_block(self, old_at: Path, new_at: Path) -> bool:
        if len(old_at) == 1:
            return self.pairs.get(old_at) == new_at
        return old_at[-1] == new_at[-1] and self.pairs.get(old_at[:-1]) == new_at[:-1]

    def add(self, edit: Edit) -> None:
        self.edits.append(edit)
        self.runs.append(self.number)

    def cut(self) -> None:
        if not self.whole:
            self.number += 1

    def run(self) -> None:
        if self.old.spec != self.new.spec:
            self.add(Edit(EditKind.CHANGE, (SPEC,), (SPEC,), self.old.spec, self.new.spec))
        self.cut()
        self.fields()
        self.functions()

    def fields(self) -> None:
        old, new = self.old.fields, self.new.fields
        to = {f.name: j for j, f in enumerate(new)}
        common = [(i, to[f.name]) for i, f in enumerate(old) if f.name in to]
        kept = dict(_increasing(common))
        moved = {i: j for i, j in common if i not in kept}
        back = {j: i for i, j in common}

        def gone(upto: int, start: int) -> None:
            for i in range(start, upto):
                if i not in kept and i not in moved:
                    self.add(Edit(EditKind.DELETE, (FIELDS, i), None, old[i]))

        at = 0
        for j, f in enumerate(new):
            i = back.get(j)
            if i is not None and i in kept:
                gone(i, at)
                at = i + 1
            if i is None:
                self.add(Edit(EditKind.INSERT, None, (FIELDS, j), None, f))
                continue
            if i in moved:
                self.add(Edit(EditKind.MOVE, (FIELDS, i), (FIELDS, j), old[i]))
            if old[i] != f:
                self.add(Edit(EditKind.CHANGE, (FIELDS, i), (FIELDS, j), old[i], f))
            elif i in kept:
                self.cut()
        gone(len(old), at)
        self.cut()

    def functions(self) -> None:
        old_at = {f.name: i for i, f in enumerate(self.old.functions)}
        common = [
            (old_at[str(self.back[(f.name,)][0])], j)
            for j, f in enumerate(self.new.functions)
            if (f.name,) in self.back
        ]
        kept = dict(_increasing(sorted(common)))
        at = 0
        for j, f in enumerate(self.new.functions):
            before = self.back.get((f.name,))
            self.whole = False
            self.cut()
            self.whole = f.kind == "device"
            if before is None:
                self.add(Edit(EditKind.INSERT, None, (f.name,), None, self.inserted_fn(f), j))
                self.moved_inside(f.body, (f.name,))
                continue
            i = old_at[str(before[0])]
            was = self.old.functions[i]
            if i in kept:
                self.gone_functions(at, i)
                at = i + 1
            else:
                self.add(Edit(EditKind.MOVE, before, (f.name,), was, None, j))
            if signature(was) != signature(f):
                edit = Edit(EditKind.CHANGE, before, (f.name,), signature(was), signature(f), j)
                self.add(edit)
                self.cut()
            self.block(was.body, before, f.body, (f.name,))
        self.gone_functions(at, len(self.old.functions))

    def gone_functions(self, start: int, stop: int) -> None:
        inside, self.whole = self.whole, False
        for f in self.old.functions[start:stop]:
            if (f.name,) not in self.pairs:
                self.cut()
                self.add(Edit(EditKind.DELETE, (f.name,), None, self.deleted_fn(f)))
        self.cut()
        self.whole = inside

    def inserted_fn(self, f: Function) -> Function:
        return replace(f, body=_prune(f.body, (f.name,), set(self.back)))

    def deleted_fn(self, f: Function) -> Function:
        return replace(f, body=_prune(f.body, (f.name,), set(self.pairs)))

    def block(
        self, old: tuple[Stmt, ...], old_at: Path, new: tuple[Stmt, ...], new_at: Path
    ) -> None:
        at = 0
        for j, stmt in enumerate(new):
            path = (*new_at, j)
            before = self.back.get(path)
            if before is None:
                pruned = _prune((stmt,), new_at, set(self.back), j)[0]
                self.add(Edit(EditKind.INSERT, None, path, None, pruned))
                for branch, inner in blocks(stmt):
                    self.moved_inside(inner, (*path, branch))
                continue
            if before in self.stays and before[:-1] == old_at:
                self.gone(old, old_at, at, _index(before))
                at = _index(before) + 1
            self.survivor(before, path)
        self.gone(old, old_at, at, len(old))

    def gone(self, old: tuple[Stmt, ...], old_at: Path, start: int, stop: int) -> None:
        for i in range(start, stop):
            if (*old_at, i) not in self.pairs:
                pruned = _prune((old[i],), old_at, set(self.pairs), i)[0]
                self.add(Edit(EditKind.DELETE, (*old_at, i), None, pruned))

    def survivor(self, before: Path, path: Path) -> None:
        was, stmt = self.old_nodes[before], self.new_nodes[path]
        moved, changed = before not in self.stays, shell(was) != shell(stmt)
        if moved:
            pruned = _prune((was,), before[:-1], set(self.pairs), _index(before), keep_top=True)[0]
            self.add(Edit(EditKind.MOVE, before, path, pruned))
        if changed:
            self.add(Edit(EditKind.CHANGE, before, path, shell(was), shell(stmt)))
        if not moved and not changed:
            self.cut()
        after = dict(blocks(stmt))
        for branch, inner in blocks(was):
            if inner or after[branch]:
                self.cut()
                self.block(inner, (*before, branch), after[branch], (*path, branch))
                self.cut()

    def moved_inside(self, body: tuple[Stmt, ...], at: Path) -> None:
        """The moves (with their own edits) into a statement that was inserted."""
        for j, stmt in enumerate(body):
            path = (*at, j)
            before = self.back.get(path)
            if before is not None:
                self.survivor(before, path)
                continue
            for branch, inner in blocks(stmt):
                self.moved_inside(inner, (*path, branch))


def head_of(node: Node | None) -> Node | None:
    """The node without what is inside it."""
    if isinstance(node, Function):
        return signature(node)
    if node is None or isinstance(node, Field | tuple):
        return node
    return shell(node)


def _index(path: Path) -> int:
    last = path[-1]
    assert isinstance(last, int)
    return last


def _increasing(places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """A longest chain of pairs (sorted by their first) in which the seconds increase too."""
    best: list[list[tuple[int, int]]] = []
    for k, (_, j) in enumerate(places):
        longest = max((c for c in best[:k] if c[-1][1] < j), key=len, default=[])
        best.append([*longest, places[k]])
    return max(best, key=len, default=[])


def _prune(
    body: tuple[Stmt, ...], at: Path, away: set[Path], first: int = 0, keep_top: bool = False
) -> tuple[Stmt, ...]:
    """`body` without the statements at the paths in `away`."""
    out: list[Stmt] = []
    for position, stmt in enumerate(body, first):
        path = (*at, position)
        if path in away and not keep_top:
            continue
        inner = {branch: _prune(b, (*path, branch), away) for branch, b in blocks(stmt)}
        out.append(with_blocks(stmt, inner))
    return tuple(out)


def _groups(edits: list[Edit], runs: list[int]) -> tuple[int, ...]:
    """The hunk number of every edit: stretches, joined where one edit needs another."""
    parent = list(range(len(edits)))

    def root(k: int) -> int:
        while parent[k] != k:
            k = parent[k]
        return k

    def join(a: int, b: int) -> None:
        a, b = sorted((root(a), root(b)))
        parent[b] = a

    for k in range(1, len(edits)):
        if runs[k] == runs[k - 1]:
            join(k, k - 1)
    for kind in ("new_path", "old_path"):
        whole = {
            EditKind.MOVE, EditKind.INSERT if kind == "new_path" else EditKind.DELETE
        }  # fmt: skip
        tops = {getattr(e, kind): k for k, e in enumerate(edits) if e.kind in whole}
        for k, edit in enumerate(edits):
            path = getattr(edit, kind)
            for length in range(1, len(path or ()) + 1):
                if path[:length] in tops:
                    join(k, tops[path[:length]])
    return tuple(root(k) for k in range(len(edits)))


# --- making the new module -------------------------------------------------------------------


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
                self.came.setdefault(edit.new_path[:-1], {})[_index(edit.new_path)] = edit
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
                yield self.old.fields[_index(path)]

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
                yield _index(item.path), item
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
