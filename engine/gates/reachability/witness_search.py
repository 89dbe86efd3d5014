"""At which sizes a condition comes out one way: by trying very many of them at once.

Nothing is run: a condition is evaluated on a table of sizes, the numbers of blocks, tiles, rows and
keys with them. What comes out one way at no size that a spec allows is no branch; what does so
gives a case to run, or, where no run can be afforded, the sizes that a verdict names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, zip_longest

import torch
from torch import Tensor

from engine.cuir.execute.compiled.program import Limits
from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Compare,
    Expr,
    For,
    Name,
    Num,
    Path,
    free_names,
    walk,
)
from engine.cuir.parser import parse_expr
from engine.cuir.rewrite import map_expr, substitute
from engine.cuir.scalar import CONSTANTS, evaluate
from engine.errors import CuBridgeError
from engine.gates.analysis.call_sites import Inline, Site, call_sites
from engine.gates.analysis.conditions import Condition
from engine.gates.analysis.name_facts import changed_in, constants_in, data_in, places_in
from engine.gates.analysis.path_conditions import Within, climbs, runs, standings
from engine.gates.analysis.size_comparisons import SIZES, scalars_of
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import Case, Tiles
from engine.gates.reachability.size_table import one_of, table_of_sizes, tiles, uniform
from engine.gates.reachability.unreached_divisions import never_by_0
from engine.gates.runs.subject import Subject
from engine.transfer.match import find_attention

SHOWN = 40
CHUNK = 1000  # points, among which there are mostly as many that differ
MAX_WAYS = 16  # on which a function is called
UNKNOWN = (CuBridgeError, LookupError, RuntimeError, TypeError, ValueError, ArithmeticError)
_BLOCK, _GROUP, _PROCESSORS = Name("$block"), Name("$warpgroup"), Name("$processors")
WARPGROUPS = 8
MANY = 1000  # multiprocessors


@dataclass(eq=False, frozen=True, slots=True)
class _Values:
    """A value at each point. `guessed` where it hangs on a name of which the text does not say what
    it is: such values find cases to run, and rule nothing out."""

    at: Tensor
    guessed: bool = False


@dataclass(eq=False, slots=True)
class _Draw:
    """A statement on one way that leads to it: what holds there, the call that its function runs
    by and the same of that; and what has been drawn there, by name or expression."""

    path: Path
    held: Within
    site: Site | None = None
    caller: _Draw | None = None
    values: dict[Expr | tuple[str, Path], _Values] = field(default_factory=dict)
    reached: Tensor | None = None

    @property
    def function(self) -> str:
        return str(self.path[0])


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a condition may come out one way, which is taken for possible where it hangs on what
    only a run knows; and cases in which it may, the cheapest first."""

    possible: bool
    cases: tuple[Case, ...] = ()


