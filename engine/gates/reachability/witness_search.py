"""At which sizes a condition comes out one way: by trying very many of them at once.

Nothing is run: a condition is evaluated on a table of sizes, the numbers of blocks, tiles, rows and
keys with them. What comes out one way at no size that a spec allows is no branch; what does so
gives a case to run, or, where no run can be afforded, the sizes that a verdict names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

import torch
from torch import Tensor

from engine.cuir.nodes import Compare, Expr, Num, Path, free_names
from engine.cuir.scalar import CONSTANTS, evaluate
from engine.gates.analysis.conditions import Condition
from engine.gates.analysis.path_conditions import climbs
from engine.gates.analysis.size_comparisons import SIZES
from engine.gates.deck import SM_COUNT, Case
from engine.gates.reachability.name_values import (
    BLOCK,
    GROUP,
    MAX_WAYS,
    PROCESSORS,
    UNKNOWN,
    WARPGROUPS,
    Draw,
    Names,
)
from engine.gates.reachability.size_table import Table, one_of, table_of_sizes, tiles, uniform
from engine.gates.reachability.solved_sides import SolvedSides
from engine.gates.reachability.unreached_divisions import never_by_0
from engine.gates.runs.subject import Subject
from engine.gates.schedules.schedule_goals import case_at
from engine.prove.solver import Proven, Witness

SHOWN = 40
CHUNK = 1000  # points, among which there are mostly as many that differ
MANY = 1000  # multiprocessors


@dataclass(eq=False, frozen=True, slots=True)
class _Values:
    """A value at each point. `guessed` where it hangs on a name of which the text does not say what
    it is: such values find cases to run, and rule nothing out."""

    at: Tensor
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a condition may come out one way, which is taken for possible where it hangs on what
    only a run knows; and cases in which it may, the smallest first.

    `sampled`: that it may not is what a table of sizes says, not a proof. `solved`: the case is the
    solver's, and the table has not been asked; `exact`: it hangs on the sizes and processors alone.
    """

    possible: bool
    cases: tuple[Case, ...] = ()
    sampled: bool = False
    solved: bool = False
    exact: bool = False


