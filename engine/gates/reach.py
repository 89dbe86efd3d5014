"""At which sizes a condition comes out one way: by trying very many of them at once.

Nothing is run: a condition is evaluated on a table of sizes, the numbers of blocks, tiles, rows and
keys with them. What comes out one way at no size that a spec allows is no branch; what does so
gives a case to run, or, where no run can be afforded, the sizes that a verdict names.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

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
    walk,
    walk_expr,
)
from engine.cuir.parser import parse_expr
from engine.cuir.scalar import CASTS, CONSTANTS, FUNCTIONS, evaluate
from engine.errors import CuBridgeError
from engine.gates.conditions import Condition
from engine.gates.deck import Case, Tiles
from engine.gates.kinds import coordinates, parameters
from engine.gates.sizes import SIZES, known_constants, resolved, scalars_of, tiles_of
from engine.gates.subject import Subject
from engine.transfer.match import find_attention
from engine.transfer.rewrite import free_names, map_expr, stmt_exprs, substitute

LONGEST = 2**17  # rows and keys, each number of them
MANY = 2**12  # batches and heads
LARGEST = 31  # bits of any size
JOINT = 2**17  # points at which all sizes are drawn
END = 0.15  # how often a name has its least value, and how often its largest
SHOWN = 40
CHUNK = 1000  # points, among which there are mostly as many that differ
COUNTED = frozenset({"block_id", "grid_dim", "warpgroup_id"}) | FUNCTIONS.keys() | CASTS.keys()
UNKNOWN = (CuBridgeError, LookupError, RuntimeError, TypeError, ValueError, ArithmeticError)
Table = dict[str, Tensor]
Drawn = dict[tuple[str, str], Tensor]  # by function and name
_BLOCK = Name("$block")


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a condition may come out one way, which is taken for possible where it hangs on what
    only a run knows; and cases in which it may, the cheapest first."""

    possible: bool
    cases: tuple[Case, ...] = ()


class Reaches:
    """What the conditions of one subject's module come out as."""

    def __init__(self, subject: Subject) -> None:
        module, binding = subject.module, subject.binding
        self.subject = subject
        self.scalars = scalars_of(module)
        self.constants = _constants(module)
        self.fields: dict[Expr, Expr] = {
            Attr(Name("args"), s.field): parse_expr(s.size, "size") for s in binding.sizes
        }
        self.fields |= {Attr(Name("args"), s.field): s.value for s in binding.scalars}
        self.loops = {(str(p[0]), s.var): s for p, s in walk(module) if isinstance(s, For)}
        self.given = _given(module)
        self.unknown = _data_names(module, self.scalars)
        self.places = _places(module)
        self.tiles = tiles_of(module) or Tiles(64, 64)
        try:
            found = find_attention(module)
            self.batch, self.head = (
                e.id if isinstance(e, Name) else "" for e in (found.batch, found.head)
            )
        except CuBridgeError:
            self.batch = self.head = ""
        self.table = _sizes()
        size = torch.tensor(subject.head_dim)
        self.table |= {"D": size, "Dv": size}
        legal = torch.ones_like(self.table["B"], dtype=torch.bool)
        for constraint in subject.recipe.constraints:
            legal &= self._value(constraint, "", {}) != 0
        self.legal = legal

    def of(self, one: Condition, side: bool) -> Reach:
        """Where `one` is asked and comes out as `side`."""
        function = str(one.path[0])
        drawn: Drawn = {}
        asked = self.legal
        try:
            value = self._value(one.whole, function, drawn).bool()
        except UNKNOWN:
            return Reach(True)
        for test, outcome in one.given:
            with suppress(*UNKNOWN):  # it may hold or not: more sizes than there are, never fewer
                asked = asked & (self._value(test, function, drawn).bool() == outcome)
        at = (asked & (value == side)).nonzero().flatten()
        if not len(at):
            return Reach(self._between(one, side, asked, drawn))
        columns = torch.stack([self.table[n][at] for n in SIZES], -1)
        cost = (columns[:, [0, 1, 3, 4]].double()).prod(-1)
        columns = columns[cost.argsort(stable=True)]
        # A block and a tile are drawn apart, and a mask may let them meet in a square alone.
        squares = _unlike(columns[columns[:, 3] == columns[:, 4]])
        pairs = zip_longest(_unlike(columns), squares)
        cheapest = dict.fromkeys(sizes for pair in pairs for sizes in pair if sizes is not None)
        cases = tuple(Case(b, hq, hkv, q, k, modes=("exact",)) for b, hq, hkv, q, k in cheapest)
        return Reach(True, cases)

    def _between(self, one: Condition, side: bool, asked: Tensor, drawn: Drawn) -> bool:
        """Whether two numbers that are equal at none of the points may be so between them."""
        match one.whole:
            case Compare("==" | "!=" as op, left, right) if side == (op == "=="):
                function = str(one.path[0])
                gap = self._value(Binary("-", left, right), function, drawn)[asked]
                return bool((gap > 0).any()) and bool((gap < 0).any())
        return False

    def _value(self, expr: Expr, function: str, drawn: Drawn) -> Tensor:
        """`expr` at every point. What is drawn for a name is drawn once."""
        expr = substitute(expr, self.constants.get(function, {}))
        expr = map_expr(expr, lambda e: _BLOCK if _is_block(e) else self.fields.get(e))
        env = dict(self.table)
        for name in sorted(free_names(expr) - env.keys() - CONSTANTS.keys()):
            if (function, name) not in drawn:
                drawn[function, name] = self._drawn(name, function, drawn)
            env[name] = drawn[function, name]
        return torch.as_tensor(evaluate(expr, env)).expand_as(self.table["B"])

    def _drawn(self, name: str, function: str, drawn: Drawn) -> Tensor:
        """Values that a name may have at each point: what its function is called with, what a loop
        counts; else a batch, a head, a row, a key or a tile."""
        if (function, name) in self.unknown:
            raise KeyError(name)
        scalars = self.scalars.get(function, {})
        if name in scalars:
            return self._value(scalars[name], function, drawn)
        sizes, u = self.table, _uniform(name, len(self.table["B"]))
        if (function, name) in self.loops:
            loop, names = self.loops[function, name], self.scalars.get(function, {})
            start, stop = (
                self._value(resolved(e, names), function, drawn) for e in (loop.start, loop.stop)
            )
            return start + (u * (stop - start).clamp_min(1)).long()
        found: list[Tensor] = []
        for caller, actual in self.given.get((function, name), ()):
            with suppress(*UNKNOWN):
                whole = resolved(actual, self.scalars.get(caller, {}))
                found.append(self._value(whole, caller, drawn))
        if found:
            return _one_of(found, name)
        blocks = sizes["B"] * sizes["Hq"] * _tiles(sizes["Nq"], self.tiles.rows)
        limits = {
            self.batch: (sizes["B"], 1), self.head: (sizes["Hq"], 1),
            _BLOCK.id: (blocks, 1),
        }  # fmt: skip
        if (function, name) in self.places:
            return _one_of([(u * sizes[n]).long() for n in self.places[function, name]], name)
        if name in limits and name:
            return (u * limits[name][0]).long()
        ways = (
            (_tiles(sizes["Nk"], self.tiles.keys), 1),
            (_tiles(sizes["Nk"], self.tiles.keys), self.tiles.keys),
            (_tiles(sizes["Nq"], self.tiles.rows), self.tiles.rows),
            (blocks, 1), (sizes["Nq"], 1), (sizes["Nk"], 1),
        )  # fmt: skip
        return _one_of([(u * limit).long() * step for limit, step in ways], name)