class Reaches:
    """What the conditions of one subject's module come out as."""

    def __init__(self, subject: Subject) -> None:
        binding = subject.binding
        self.subject = subject
        self.inline = Inline(subject.module)
        module = self.inline.module(subject.module)
        self.constants = constants_in(subject.module)
        self.fields: dict[Expr, Expr] = {
            Attr(Name("args"), s.field): parse_expr(s.size, "size") for s in binding.sizes
        }
        self.fields |= {Attr(Name("args"), s.field): s.value for s in binding.scalars}
        self.held = {
            at.path: tuple(zip(at.held, at.asked, strict=True))
            for function in subject.module.functions
            for at in standings(function)
        }
        self.loops = {p: s for p, s in walk(module) if isinstance(s, For)}
        self.sites = call_sites(subject.module)
        self.assigned: dict[tuple[str, str], list[tuple[Path, Expr]]] = {}
        for path, stmt in walk(module):
            if isinstance(stmt, Assign):
                self.assigned.setdefault((str(path[0]), stmt.target), []).append((path, stmt.value))
        self.changed = changed_in(module)
        self.unknown = data_in(module, scalars_of(module)) | self.changed
        self.places = places_in(module)
        self.tiles = tiles_of(module) or Tiles(64, 64)
        try:
            found = find_attention(subject.module)
            self.batch, self.head = (
                e.id if isinstance(e, Name) else "" for e in (found.batch, found.head)
            )
        except CuBridgeError:
            self.batch = self.head = ""
        self.calls: tuple[str, list[_Draw]] = ("", [])
        self.here: tuple[Path, list[_Draw]] = ((), [])
        self.table = table_of_sizes()
        self.table |= {name: torch.tensor(size) for name, size in subject.columns.items()}
        legal = torch.ones_like(self.table["B"], dtype=torch.bool)
        for constraint in subject.recipe.constraints:
            legal &= self._value(constraint, _Draw(("",), ()), ("",)).at != 0
        self.table |= {n: self.table[n][legal] for n in SIZES}

    def of(self, one: Condition, side: bool) -> Reach:
        """Where `one` is asked and comes out as `side`: by any way on which its function is called,
        under the conditions of the callers."""
        if one.ends:
            return Reach(True)
        draws = self._draws(one.path, one.within)
        hit, maybe = torch.zeros_like(self.table["B"], dtype=torch.bool), False
        for draw in draws[:MAX_WAYS]:
            asked = self._reached(draw)
            try:
                value = self._value(one.test, draw, one.path)
            except UNKNOWN:
                return Reach(True)
            hit |= asked & (value.at.bool() == side)
            maybe = maybe or (value.guessed and bool(asked.any()))
            maybe = maybe or self._between(one, side, asked, draw)
        at = hit.nonzero().flatten()
        if not len(at):
            return Reach(maybe or len(draws) > MAX_WAYS)
        columns = torch.stack([self.table[n][at] for n in SIZES], -1)
        cost = (columns[:, [0, 1, 3, 4]].double()).prod(-1)
        columns = columns[cost.argsort(stable=True)]
        # A block and a tile are drawn apart, and a mask may let them meet in a square alone.
        squares = self._unlike(columns[columns[:, 3] == columns[:, 4]])
        pairs = zip_longest(self._unlike(columns), squares)
        cheapest = dict.fromkeys(sizes for pair in pairs for sizes in pair if sizes is not None)
        cases = tuple(Case(b, hq, hkv, q, k, modes=("exact",)) for b, hq, hkv, q, k in cheapest)
        return Reach(True, cases)

    def _draws(self, path: Path, held: Within) -> list[_Draw]:
        """A statement on each way to it, `MAX_WAYS` and one at most."""
        # Conditions of one statement come one after another, and those of one function.
        function = str(path[0])
        if self.calls[0] != function:
            called = self._callers(function, frozenset())
            outer = called if self.sites.get(function) else [_Draw((), ())]
            self.calls = function, list(islice(outer, MAX_WAYS + 1))
        if self.here[0] != path:
            self.here = path, [replace(one, path=path, values={}) for one in self.calls[1]]
        return [replace(one, held=held) for one in self.here[1]]

    def _callers(self, function: str, below: frozenset[str]) -> Iterator[_Draw]:
        """A function as it is called: each of its calls, with each of the caller's."""
        below |= {function}
        for site in self.sites.get(function, ()):
            caller = str(site.path[0])
            if caller in below:  # one that calls itself
                continue
            outer = self._callers(caller, below) if self.sites.get(caller) else [_Draw((), ())]
            for one in outer:
                at = replace(one, path=site.path, held=(), values={}, reached=None)
                yield _Draw((function,), (), site, at)

    def _reached(self, draw: _Draw) -> Tensor:
        """Where what holds around a statement, and around the calls that lead to it, may hold."""
        if draw.reached is None:
            asked = torch.ones_like(self.table["B"], dtype=torch.bool)
            tests = [
                *self.held.get(draw.path, ()),
                *((one, draw.path) for one in draw.held),
                *(((runs(self.loops[p]), True), p) for p in self._around(draw.path)),
            ]
            for (test, outcome), path in tests:
                # It may hold or not: more sizes than there are, never fewer.
                with suppress(*UNKNOWN):
                    value = self._value(test, draw, path)
                    asked = asked & (value.guessed | (value.at.bool() == outcome))
            draw.reached = asked if draw.caller is None else asked & self._reached(draw.caller)
        return draw.reached

    def _between(self, one: Condition, side: bool, asked: Tensor, draw: _Draw) -> bool:
        """Whether two numbers that are equal at none of the points may be so between them."""
        match one.test:
            case Compare("==" | "!=" as op, left, right) if side == (op == "=="):
                a, b = (self._value(e, draw, one.path).at[asked] for e in (left, right))
                return bool((a > b).any()) and bool((a < b).any())
        return False

    def _value(self, expr: Expr, draw: _Draw, path: Path) -> _Values:
        """`expr` at every point, as it is at one statement on the way."""
        expr = substitute(self.inline(expr), self.constants.get(draw.function, {}))
        expr = never_by_0(map_expr(expr, lambda e: _drawn_call(e) or self.fields.get(e)))
        env, guessed = dict(self.table), False
        for name in sorted(free_names(expr) - env.keys() - CONSTANTS.keys()):
            drawn = self._drawn(name, draw, path)
            env[name], guessed = drawn.at, guessed or drawn.guessed
        return _Values(torch.as_tensor(evaluate(expr, env)).expand_as(self.table["B"]), guessed)

    def _given(self, expr: Expr, caller: _Draw) -> _Values:
        """What a call gives a parameter."""
        if expr not in caller.values:
            caller.values[expr] = self._value(expr, caller, caller.path)
        return caller.values[expr]

    def _drawn(self, name: str, draw: _Draw, path: Path) -> _Values:
        """Values that a name may have at each point: what its function is called with, what a loop
        counts, a batch, a head; else, by guess, a row, a key or a tile."""
        function = draw.function
        loops = self._loops(name, path)
        assigned = None if (function, name) in self.changed else self._assigned(name, path)
        if assigned is not None:
            at, value = assigned
            return self._once((name, at), draw, lambda: self._value(value, draw, at))
        if (function, name) in self.unknown:
            raise KeyError(name)
        if loops:
            counted = [self._once((name, p), draw, partial(self._counted, p, draw)) for p in loops]
            return _Values(one_of([c.at for c in counted], name), any(c.guessed for c in counted))
        return self._once((name, ()), draw, lambda: self._begun(name, draw))

    def _once(self, key: tuple[str, Path], draw: _Draw, made: Callable[[], _Values]) -> _Values:
        """What is drawn for a name as one statement gives it, the first time or again."""
        if key not in draw.values:
            draw.values[key] = made()
        return draw.values[key]

    def _begun(self, name: str, draw: _Draw) -> _Values:
        """Values of a name that no statement gives."""
        function, sizes = draw.function, self.table
        if draw.site is not None and draw.caller is not None and name in draw.site.given:
            with suppress(*UNKNOWN):
                return self._given(draw.site.given[name], draw.caller)
        u = uniform(name, len(sizes["B"]))
        if name == _PROCESSORS.id:  # those of a run, and of cards with more
            return _Values(Limits().sm_count + (u.masked_fill(u < 0.5, 0.0) * MANY).long())
        blocks = sizes["B"] * sizes["Hq"] * tiles(sizes["Nq"], self.tiles.rows)
        limits = {
            self.batch: sizes["B"], self.head: sizes["Hq"],
            _BLOCK.id: blocks, _GROUP.id: WARPGROUPS * torch.ones_like(blocks),
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

    def _counted(self, path: Path, draw: _Draw) -> _Values:
        """What a loop counts, from its start towards its stop."""
        loop = self.loops[path]
        first, end = (self._value(e, draw, path) for e in (loop.start, loop.stop))
        way = climbs(loop)
        step = self._value(loop.step if way is None else Num(1 if way else -1), draw, path)
        u = uniform(loop.var, len(first.at))
        rounds = (u * (end.at - first.at).abs().clamp_min(1)).long()
        at = first.at + torch.where(step.at > 0, rounds, -rounds)
        return _Values(at, first.guessed or end.guessed or step.guessed)

    def _assigned(self, name: str, path: Path) -> tuple[Path, Expr] | None:
        """The nearest statement above another, in a block around it, that gives a name its value,
        and that; where nothing in between gives it another."""
        found = self.assigned.get((str(path[0]), name), [])
        above = [
            (p, value) for p, value in found
            if p[:-1] == path[: len(p) - 1] and len(p) <= len(path)
            and str(p[-1]) != str(path[len(p) - 1]) and int(p[-1]) < int(path[len(p) - 1])
        ]  # fmt: skip
        if not above:
            return None
        at, value = above[-1]
        block, first, last = at[:-1], int(at[-1]), int(path[len(at) - 1])
        for p, _ in found:
            between = p[: len(block)] == block and first < int(p[len(block)]) <= last
            if p != at and between and not _other_branch(p, path, len(block)):
                return None
        return at, value

    def _loops(self, name: str, path: Path) -> list[Path]:
        """The loop around a statement that counts `name`; where none is, all of its function."""
        for at in self._around(path):
            if self.loops[at].var == name:
                return [at]
        return [p for p, s in self.loops.items() if p[0] == path[0] and s.var == name]

    def _around(self, path: Path) -> Iterator[Path]:
        """The loops around a statement, the innermost first."""
        for end in range(len(path) - 1, 0, -1):
            if path[:end] in self.loops and path[end] == "body":
                yield path[:end]

    def _unlike(self, rows: Tensor) -> list[tuple[int, ...]]:
        """The first rows that differ from each other by a tile at least, `SHOWN` at most."""
        out: dict[tuple[int, ...], tuple[int, ...]] = {}
        for first in range(0, len(rows), CHUNK):
            for row in map(tuple, rows[first : first + CHUNK].tolist()):
                *many, q, k = row
                out.setdefault((*many, -(-q // self.tiles.rows), -(-k // self.tiles.keys)), row)
            if len(out) >= SHOWN:
                break
        return list(out.values())[:SHOWN]


def _drawn_call(expr: Expr) -> Name | None:
    """The name that is drawn for a block's or a warpgroup's number, or a card's processors."""
    match expr:
        case Call("sm_count"):
            return _PROCESSORS
        case Call("block_id"):
            return _BLOCK
        case Call("warpgroup_id"):
            return _GROUP
    return None


def _other_branch(one: Path, other: Path, block: int) -> bool:
    """Whether two statements stand in different branches of an `if`, of which one round of the
    block that is so deep in both takes one: no loop in it stands around the `if`."""
    split = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    apart = split > 0 and {one[split], other[split]} == {"then", "other"}
    return apart and "body" not in other[block:split]