class Reaches(Names[_Values, Tensor]):
    """What the conditions of one subject's module come out as."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.solved = SolvedSides(subject)

    @cached_property
    def table(self) -> Table:
        """Legal sizes, and the columns of a row."""
        columns = {name: torch.tensor(size) for name, size in self.subject.columns.items()}
        table = table_of_sizes() | columns
        legal = torch.ones_like(table["B"], dtype=torch.bool)
        for constraint in self.subject.recipe.constraints:
            legal &= torch.as_tensor(evaluate(never_by_0(constraint), table)) != 0
        table |= {n: table[n][legal] for n in SIZES}
        # Those of most runs, and of cards with more.
        more = uniform(PROCESSORS.id, len(table["B"]))
        return table | {PROCESSORS.id: SM_COUNT + (more.masked_fill(more < 0.5, 0.0) * MANY).long()}

    def of(self, one: Condition, side: bool) -> Reach:
        """Where `one` is asked and comes out as `side`: by any way on which its function is called,
        under the conditions of the callers."""
        if one.ends:
            return Reach(True)
        match self.solved.of(one, side):
            case Proven(), _:
                return Reach(False)
            case Witness(values), exact:
                case = replace(case_at(values), processors=values[PROCESSORS.id])
                return Reach(True, (case,), solved=True, exact=exact)
        return self._in_table(one, side)

    def shared(self, one: Condition, side: bool, known: Reach, cases: Iterable[Case]) -> Reach:
        """With those of the solver's cases for other sides that may do as well."""
        if not known.solved:
            return known
        more = (c for c in cases if c not in known.cases)
        may = (c for c in more if self.solved.may_be(one, side, c))
        return replace(known, cases=(*known.cases, *may))

    def wider(self, one: Condition, side: bool, known: Reach) -> Reach:
        """The solver's case and the table's: where the former hangs on more than sizes, a block
        and a tile may never meet as it has them."""
        found = self._in_table(one, side)
        more = (case for case in found.cases if case not in known.cases)
        possible = known.exact or found.possible
        return Reach(possible, (*known.cases, *more), sampled=not possible)

    def _in_table(self, one: Condition, side: bool) -> Reach:
        draws = self.draws(one.path, one.within)
        hit, maybe = torch.zeros_like(self.table["B"], dtype=torch.bool), False
        for draw in draws[:MAX_WAYS]:
            asked = self._reached(draw)
            try:
                value = self.value(one.test, draw, one.path)
            except UNKNOWN:
                return Reach(True)
            hit |= asked & (value.at.bool() == side)
            maybe = maybe or (value.guessed and bool(asked.any()))
            maybe = maybe or self._between(one, side, asked, draw)
        at = hit.nonzero().flatten()
        if not len(at):
            possible = maybe or len(draws) > MAX_WAYS
            return Reach(possible, sampled=not possible)
        columns = torch.stack([self.table[n][at] for n in (*SIZES, PROCESSORS.id)], -1)
        cost = (columns[:, [0, 1, 3, 4]].double()).prod(-1)
        columns = columns[cost.argsort(stable=True)]
        columns = columns[columns[:, -1].argsort(stable=True)]  # another card only where it must be
        # A block and a tile are drawn apart, and a mask may let them meet in a square alone.
        squares = self._unlike(columns[columns[:, 3] == columns[:, 4]])
        pairs = zip_longest(self._unlike(columns), squares)
        cheapest = dict.fromkeys(sizes for pair in pairs for sizes in pair if sizes is not None)
        cases = tuple(
            Case(b, hq, hkv, q, k, modes=("exact",), processors=card)
            for b, hq, hkv, q, k, card in cheapest
        )
        return Reach(True, cases)

    def _reached(self, draw: Draw[_Values, Tensor]) -> Tensor:
        """Where what holds around a statement, and around the calls that lead to it, may hold."""
        if draw.reached is None:
            asked = torch.ones_like(self.table["B"], dtype=torch.bool)
            for test, outcome, path in self.tests(draw):
                # It may hold or not: more sizes than there are, never fewer.
                with suppress(*UNKNOWN):
                    value = self.value(test, draw, path)
                    asked = asked & (value.guessed | (value.at.bool() == outcome))
            draw.reached = asked if draw.caller is None else asked & self._reached(draw.caller)
        return draw.reached

    def _between(
        self, one: Condition, side: bool, asked: Tensor, draw: Draw[_Values, Tensor]
    ) -> bool:
        """Whether two numbers that are equal at none of the points may be so between them."""
        match one.test:
            case Compare("==" | "!=" as op, left, right) if side == (op == "=="):
                a, b = (self.value(e, draw, one.path).at[asked] for e in (left, right))
                return bool((a > b).any()) and bool((a < b).any())
        return False

    def value(self, expr: Expr, draw: Draw[_Values, Tensor], path: Path) -> _Values:
        """`expr` at every point, as it is at one statement on the way."""
        expr = never_by_0(self.in_names(expr, draw))
        env, guessed = dict(self.table), False
        for name in sorted(free_names(expr) - env.keys() - CONSTANTS.keys()):
            drawn = self.of_name(name, draw, path)
            env[name], guessed = drawn.at, guessed or drawn.guessed
        return _Values(torch.as_tensor(evaluate(expr, env)).expand_as(self.table["B"]), guessed)

    def one_of(self, name: str, values: Sequence[_Values]) -> _Values:
        return _Values(one_of([v.at for v in values], name), any(v.guessed for v in values))

    def begun(self, name: str, function: str) -> _Values:
        """A batch, a head; else, by guess, a row, a key or a tile."""
        sizes = self.table
        u = uniform(name, len(sizes["B"]))
        blocks = sizes["B"] * sizes["Hq"] * tiles(sizes["Nq"], self.tiles.rows)
        limits = {
            self.batch: sizes["B"], self.head: sizes["Hq"],
            BLOCK.id: blocks, GROUP.id: WARPGROUPS * torch.ones_like(blocks),
        }  # fmt: skip
        if (function, name) in self.places:
            within = [(u * sizes[n]).long() for n in self.places[function, name]]
            return _Values(one_of(within, name))
        if name in limits and name:
            return _Values((u * limits[name]).long())
        ways = (
            (tiles(sizes["Nk"], self.tiles.keys), 1),
            (tiles(sizes["Nk"], self.tiles.keys), self.tiles.keys),
            (tiles(sizes["Nq"], self.tiles.rows), self.tiles.rows),
            (blocks, 1), (sizes["Nq"], 1), (sizes["Nk"], 1),
        )  # fmt: skip
        return _Values(one_of([(u * limit).long() * step for limit, step in ways], name), True)

    def counted(self, path: Path, draw: Draw[_Values, Tensor]) -> _Values:
        """What a loop counts, from its start towards its stop."""
        loop = self.loops[path]
        first, end = (self.value(e, draw, path) for e in (loop.start, loop.stop))
        way = climbs(loop)
        step = self.value(loop.step if way is None else Num(1 if way else -1), draw, path)
        u = uniform(loop.var, len(first.at))
        rounds = (u * (end.at - first.at).abs().clamp_min(1)).long()
        at = first.at + torch.where(step.at > 0, rounds, -rounds)
        return _Values(at, first.guessed or end.guessed or step.guessed)

    def _unlike(self, rows: Tensor) -> list[tuple[int, ...]]:
        """The first rows that differ from each other by a tile at least, `SHOWN` at most."""
        out: dict[tuple[int, ...], tuple[int, ...]] = {}
        for first in range(0, len(rows), CHUNK):
            for row in map(tuple, rows[first : first + CHUNK].tolist()):
                *many, q, k, _ = row
                out.setdefault((*many, -(-q // self.tiles.rows), -(-k // self.tiles.keys)), row)
            if len(out) >= SHOWN:
                break
        return list(out.values())[:SHOWN]
