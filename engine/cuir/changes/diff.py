"""The difference of two CuIR modules as edits: insert, delete, change, move.

`patch.apply(diff(old, new), old) == new`, and applying a part of the hunks gives the module in
which just those were accepted.
"""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.changes.edits import FIELDS, SPEC, Diff, Edit, EditKind, index_of
from engine.cuir.matching import Pairs, increasing, match_modules, shell, signature
from engine.cuir.nodes import Function, Module, Path, Stmt, blocks, walk, with_blocks


def diff(old: Module, new: Module) -> Diff:
    """The edits that turn `old` into `new`; empty exactly when they are equal."""
    if old == new:
        identity = {path: path for path, _ in walk(old)}
        return Diff((), (), identity | {(f.name,): (f.name,) for f in old.functions}, ())
    pairs = match_modules(old, new)
    walker = _Walker(old, new, pairs)
    walker.run()
    edits = walker.edits
    singly, wide = _groups(edits, walker.apart()), _groups(edits, walker.runs)
    return Diff(tuple(edits), singly, pairs, wide)


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
        self.undivided: set[int] = set()  # numbers of stretches inside one

    def in_place(self) -> set[Path]:
        """Old paths of paired statements that are not moved."""
        stays: set[Path] = set()
        blocks_of: dict[tuple[Path, Path], list[tuple[int, int]]] = {}
        for before, after in self.pairs.items():
            if len(before) == 1:
                continue
            if self.same_block(before[:-1], after[:-1]):
                where = blocks_of.setdefault((before[:-1], after[:-1]), [])
                where.append((index_of(before), index_of(after)))
        for (old_at, _), places in blocks_of.items():
            stays |= {(*old_at, i) for i, _ in increasing(sorted(places))}
        return stays

    def same_block(self, old_at: Path, new_at: Path) -> bool:
        if len(old_at) == 1:
            return self.pairs.get(old_at) == new_at
        return old_at[-1] == new_at[-1] and self.pairs.get(old_at[:-1]) == new_at[:-1]

    def add(self, edit: Edit) -> None:
        self.edits.append(edit)
        self.runs.append(self.number)
        if self.whole:
            self.undivided.add(self.number)

    def apart(self) -> list[int]:
        """The runs with each edit of a stretch its own, but where the stretch is of one device
        function, or takes away or moves something: what comes then stands in its place."""
        together = self.undivided | {
            run
            for edit, run in zip(self.edits, self.runs, strict=True)
            if edit.kind in (EditKind.DELETE, EditKind.MOVE)
        }
        return [run if run in together else -1 - k for k, run in enumerate(self.runs)]

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
        kept = dict(increasing(common))
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
        kept = dict(increasing(sorted(common)))
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
                self.gone(old, old_at, at, index_of(before))
                at = index_of(before) + 1
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
            pruned = _prune((was,), before[:-1], set(self.pairs), index_of(before), keep_top=True)[
                0
            ]
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
    """The hunk number of every edit: those of one run, joined where one edit needs another."""
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
