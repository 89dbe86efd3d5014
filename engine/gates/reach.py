"""At which sizes a condition comes out one way: by trying very many of them at once.

Nothing is run: a condition is evaluated on a table of sizes, the numbers of blocks, tiles, rows and
keys with them. What comes out one way at no size that a spec allows is no branch; what does so
gives a case to run, or, where no run can be afforded, the sizes that a verdict names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, zip_longest

import torch
from torch import Tensor

from engine.cuir.execute.program import Limits
from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Compare,
    Expr,
    For,
    Index,
    Module,
    Name,
    Num,
    Path,
    walk,
    walk_expr,
)
from engine.cuir.parser import parse_expr
from engine.cuir.scalar import CASTS, CONSTANTS, FUNCTIONS, evaluate
from engine.errors import CuBridgeError
from engine.gates.calls import Inline, Site, call_sites
from engine.gates.conditions import Condition
from engine.gates.deck import Case, Tiles
from engine.gates.kinds import coordinates, parameters
from engine.gates.sizes import SIZES, known_constants, resolved, scalars_of, tiles_of
from engine.gates.subject import Subject
from engine.gates.table import one_of, table_of_sizes, tiles, uniform
from engine.transfer.match import find_attention
from engine.transfer.rewrite import free_names, map_expr, stmt_exprs, substitute

SHOWN = 40
CHUNK = 1000  # points, among which there are mostly as many that differ
MAX_WAYS = 16  # on which a function is called
COUNTED = frozenset({"block_id", "grid_dim", "warpgroup_id"}) | FUNCTIONS.keys() | CASTS.keys()
UNKNOWN = (CuBridgeError, LookupError, RuntimeError, TypeError, ValueError, ArithmeticError)
_BLOCK, _GROUP, _PROCESSORS = Name("$block"), Name("$warpgroup"), Name("$processors")
WARPGROUPS = 8
MANY = 1000  # multiprocessors


@dataclass(frozen=True, slots=True)
class _Frame:
    """A statement of a function on the way to a condition, and the call that led there."""

    path: Path
    site: Site | None


_Way = Mapping[str, _Frame]  # by function


@dataclass(frozen=True, slots=True)
class _Draw:
    """What names are drawn as on one way, by function and name."""

    way: _Way
    values: dict[tuple[str, str], Tensor] = field(default_factory=dict)


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
        self.scalars = scalars_of(module)
        self.constants = _constants(subject.module)
        self.fields: dict[Expr, Expr] = {
            Attr(Name("args"), s.field): parse_expr(s.size, "size") for s in binding.sizes
        }
        self.fields |= {Attr(Name("args"), s.field): s.value for s in binding.scalars}
        self.loops = {p: s for p, s in walk(module) if isinstance(s, For)}
        self.sites = call_sites(subject.module)
        self.assigned: dict[tuple[str, str], list[tuple[Path, Expr]]] = {}
        for path, stmt in walk(module):
            if isinstance(stmt, Assign):
                self.assigned.setdefault((str(path[0]), stmt.target), []).append((path, stmt.value))
        self.changed = _changed(module)
        self.unknown = _data_names(module, self.scalars) | self.changed
        self.places = _places(module)
        self.tiles = tiles_of(module) or Tiles(64, 64)
        try:
            found = find_attention(subject.module)
            self.batch, self.head = (
                e.id if isinstance(e, Name) else "" for e in (found.batch, found.head)
            )
        except CuBridgeError:
            self.batch = self.head = ""
        self.table = table_of_sizes()
        size = torch.tensor(subject.head_dim)
        self.table |= {"D": size, "Dv": size}
        legal = torch.ones_like(self.table["B"], dtype=torch.bool)
        for constraint in subject.recipe.constraints:
            legal &= self._value(constraint, "", _Draw({})) != 0
        self.legal = legal

    def of(self, one: Condition, side: bool) -> Reach:
        """Where `one` is asked and comes out as `side`: by any way on which its function is called,
        under the conditions of the callers."""
        function = str(one.path[0])
        ways = list(islice(self._ways(one.path, {}), MAX_WAYS + 1))
        hit, between = torch.zeros_like(self.legal), False
        for way in ways[:MAX_WAYS]:
            draw = _Draw(way)
            asked = self._asked(one, draw)
            try:
                value = self._value(one.whole, function, draw).bool()
            except UNKNOWN:
                return Reach(True)
            hit |= asked & (value == side)
            between = between or self._between(one, side, asked, draw)
        at = hit.nonzero().flatten()
        if not len(at):
            return Reach(between or len(ways) > MAX_WAYS)
        columns = torch.stack([self.table[n][at] for n in SIZES], -1)
        cost = (columns[:, [0, 1, 3, 4]].double()).prod(-1)
        columns = columns[cost.argsort(stable=True)]
        # A block and a tile are drawn apart, and a mask may let them meet in a square alone.
        squares = self._unlike(columns[columns[:, 3] == columns[:, 4]])
        pairs = zip_longest(self._unlike(columns), squares)
        cheapest = dict.fromkeys(sizes for pair in pairs for sizes in pair if sizes is not None)
        cases = tuple(Case(b, hq, hkv, q, k, modes=("exact",)) for b, hq, hkv, q, k in cheapest)
        return Reach(True, cases)

    def _ways(self, path: Path, below: _Way) -> Iterator[_Way]:
        """The ways to a statement: each of its function's calls, with each of the caller's."""
        function = str(path[0])
        if function in below:  # one that calls itself
            return
        sites = self.sites.get(function, ())
        for site in sites:
            yield from self._ways(site.path, {**below, function: _Frame(path, site)})
        if not sites:
            yield {**below, function: _Frame(path, None)}

    def _asked(self, one: Condition, draw: _Draw) -> Tensor:
        """Where what holds around a condition, and around the calls that lead to it, may hold."""
        function = str(one.path[0])
        asked, held = self.legal, [(function, *row) for row in one.given]
        for frame in draw.way.values():
            if frame.site is not None:
                held += [(str(frame.site.path[0]), *row) for row in frame.site.within]
        for caller, test, outcome in held:
            with suppress(*UNKNOWN):  # it may hold or not: more sizes than there are, never fewer
                asked = asked & (self._value(test, caller, draw).bool() == outcome)
        return asked

    def _between(self, one: Condition, side: bool, asked: Tensor, draw: _Draw) -> bool:
        """Whether two numbers that are equal at none of the points may be so between them."""
        match one.whole:
            case Compare("==" | "!=" as op, left, right) if side == (op == "=="):
                function = str(one.path[0])
                gap = self._value(Binary("-", left, right), function, draw)[asked]
                return bool((gap > 0).any()) and bool((gap < 0).any())
        return False

    def _value(self, expr: Expr, function: str, draw: _Draw) -> Tensor:
        """`expr` at every point. What is drawn for a name is drawn once."""
        expr = substitute(self.inline(expr), self.constants.get(function, {}))
        expr = map_expr(expr, lambda e: _drawn_call(e) or self.fields.get(e))
        env = dict(self.table)
        for name in sorted(free_names(expr) - env.keys() - CONSTANTS.keys()):
            if (function, name) not in draw.values:
                draw.values[function, name] = self._drawn(name, function, draw)
            env[name] = draw.values[function, name]
        return torch.as_tensor(evaluate(expr, env)).expand_as(self.table["B"])

    def _drawn(self, name: str, function: str, draw: _Draw) -> Tensor:
        """Values that a name may have at each point: what its function is called with, what a loop
        counts; else a batch, a head, a row, a key or a tile."""
        frame = draw.way.get(function, _Frame((function,), None))
        names = self.scalars.get(function, {})
        value = names.get(name) or self._assigned(name, frame.path)
        if value is not None and (function, name) not in self.changed:
            return self._value(value, function, draw)
        if (function, name) in self.unknown:
            raise KeyError(name)
        sizes, u = self.table, uniform(name, len(self.table["B"]))
        loops = self._loops(name, frame.path)
        if loops:
            counted: list[Tensor] = []
            for loop in loops:
                start, stop = (
                    self._value(resolved(e, names), function, draw) for e in (loop.start, loop.stop)
                )
                counted.append(start + (u * (stop - start).clamp_min(1)).long())
            return one_of(counted, name)
        if frame.site is not None and name in frame.site.given:
            caller = str(frame.site.path[0])
            with suppress(*UNKNOWN):
                whole = resolved(frame.site.given[name], self.scalars.get(caller, {}))
                return self._value(whole, caller, draw)
        if name == _PROCESSORS.id:  # those of a run, and of cards with more
            return Limits().sm_count + (u.masked_fill(u < 0.5, 0.0) * MANY).long()
        blocks = sizes["B"] * sizes["Hq"] * tiles(sizes["Nq"], self.tiles.rows)
        limits = {
            self.batch: (sizes["B"], 1), self.head: (sizes["Hq"], 1),
            _BLOCK.id: (blocks, 1), _GROUP.id: (WARPGROUPS * torch.ones_like(blocks), 1),
        }  # fmt: skip
        if (function, name) in self.places:
            return one_of([(u * sizes[n]).long() for n in self.places[function, name]], name)
        if name in limits and name:
            return (u * limits[name][0]).long()
        ways = (
            (tiles(sizes["Nk"], self.tiles.keys), 1),
            (tiles(sizes["Nk"], self.tiles.keys), self.tiles.keys),
            (tiles(sizes["Nq"], self.tiles.rows), self.tiles.rows),
            (blocks, 1), (sizes["Nq"], 1), (sizes["Nk"], 1),
        )  # fmt: skip
        return one_of([(u * limit).long() * step for limit, step in ways], name)

    def _assigned(self, name: str, path: Path) -> Expr | None:
        """What a name stands for at a statement, where it is assigned elsewhere only in the other
        branch of an `if` around both."""
        found = self.assigned.get((str(path[0]), name), [])
        above = [
            (p, value) for p, value in found
            if p[:-1] == path[: len(p) - 1] and len(p) <= len(path)
            and str(p[-1]) != str(path[len(p) - 1]) and int(p[-1]) < int(path[len(p) - 1])
        ]  # fmt: skip
        if len(above) != 1:
            return None
        ((at, value),) = above
        apart = all(p == at or _other_branch(at, p) for p, _ in found)
        return value if apart else None

    def _loops(self, name: str, path: Path) -> list[For]:
        """The loop around a statement that counts `name`; where none is, all of its function."""
        for end in range(len(path) - 1, 0, -1):
            loop = self.loops.get(path[:end])
            if loop is not None and loop.var == name:
                return [loop]
        return [s for p, s in self.loops.items() if p[0] == path[0] and s.var == name]

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


def _other_branch(one: Path, other: Path) -> bool:
    """Whether two statements stand in different branches of an `if`."""
    split = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    return split > 0 and {one[split], other[split]} == {"then", "other"}


def _constants(module: Module) -> dict[str, dict[str, Expr]]:
    """By function: the names that stand for one whole number throughout."""
    times = Counter((str(p[0]), s.target) for p, s in walk(module) if isinstance(s, Assign))
    changed = _changed(module)
    return {
        function: {
            n: Num(v)
            for n, v in known.items()
            if times[function, n] < 2 and (function, n) not in changed
        }
        for function, known in known_constants(module).items()
    }


def _changed(module: Module) -> frozenset[tuple[str, str]]:
    """By function: parameters and loop variables that are assigned too. What they are hangs on
    where they are asked, so nothing is said of them."""
    assigned = {(str(p[0]), s.target) for p, s in walk(module) if isinstance(s, Assign)}
    begun = {(f.name, p.name) for f in module.functions for p in f.params}
    begun |= {(str(p[0]), s.var) for p, s in walk(module) if isinstance(s, For)}
    return frozenset(assigned & begun)


def _places(module: Module) -> dict[tuple[str, str], tuple[str, ...]]:
    """By function and name of a lambda's coordinate: the sizes that it stays below. One that stands
    alone may be a row or a key, unless the function has a pair with its name."""
    pairs: dict[tuple[str, str], tuple[str, ...]] = {}
    alone: dict[tuple[str, str], tuple[str, ...]] = {}
    for path, stmt in walk(module):
        function = str(path[0])
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                match coordinates(node) if isinstance(node, Call) else ():
                    case (row, key):
                        for name, size in ((row, "Nq"), (key, "Nk")):
                            known = pairs.get((function, name), ())
                            pairs[function, name] = tuple(dict.fromkeys((*known, size)))
                    case (name,):
                        alone[function, name] = ("Nq", "Nk")
    return alone | pairs


def _data_names(
    module: Module, scalars: Mapping[str, Mapping[str, Expr]]
) -> frozenset[tuple[str, str]]:
    """Names whose values only a run knows: what is loaded, and elements of tiles."""
    out: set[tuple[str, str]] = set()
    for path, stmt in walk(module):
        function = str(path[0])
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                if isinstance(node, Call):
                    out |= {(function, p) for p, tile in parameters(node).items() if tile}
        if isinstance(stmt, Assign) and stmt.target not in scalars.get(function, {}):
            whole = all(
                not isinstance(n, Index) and (not isinstance(n, Call) or n.fn in COUNTED)
                for n in walk_expr(stmt.value)
            )
            if not whole:
                out.add((function, stmt.target))
    return frozenset(out)
