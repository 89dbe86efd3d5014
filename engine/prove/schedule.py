"""What a tile schedule must be for its mask, as goals for all sizes.

For each part of a block of rows: a tile with a kept pair is visited, once, and not passed over; a
tile that is called full holds kept pairs of existing keys alone; the tiles that are visited exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from engine.cuir.nodes import Expr
from engine.prove.domain import Domain
from engine.prove.solver import Condition, Goal, Whole
from engine.prove.terms import Terms, Value, as_truth, as_whole, constant_of, truncated

VISITED = "tiles with a kept pair are visited"
PASSED = "no tile with a kept pair is passed over"
ONCE = "tiles are visited once"
FULL = "full tiles hold kept pairs of existing keys alone"
# Of a goal that is asked of tiles with a kept pair alone, where it fails of others.
WEAKER = ", of those with kept pairs"
RANGE = "visited tiles exist"
PASSING = "no more tiles are passed over than the block has"


@dataclass(frozen=True, slots=True)
class TileSchedule:
    """How a kernel asks for its key tiles: each part of a block goes over steps `lead` to
    `count - tail`, takes tile `index` of each, and masks it where it is not `full`.

    The names are device functions; `params` are the template arguments of their calls. `rows` are
    those of a block, `part` those of one of its parts (a warpgroup), `keys` those of a tile.
    `by_block`: whether `full` is asked for the whole block, not for each of its parts.
    """

    count: str
    index: str
    full: str
    lead: str | None
    tail: str | None
    params: Mapping[str, tuple[Expr, ...]]
    rows: int
    part: int
    keys: int
    by_block: bool

    @property
    def passing(self) -> tuple[str | None, str | None]:
        """What says how many of a block's first and last tiles a part passes over."""
        return self.lead, self.tail


@dataclass(frozen=True, slots=True)
class Stated:
    """A goal about a schedule, and the functions that may be at fault. `weaker` says the same of
    what changes an output alone: it is asked where the goal itself is not proven."""

    goal: Goal
    functions: tuple[str, ...]
    weaker: Goal | None = None