def _unlike(rows: Tensor) -> list[tuple[int, ...]]:
    """The first rows that differ from each other, `SHOWN` at most."""
    out: dict[tuple[int, ...], None] = {}
    for first in range(0, len(rows), CHUNK):
        out |= dict.fromkeys(map(tuple, rows[first : first + CHUNK].tolist()))
        if len(out) >= SHOWN:
            break
    return list(out)[:SHOWN]


def _one_of(values: list[Tensor], name: str) -> Tensor:
    """At each point one of the values."""
    way = (_uniform(f"way of {name}", len(values[0])) * len(values)).long()
    return torch.stack(values).gather(0, way[None])[0]


def _is_block(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.fn == "block_id"


def _given(module: Module) -> dict[tuple[str, str], list[tuple[str, Expr]]]:
    """By device function and parameter: the callers, and what they call it with."""
    params = {f.name: [p.name for p in f.params] for f in module.functions if f.kind == "device"}
    out: dict[tuple[str, str], list[tuple[str, Expr]]] = {}
    for path, stmt in walk(module):
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                if isinstance(node, Call) and node.fn in params:
                    for param, actual in zip(params[node.fn], node.args, strict=False):
                        out.setdefault((node.fn, param), []).append((str(path[0]), actual))
    return out


def _sizes() -> Table:
    """Every length, number of batches and of heads alone, all of them at once, and all together."""
    one = torch.ones((), dtype=torch.int64)
    powers = 2 ** torch.arange(LARGEST)
    lengths, many = (torch.cat([torch.arange(1, n + 1), powers]) for n in (LONGEST, MANY))
    parts: list[tuple[Tensor, ...]] = [
        (one, one, one, 3 * one, lengths), (one, one, one, lengths, 5 * one),
        (one, one, one, lengths, lengths), (many, one, one, 3 * one, 5 * one),
        (one, many, one, 3 * one, 5 * one), (one, many, many, 3 * one, 5 * one),
        (many, one, one, 5 * one, 5 * one), (one, many, many, 5 * one, 5 * one),
    ]  # fmt: skip

    def drawn(name: str, largest: int) -> Tensor:
        return (2 ** (_uniform(name, JOINT) * math.log2(largest + 1))).long()

    square = _uniform("square", JOINT) < 0.5
    rows, keys, kv = drawn("Nq", 2**24), drawn("Nk", 2**24), drawn("Hkv", 16)
    group = torch.where(_uniform("equal", JOINT) < 0.5, one, drawn("group", 8))
    parts.append((drawn("B", 16), kv * group, kv, torch.where(square, keys, rows), keys))
    made = [torch.broadcast_tensors(*part) for part in parts]  # type: ignore[no-untyped-call]
    return {n: torch.cat([part[k] for part in made]) for k, n in enumerate(SIZES)}


def _uniform(name: str, count: int) -> Tensor:
    """From 0 to below 1, the same ones for a name each time; the ends often."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(count, generator=generator, dtype=torch.float64)
    ends = torch.rand(count, generator=generator)
    return u.masked_fill(ends < END, 0.0).masked_fill(ends > 1 - END, 1 - 1e-9)


def _tiles(length: Tensor, tile: int) -> Tensor:
    return (length + tile - 1) // tile


def _constants(module: Module) -> dict[str, dict[str, Expr]]:
    """By function: the names that stand for one whole number throughout."""
    times = Counter((str(p[0]), s.target) for p, s in walk(module) if isinstance(s, Assign))
    return {
        function: {n: Num(v) for n, v in known.items() if times[function, n] < 2}
        for function, known in known_constants(module).items()
    }


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
