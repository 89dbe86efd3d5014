"""Three modules into one: what two versions of an old module changed, each by itself, together.

Statements are paired as in a diff, and are the same where only lambda parameters are called
otherwise. Between statements that all three have in the same order, one side's text is taken where
the other side left the old one, and where one side took statements away that the other put new ones
among, both are done if it is clear which were taken; a statement's own text is merged in the same
way, and its blocks in turn. Where both sides changed the same, `mine` is taken and its statements
are told as conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.cuir.canonical import canonical_stmt
from engine.cuir.changes.edits import FIELDS
from engine.cuir.matching import Pairs, increasing, match_modules, shell, signature
from engine.cuir.nodes import Field, Function, Module, Path, Stmt, blocks, walk_block, with_blocks

Named = TypeVar("Named", Field, Function)
T = TypeVar("T")
Block = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """The module of both sides' changes. `conflicts` are paths in it, of `mine` where `theirs`
    changed the same place otherwise; where `mine` has nothing there, the place itself."""

    module: Module
    conflicts: frozenset[Path]


def merge(old: Module, theirs: Module, mine: Module, pairs: Pairs | None = None) -> Merged:
    """`theirs` with the changes that `mine` made to `old`; the specialisation is theirs.

    `pairs` says which statement of `old` is which of `theirs` where that is known; else the two are
    matched as in a diff.
    """
    made = _Merge(old, theirs, mine, match_modules(old, theirs) if pairs is None else pairs)
    fields = made.fields()
    functions = made.functions()
    return Merged(Module(theirs.spec, fields, functions), frozenset(made.conflicts))


class _Merge:
    def __init__(self, old: Module, theirs: Module, mine: Module, to_theirs: Pairs) -> None:
        self.old, self.theirs, self.mine = old, theirs, mine
        self.to_theirs, self.to_mine = to_theirs, match_modules(old, mine)
        self.conflicts: set[Path] = set()

    def pick(self, old: T, theirs: T, mine: T, path: Path) -> T:
        """The side that changed; mine, as a conflict, where both did otherwise."""
        was, there, here = _same(old), _same(theirs), _same(mine)
        if here == was:
            return theirs
        if there in (was, here):
            return mine
        self.conflicts.add(path)
        return mine

    def fields(self) -> tuple[Field, ...]:
        return self.named(
            self.old.fields, self.theirs.fields, self.mine.fields,
            lambda old, theirs, mine, at: self.pick(old, theirs, mine, (FIELDS, at)),
            lambda field, at: {(FIELDS, at)},
        )  # fmt: skip

    def functions(self) -> tuple[Function, ...]:
        return self.named(
            self.old.functions, self.theirs.functions, self.mine.functions,
            lambda old, theirs, mine, _: self.function(old, theirs, mine),
            lambda function, _: {(function.name,), *_inside(function.body, (function.name,))},
        )  # fmt: skip

    def named(
        self, old: tuple[Named, ...], theirs: tuple[Named, ...], mine: tuple[Named, ...],
        both: Callable[[Named, Named, Named, int], Named],
        paths: Callable[[Named, int], set[Path]],
    ) -> tuple[Named, ...]:  # fmt: skip
        """What is told by its name, in their order; what mine adds comes behind what it follows."""
        was, there, here = ({x.name: x for x in side} for side in (old, theirs, mine))
        order = [name for name in there if name in here or name not in was]
        after = 0
        for name, item in here.items():
            if name not in there and item != was.get(name):
                order.insert(after, name)
            if name in order:
                after = order.index(name) + 1
        out: list[Named] = []
        for at, name in enumerate(order):
            if name in was and name in here and name in there:
                out.append(both(was[name], there[name], here[name], at))
                continue
            item = here[name] if name in here else there[name]
            # They took away what mine changed, or both added another thing of this name.
            if name in here and (name in was or there.get(name, item) != item):
                self.conflicts |= paths(item, at)
            out.append(item)
        return tuple(out)

    def function(self, old: Function, theirs: Function, mine: Function) -> Function:
        path: Path = (theirs.name,)
        head = self.pick(signature(old), signature(theirs), signature(mine), path)
        body = self.block(old.body, path, theirs.body, path, mine.body, path, path)
        return replace(head, body=body)

    def block(
        self, old: Block, old_at: Path, theirs: Block, their_at: Path, mine: Block, my_at: Path,
        at: Path,
    ) -> Block:  # fmt: skip
        out: list[Stmt] = []
        i = j = k = 0
        anchors = self.anchors(len(old), old_at, their_at, my_at)
        for a, b, c in (*anchors, (len(old), len(theirs), len(mine))):
            around = old[max(i - 1, 0) : i], old[a : a + 1]
            out += self.stretch(old[i:a], theirs[j:b], mine[k:c], at, len(out), around)
            if a == len(old):
                break
            sides = [dict(blocks(side)) for side in (old[a], theirs[b], mine[c])]
            if len({tuple(side) for side in sides}) > 1:  # one side made it another statement
                out += self.stretch((old[a],), (theirs[b],), (mine[c],), at, len(out))
            else:
                here = (*at, len(out))
                head = self.pick(shell(old[a]), shell(theirs[b]), shell(mine[c]), here)
                was, there, own = sides
                inner = {
                    name: self.block(
                        was[name], (*old_at, a, name), there[name], (*their_at, b, name),
                        own[name], (*my_at, c, name), (*here, name),
                    )
                    for name in was
                }  # fmt: skip
                out.append(with_blocks(head, inner))
            i, j, k = a + 1, b + 1, c + 1
        return tuple(out)

    def stretch(
        self, old: Block, theirs: Block, mine: Block, at: Path, start: int,
        around: tuple[Block, Block] = ((), ()),
    ) -> Block:  # fmt: skip
        """What stands between two statements that all three have, `around` it."""
        was, there, here = ([_same(stmt) for stmt in side] for side in (old, theirs, mine))
        if here == was:
            return theirs
        if there in (was, here):
            return mine
        for fewer, more, body in ((here, there, theirs), (there, here, mine)):
            # One side took statements away, the other put new ones among them: none is touched by
            # both.
            # Beside one like it, either may have been taken: so the two around count as well.
            before, after = ([_same(stmt) for stmt in side] for side in around)
            left = _places(before + fewer + after, before + was + after)
            all_there = _places(was, more)
            if left is not None and all_there is not None:
                first = len(before)
                gone = {place for n, place in enumerate(all_there, first) if n not in left}
                return tuple(stmt for place, stmt in enumerate(body) if place not in gone)
        self.conflicts |= set(_inside(mine, at, start)) or {(*at, start)}
        return mine

    def anchors(
        self, count: int, old_at: Path, their_at: Path, my_at: Path
    ) -> list[tuple[int, int, int]]:
        """The longest row of statements that all three blocks have in the same order."""
        places: list[tuple[int, int, int]] = []
        for i in range(count):
            b, c = self.to_theirs.get((*old_at, i)), self.to_mine.get((*old_at, i))
            if b is None or c is None or b[:-1] != their_at or c[:-1] != my_at:
                continue
            j, k = b[-1], c[-1]
            assert isinstance(j, int) and isinstance(k, int)
            places.append((i, j, k))
        return increasing(places)


def _places(fewer: Sequence[object], more: Sequence[object]) -> list[int] | None:
    """Where the items of `fewer` stand in `more`, in their order; None where one is not there, or
    may be either of two."""
    first = _first_places(fewer, more)
    last = _first_places(fewer[::-1], more[::-1])
    if first is None or last is None or first != [len(more) - 1 - n for n in reversed(last)]:
        return None
    return first


def _first_places(fewer: Sequence[object], more: Sequence[object]) -> list[int] | None:
    out: list[int] = []
    for item in fewer:
        try:
            out.append(more.index(item, out[-1] + 1 if out else 0))
        except ValueError:
            return None
    return out


def _same(node: object) -> object:
    return canonical_stmt(node, {}) if isinstance(node, Stmt) else node


def _inside(body: Block, at: Path, start: int = 0) -> Iterator[Path]:
    """The paths of all statements of a stretch that begins at index `start` of a block."""
    for path, _ in walk_block(body, at):
        first = path[len(at)]
        assert isinstance(first, int)
        yield (*at, first + start, *path[len(at) + 1 :])
