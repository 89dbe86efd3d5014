"""A tile schedule and its mask at one size, on plain numbers: what is wrong there, in words.

A proof's witness is held to this before it is told; and after `unknown` it looks at a few sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from engine.cuir.nodes import Call, Expr, Module, Name, Select, free_names
from engine.cuir.parser import parse_expr
from engine.cuir.scalar import Env, Fn, evaluate
from engine.cuir.static.device_scalars import DeviceScalars
from engine.cuir.static.host_constants import scalars_of
from engine.gates.deck import Case
from engine.gates.runs.subject import Subject
from engine.prove.kinds import ends, sides
from engine.prove.schedule import TileSchedule
from engine.spec.decks.deck_inputs import with_own_sizes

MAX_STEPS = 3000  # of a case, at which the kinds of value are noted
MOST = 4  # visits for each tile that there is


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a schedule at a size: functions that may be at fault, words, and the pair
    that shows it."""

    functions: tuple[str, ...]
    words: str
    example: Mapping[str, Any]


class ScheduleAt:
    """One subject's schedule at the sizes of a case."""

    def __init__(
        self, subject: Subject, asked: TileSchedule, case: Case,
        scalars: DeviceScalars | None = None,
    ) -> None:  # fmt: skip
        scalars = scalars or scalars_of(subject.module)
        known: dict[str, Any] = with_own_sizes(subject.recipe.inputs, case.sizes | subject.columns)
        fields = {
            s.field: evaluate(parse_expr(s.size, "size"), known) for s in subject.binding.sizes
        }
        for scalar in subject.binding.scalars:
            if not free_names(scalar.value) - known.keys():
                fields[scalar.field] = evaluate(scalar.value, known)
        env = {**known, "args": fields}

        def compiled(name: str, *given: str) -> Callable[..., int]:
            operands = tuple(Name(n) for n in ("args", "b", "h", *given))
            call = scalars.compile(Call(name, operands, (), tuple(asked.params[name])))
            return lambda b, h, *at: int(
                call({**env, "b": b, "h": h, **dict(zip(given, at, strict=True))})
            )

        keep = scalars.compile(subject.recipe.keep)
        self.case, self.asked = case, asked
        self.tiles = -(-case.Nk // asked.keys)
        self.count = compiled(asked.count, "q0")
        self.index = compiled(asked.index, "q0", "step")
        self.full = compiled(asked.full, "row0", "n")
        self.lead, self.tail = (
            _none if name is None else compiled(name, "q0", "row0") for name in asked.passing
        )
        self._keep, self._env = keep, env
        self.evaluations = 0

    def kept(self, b: int, h: int, i: int, j: int) -> bool:
        self.evaluations += 1
        return j < self.case.Nk and bool(self._keep({**self._env, "b": b, "h": h, "i": i, "j": j}))

    def of_pair(self, b: int, h: int, i: int, j: int) -> tuple[bool, bool]:
        """Whether the tile of a pair is visited for its row, and whether it is called full."""
        row0, q0 = (i // rows * rows for rows in (self.asked.part, self.asked.rows))
        count, n = max(self.count(b, h, q0), 0), j // self.asked.keys
        lead, tail = (f(b, h, q0, row0) if count else 0 for f in (self.lead, self.tail))
        visited = any(self.index(b, h, q0, step) == n for step in range(lead, count - tail))
        return visited, bool(self.full(b, h, q0 if self.asked.by_block else row0, n))

    def fault(
        self, b: int, h: int, row0: int, pairs: Mapping[int, Sequence[tuple[int, int]]]
    ) -> Fault | None:
        """What is wrong for one part of a block, by the pairs of each tile that are looked at."""
        asked, q0 = self.asked, row0 // self.asked.rows * self.asked.rows
        count = max(self.count(b, h, q0), 0)
        place = {"b": b, "h": h, "i": row0, "j": 0}
        if count > MOST * (self.tiles + 1):
            words = f"more tiles are visited than there are, for the rows from {row0} on"
            return Fault((asked.count,), words, place)
        lead, tail = (f(b, h, q0, row0) if count else 0 for f in (self.lead, self.tail))
        if not 0 <= lead <= lead + tail <= count:
            words = "more tiles are passed over than the block has, or fewer than none"
            name = asked.lead if not 0 <= lead <= count else asked.tail
            return Fault((str(name),), f"{words}, for the rows from {row0} on", place)
        visited = [self.index(b, h, q0, step) for step in range(count)]
        self.evaluations += count + 2
        for n in visited:
            if not 0 <= n < self.tiles:
                words = f"tile {n} is visited, and there are {self.tiles}"
                return Fault((asked.index,), f"{words}, for the rows from {row0} on", place)
        mine = visited[lead : count - tail]
        for n, looked in pairs.items():
            kept = [(i, j, self.kept(b, h, i, j)) for i, j in looked]
            pair = next(((i, j) for i, j, there in kept if there), None)
            times = mine.count(n)
            if pair is not None and times != 1:
                ways = {
                    "is never visited": (asked.count, asked.index),
                    "is passed over": (str(asked.lead if n in visited[:lead] else asked.tail),),
                    "is visited more than once": (asked.index,),
                }  # fmt: skip
                does = 2 if times > 1 else 1 if n in visited else 0
                words = list(ways)[does]
                return self._pair(ways[words], n, words, b, h, pair, True)
            hole = next(((i, j) for i, j, there in kept if not there), None)
            if hole is not None and times and self.full(b, h, q0 if asked.by_block else row0, n):
                return self._pair((asked.full,), n, "is called full", b, h, hole, False)
        return None

    def _pair(
        self, functions: tuple[str, ...], n: int, words: str, b: int, h: int,
        pair: tuple[int, int], kept: bool,
    ) -> Fault:  # fmt: skip
        i, j = pair
        does = "is kept" if kept else "is not kept" if j < self.case.Nk else "has no such key"
        says = "masks a key that the spec keeps" if kept else "keeps a key that the spec masks"
        diagnosis = f"the tile schedule is wrong: in this row the target {says} (j={j})"
        example = {
            "b": b, "h": h, "i": i, "j": j, "expected": kept, "got": not kept,
            "diagnosis": diagnosis,
        }  # fmt: skip
        return Fault(functions, f"tile {n} {words} and the pair ({i}, {j}) {does}", example)

    def first_fault(self) -> Fault | None:
        """What is wrong at this size, by each tile's corners and middle, in the first and the last
        batch and head."""
        case, at = self.case, self.asked
        heads = dict.fromkeys([(0, 0), (case.B - 1, case.Hq - 1)])
        for (b, h), row0 in product(heads, range(0, case.Nq, at.part)):
            rows = [i for i in _corners(row0, at.part) if i < case.Nq]
            pairs = {
                n: [(i, j) for i in rows for j in _corners(n * at.keys, at.keys)]
                for n in range(self.tiles)
            }
            found = self.fault(b, h, row0, pairs)
            if found is not None:
                return found
        return None


class Noting(DeviceScalars):
    """Notes the kinds of value (`engine.prove.kinds`) that subexpressions of a module's schedule
    take, in one case after another."""

    def __init__(self, module: Module) -> None:
        plain = scalars_of(module)
        super().__init__(plain.functions, plain.consts)
        self.named, self.noted = "", set[str]()

    def compile(self, expr: Expr) -> Fn:
        words = sides(expr, "")
        if words is None:
            return super().compile(expr)

        def note(side: Any) -> None:
            self.noted.add(words[0 if side else 1][:-2] + f"({self.named})")

        match expr:
            case Call("min" | "max" as fn, (left, right)):
                first, second = self.compile(left), self.compile(right)
                chosen = min if fn == "min" else max

                def noted(env: Env) -> Any:
                    a, b = first(env), second(env)
                    if a != b:
                        note((a < b) == (fn == "min"))
                    return chosen(a, b)

            case Select(cond, then, other):
                test, yes, no = map(self.compile, (cond, then, other))

                def noted(env: Env) -> Any:
                    note(side := test(env))
                    return yes(env) if side else no(env)

            case _:
                plain = super().compile(expr)

                def noted(env: Env) -> Any:
                    note(value := plain(env))
                    return value

        return noted


def kinds_at(subject: Subject, asked: TileSchedule, case: Case, noting: Noting) -> frozenset[str]:
    """The kinds of value that the schedule takes in a run of the case."""
    noting.noted = set()
    at = ScheduleAt(subject, asked, case, noting)
    truths = {asked.full}

    def value(name: str, call: Callable[..., int], *place: int) -> int:
        noting.named = name
        found = call(*place)
        noting.noted.add(ends(name, name in truths)[0 if found else 1])
        return found

    heads = list(product(range(case.B), range(case.Hq)))
    left = MAX_STEPS
    for (b, h), row0 in product(heads if len(heads) <= 4 else [heads[0], heads[-1]],
                                range(0, case.Nq, asked.part)):  # fmt: skip
        q0 = row0 // asked.rows * asked.rows
        count = value(asked.count, at.count, b, h, q0)
        lead, tail = (
            value(name, passed, b, h, q0, row0) if name is not None and count > 0 else 0
            for name, passed in zip(asked.passing, (at.lead, at.tail), strict=True)
        )
        for step in range(min(count, left)):
            n = value(asked.index, at.index, b, h, q0, step)
            if lead <= step < count - tail:
                value(asked.full, at.full, b, h, q0 if asked.by_block else row0, n)
        left -= max(count, 1)
        if left <= 0:
            break
    return frozenset(noting.noted)


def _none(b: int, h: int, *at: int) -> int:
    return 0


def _corners(first: int, length: int) -> list[int]:
    """The first, the middle and the last rows or keys of a tile."""
    ends = {0, 1, length // 2, length - 2, length - 1}
    return sorted(first + p for p in ends if 0 <= p < length)


def sampled_sizes(at: TileSchedule, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(Nq, Nk) about parts, blocks, tiles and the numbers of the mask and the schedule, the
    plainest first."""
    edges = dict.fromkeys((1, at.part, at.rows, at.rows + at.part, 2 * at.rows + 1))
    rows = dict.fromkeys(n + e for n in edges for e in (0, -1, 1) if n + e > 0)
    keys = dict.fromkeys(
        n + e for n in (0, at.keys, 2 * at.keys, 3 * at.keys) for e in (1, 0, -1) if n + e >= 0
    )
    yield from product(rows, keys)
    for number in numbers:
        for more, e in product((0, at.part, at.keys, at.rows), (0, -1, 1)):
            long = number + more + e
            if long > 0:
                yield from ((1, long), (long, 1), (at.rows + 1, at.rows + long), (long, long))
