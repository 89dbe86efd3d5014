"""Which statement of an old module is which statement of a new one.

Functions pair by name; inside a function, blocks are aligned by a weighted longest common
subsequence (equal statements first, then the most similar), nested blocks of paired statements are
aligned in turn, and what is left over is paired across blocks where it is equal or nearly so: those
pairs are moves. The result depends on the two trees alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import lt
from typing import Any, TypeVar

from engine.cuir.nodes import (
    Assign,
    Do,
    Expr,
    For,
    Function,
    If,
    Module,
    Opaque,
    Path,
    Return,
    Stmt,
    blocks,
    children,
    walk_block,
)  # fmt: skip

SAME = 0.4  # statements less similar than this are a deletion and an insertion, not a change
SAME_MOVED = 0.7  # across blocks there is no neighbourhood to trust, so the bar is higher

Pairs = dict[Path, Path]
Places = TypeVar("Places", bound=tuple[int, ...])  # of one statement, in several blocks


def shell(stmt: Stmt) -> Stmt:
    """The statement without what is inside its blocks: what a change can change."""
    if isinstance(stmt, For):
        return replace(stmt, body=())
    if isinstance(stmt, If):
        return replace(stmt, then=(), other=())
    if isinstance(stmt, Opaque):
        return replace(stmt, meaning=())
    return stmt


def signature(function: Function) -> Function:
    """The function without its body."""
    return replace(function, body=())


def match_modules(old: Module, new: Module) -> Pairs:
    """Old path -> new path of every statement and function that survives."""
    pairs: Pairs = {}
    for before, after in _match_functions(old, new):
        pairs[(before.name,)] = (after.name,)
        _FunctionMatch(before, after, pairs).run()
    return pairs


def _match_functions(old: Module, new: Module) -> list[tuple[Function, Function]]:
    by_name = {f.name: f for f in new.functions}
    out: list[tuple[Function, Function]] = []
    lost: list[Function] = []
    for function in old.functions:
        found = by_name.pop(function.name, None)
        if found is not None:
            out.append((function, found))
        else:
            lost.append(function)
    # A renamed function keeps its kind and most of its statements.
    for function in lost:
        scored = [
            (_dice(_keys(function.body), _keys(f.body)), f)
            for f in by_name.values()
            if f.kind == function.kind and f.body
        ]
        best = max(scored, key=lambda pair: pair[0], default=None)
        if best is not None and best[0] >= SAME_MOVED:
            out.append((function, by_name.pop(best[1].name)))
    order = {f.name: i for i, f in enumerate(old.functions)}
    return sorted(out, key=lambda pair: order[pair[0].name])


# --- similarity ------------------------------------------------------------------------------


def _dice(a: Counter[Any], b: Counter[Any]) -> float:
    total = a.total() + b.total()
    return 2.0 * (a & b).total() / total if total else 1.0


def _key(stmt: Stmt) -> tuple[str, str]:
    match stmt:
        case Assign(target, _):
            return ("assign", target)
        case Do(call):
            return ("do", call.fn)
        case For(var):
            return ("for", var)
        case Opaque(text):
            return ("opaque", text)
        case _:
            return (type(stmt).__name__, "")


def _keys(body: tuple[Stmt, ...]) -> Counter[tuple[str, str]]:
    return Counter(_key(stmt) for _, stmt in walk_block(body, ()))


@dataclass(slots=True)
class _Similarity:
    """Similarity of statements in [0, 1], with the bags of subexpressions kept."""

    bags: dict[int, tuple[Expr, Counter[Expr]]] = field(default_factory=dict)

    def bag(self, expr: Expr) -> Counter[Expr]:
        found = self.bags.get(id(expr))
        if found is None:
            count: Counter[Expr] = Counter()
            todo = [expr]
            while todo:
                node = todo.pop()
                count[node] += 1
                todo += children(node)
            # The expression is kept beside its bag, so that its id is not used again.
            found = self.bags[id(expr)] = (expr, count)
        return found[1]

    def exprs(self, a: Expr, b: Expr) -> float:
        return 1.0 if a == b else _dice(self.bag(a), self.bag(b))

    def __call__(self, a: Stmt, b: Stmt) -> float:
        if type(a) is not type(b):
            return 0.0
        if a == b:
            return 1.0
        match a, b:
            case Assign(t1, v1), Assign(t2, v2):
                same = self.exprs(v1, v2)
                return 0.5 + 0.49 * same if t1 == t2 else 0.9 * same
            case Do(c1), Do(c2):
                same = self.exprs(c1, c2)
                return 0.4 + 0.59 * same if c1.fn == c2.fn else 0.7 * same
            case For(), For():
                bounds = ((a.start, b.start), (a.stop, b.stop), (a.step, b.step))
                head = sum(self.exprs(x, y) for x, y in bounds) / 3
                body = _dice(_keys(a.body), _keys(b.body))
                return 0.2 * (a.var == b.var) + 0.3 * head + 0.49 * body
            case If(), If():
                body = _dice(_keys(a.then + a.other), _keys(b.then + b.other))
                return 0.45 * self.exprs(a.cond, b.cond) + 0.54 * body
            case Return(v1), Return(v2):
                return 0.5 + 0.49 * self.exprs(v1, v2) if v1 and v2 else 0.5
            case Opaque(), Opaque():
                return 0.99 * _dice(Counter(a.text.split()), Counter(b.text.split()))
        return 0.0


# --- one function ----------------------------------------------------------------------------


class _FunctionMatch:
    def __init__(self, old: Function, new: Function, pairs: Pairs) -> None:
        self.old, self.new, self.pairs = old, new, pairs
        self.taken: set[Path] = set()  # new paths
        self.similar = _Similarity()

    def run(self) -> None:
        self.align(self.old.body, (self.old.name,), self.new.body, (self.new.name,))
        self.moves()

    def pair(self, old: Path, new: Path) -> None:
        self.pairs[old] = new
        self.taken.add(new)

    def score(self, a: Stmt, a_path: Path, b: Stmt, b_path: Path) -> float:
        """What pairing these two is worth; 0 forbids it."""
        if a_path in self.pairs or b_path in self.taken:
            return 0.0
        same = self.similar(a, b)
        if same < SAME:
            return 0.0
        # Equal statements outweigh any two merely similar ones.
        return 3.0 if same == 1.0 else same

    def align(
        self, old: tuple[Stmt, ...], old_at: Path, new: tuple[Stmt, ...], new_at: Path
    ) -> None:
        """Pair the statements of two blocks in order, then what is inside the pairs."""

        def equal(i: int, j: int) -> bool:
            # Inside a pair that was moved, a statement may have found its partner elsewhere before.
            free = (*old_at, i) not in self.pairs and (*new_at, j) not in self.taken
            return free and old[i] == new[j]

        first, last, shorter = 0, 0, min(len(old), len(new))
        while first < shorter and equal(first, first):
            first += 1
        while last < shorter - first and equal(len(old) - 1 - last, len(new) - 1 - last):
            last += 1
        found = [(i, i) for i in range(first)]
        found += self.middle(old, old_at, new, new_at, first, last)
        found += [(len(old) - k, len(new) - k) for k in range(last, 0, -1)]
        for i, j in found:
            self.pair((*old_at, i), (*new_at, j))
        for i, j in found:
            self.inside(old[i], (*old_at, i), new[j], (*new_at, j))

    def middle(
        self, old: tuple[Stmt, ...], old_at: Path, new: tuple[Stmt, ...], new_at: Path,
        first: int, last: int,
    ) -> list[tuple[int, int]]:  # fmt: skip
        rows = range(first, len(old) - last)
        cols = range(first, len(new) - last)
        if not rows or not cols:
            return []
        score = {
            (i, j): self.score(old[i], (*old_at, i), new[j], (*new_at, j))
            for i in rows
            for j in cols
        }
        best: dict[tuple[int, int], float] = {}
        for i in reversed(rows):
            for j in reversed(cols):
                skip = max(best.get((i + 1, j), 0.0), best.get((i, j + 1), 0.0))
                take = score[i, j] + best.get((i + 1, j + 1), 0.0) if score[i, j] else 0.0
                best[i, j] = max(skip, take)
        out: list[tuple[int, int]] = []
        i, j = first, first
        while i in rows and j in cols:
            here = best[i, j]
            if score[i, j] and here == score[i, j] + best.get((i + 1, j + 1), 0.0):
                out.append((i, j))
                i, j = i + 1, j + 1
            elif here == best.get((i + 1, j), 0.0):
                i += 1
            else:
                j += 1
        return out

    def inside(self, a: Stmt, a_path: Path, b: Stmt, b_path: Path) -> None:
        inner = dict(blocks(b))
        for branch, body in blocks(a):
            if body or inner[branch]:
                self.align(body, (*a_path, branch), inner[branch], (*b_path, branch))

    def moves(self) -> None:
        """Pair what is left over across blocks: equal first, largest first, then similar."""
        gone = self.left_over(self.old, self.pairs)
        come = self.left_over(self.new, self.taken)
        places: dict[Stmt, list[Path]] = {}
        for path, stmt in come:
            places.setdefault(stmt, []).append(path)
        for path, stmt in sorted(gone, key=lambda item: -_size(item[1])):
            if path in self.pairs:
                continue
            free = [p for p in places.get(stmt, []) if p not in self.taken]
            if free:
                self.pair(path, free[0])
                self.inside(stmt, path, stmt, free[0])
        for path, stmt in gone:
            if path in self.pairs:
                continue
            scored = [
                (self.similar(stmt, other), p, other)
                for p, other in come
                if p not in self.taken and type(stmt) is type(other)
            ]
            best = max(scored, key=lambda item: item[0], default=None)
            if best is not None and best[0] >= SAME_MOVED:
                self.pair(path, best[1])
                self.inside(stmt, path, best[2], best[1])

    @staticmethod
    def left_over(
        function: Function, paired: Mapping[Path, Path] | set[Path]
    ) -> list[tuple[Path, Stmt]]:
        walked = walk_block(function.body, (function.name,))
        return [(path, stmt) for path, stmt in walked if path not in paired]


def increasing(places: list[Places]) -> list[Places]:
    """A longest chain of places (sorted by their first number) in which all numbers increase."""
    best: list[list[Places]] = []
    for place in places:
        before = (chain for chain in best if all(map(lt, chain[-1], place)))
        best.append([*max(before, key=len, default=[]), place])
    return max(best, key=len, default=[])


def _size(stmt: Stmt) -> int:
    return 1 + sum(_size(s) for _, body in blocks(stmt) for s in body)