class AskedTerms:
    """What a schedule's functions give, as terms over the sizes and the place: batch, head, block,
    part, step and tile.

    Args:
        terms: of the module.
        domain: the legal sizes.
        fields: the argument struct's whole numbers, as terms over the sizes.

    Raises `NotWhole` where the schedule reads more than sizes.
    """

    def __init__(
        self, terms: Terms, domain: Domain, fields: Mapping[str, Value], asked: TileSchedule
    ) -> None:
        self.terms, self.domain, self.fields, self.asked = terms, domain, fields, asked
        self.b, self.h, self.block, self.group = z3.Ints("b h block part")
        self.step, self.n = z3.Ints("step n")
        self.q0 = self.block * asked.rows
        self.row0 = self.q0 + self.group * asked.part
        self.nq, self.nk = domain.sizes["Nq"], domain.sizes["Nk"]
        self.tiles = truncated(self.nk + asked.keys - 1, z3.IntVal(asked.keys))
        self.params = {
            name: [terms.value(p, {}) for p in given] for name, given in asked.params.items()
        }
        self.rows = (  # of a block and of a part
            *domain.given,
            *(self.b >= 0, self.b < domain.sizes["B"], self.h >= 0, self.h < domain.sizes["Hq"]),
            *(self.block >= 0, self.q0 < self.nq),
            *(self.group >= 0, self.group < asked.rows // asked.part, self.row0 < self.nq),
        )
        self.count = self._whole(asked.count, self.q0)
        self.lead, self.tail = (
            z3.IntVal(0) if name is None else as_whole(self.call(name)) for name in asked.passing
        )

    def index(self, step: Whole) -> Whole:
        """The tile of a step of the block."""
        path = (step >= 0, step < self.count)
        return self._whole(self.asked.index, self.q0, step, path=path)

    def full(self, n: Whole) -> Condition:
        """Whether tile n is called full."""
        row = self.q0 if self.asked.by_block else self.row0
        return as_truth(self._call(self.asked.full, row, n, path=(n >= 0, n < self.tiles)))

    def call(self, name: str) -> Value:
        """One of the schedule's functions, asked where the kernel asks it."""
        asked, in_block = self.asked, (self.step >= 0, self.step < self.count)
        if name == asked.count:
            return self._call(name, self.q0)
        if name == asked.index:
            return self._call(name, self.q0, self.step, path=in_block)
        if name in asked.passing:
            return self._call(name, self.q0, self.row0, path=(self.count > 0,))
        return self.full(self.n)

    def _call(self, name: str, *at: Any, path: tuple[Condition, ...] = ()) -> Value:
        operands = (self.fields, self.b, self.h, *at)
        return self.terms.call(name, operands, self.params[name], (*self.rows, *path))

    def _whole(self, name: str, *at: Any, path: tuple[Condition, ...] = ()) -> Whole:
        return as_whole(self._call(name, *at, path=path))


class ScheduleGoals(AskedTerms):
    """The goals of one schedule and one mask: `keep` is the recipe's predicate over i, j, b, h and
    the sizes, and inputs that it reads, as functions of their indices. Raises `NotWhole` where one
    of them reads more."""

    def __init__(
        self, terms: Terms, domain: Domain, fields: Mapping[str, Value], asked: TileSchedule,
        keep: Expr, reads: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(terms, domain, fields, asked)
        self.i, self.j, self.later = z3.Ints("i j later")
        self.pair = (  # of the part's rows and the keys that there are
            *(self.i >= self.row0, self.i < self.row0 + asked.part, self.i < self.nq),
            *(self.j >= 0, self.j < self.nk),
        )
        env = {**domain.sizes, "b": self.b, "h": self.h, "i": self.i, "j": self.j, **(reads or {})}
        self.kept = terms.truth(keep, env, (*self.rows, *self.pair))

    def stated(self) -> Iterator[Stated]:
        """The goals, those first whose faults show the plainest."""
        asked, step, later = self.asked, self.step, self.later
        index, count, lead, tail = self.index(step), self.count, self.lead, self.tail
        end = count - tail
        visit = (*self.rows, step >= 0, step < count)
        mine = (*visit, step >= lead, step < end)
        inside = z3.And(index >= 0, index < self.tiles)
        fewer = z3.And(index >= 0, index < self.tiles - 1)
        yield self._stated(RANGE, visit, inside, fewer, (asked.index, asked.count), (step,))
        pair = (*self.rows, *self.pair, self.kept)
        first = z3.IntVal(0)
        yield self._stated(
            VISITED, pair, self._visited(first, count), self._visited(first + 1, count - 1),
            (asked.count, asked.index), (self.i, self.j),
        )  # fmt: skip
        passing = tuple(name for name in asked.passing if name is not None)
        if passing:
            some = z3.And(lead >= 0, tail >= 0, lead + tail <= count)
            more = lead + tail >= 1
            yield self._stated(PASSING, (*self.rows, count > 0), some, more, passing)
            yield self._stated(
                PASSED, pair, self._visited(lead, end), self._visited(lead + 1, end), passing,
                (self.i, self.j),
            )  # fmt: skip
        second = self.index(later)
        both = (*mine, later > step, later < end)
        apart, mixed = index != second, index / 2 != second / 2
        kept = (*both, *self.pair, self.kept, self.j / asked.keys == index)
        yield self._stated(
            ONCE, both, apart, mixed, (asked.index,), (self.i, self.j), given_of_weaker=kept
        )
        n = self.n
        tile = (*self.rows, n >= 0, n < self.tiles)
        cell = (*tile, *self.pair[:3], self.j >= n * asked.keys, self.j < (n + 1) * asked.keys)
        alone = z3.And(self.j < self.nk, self.kept)
        full = self.full(n)
        yield self._stated(
            FULL, cell, z3.Or(z3.Not(full), alone), alone, (asked.full,), (n, self.i, self.j),
            given_of_weaker=(*cell, *mine, index == n),
        )  # fmt: skip

    def _visited(self, first: Whole, end: Whole) -> Condition:
        """Whether a step from `first` to below `end` takes the tile of key j.

        The tile of a step is a sum of what does not hang on the step and a whole multiple of it,
        on each of its ways: so there is one step of each way that may take the tile.
        """
        tile = self.j / self.asked.keys
        index = self.index(self.step)
        steps = [first, end - 1]
        for leaf in leaves(index):
            start = z3.substitute(leaf, (self.step, z3.IntVal(0)))
            per_step = constant_of(z3.substitute(leaf, (self.step, z3.IntVal(1))) - start)
            if per_step in (1, -1):
                steps.append(per_step * (tile - start))
        takes = [
            z3.And(s >= first, s < end, z3.substitute(index, (self.step, s)) == tile)
            for s in steps
        ]  # fmt: skip
        return z3.Or(*takes)

    def _stated(
        self, name: str, given: tuple[Condition, ...], claim: Condition, twin: Condition,
        functions: tuple[str, ...], shown: tuple[Whole, ...] = (),
        given_of_weaker: tuple[Condition, ...] | None = None,
    ) -> Stated:  # fmt: skip
        names = {"b": self.b, "h": self.h, "q0": self.q0, "row0": self.row0}
        at = (*names.values(), *shown)
        labels = {**self.domain.sizes, **names, **{str(term): term for term in shown}}
        smallest = (*self.domain.smallest, *at)

        def goal(name: str, given: tuple[Condition, ...]) -> Goal:
            return Goal(name, given, claim, twin, labels, smallest)

        weaker = None if given_of_weaker is None else goal(f"{name}{WEAKER}", given_of_weaker)
        return Stated(goal(name, given), functions, weaker)


def leaves(term: Whole) -> list[Whole]:
    """What a choice may give: the ends of its ways."""
    if z3.is_app_of(term, z3.Z3_OP_ITE):
        return [*leaves(term.arg(1)), *leaves(term.arg(2))]
    return [term]
