"""What a name may be where a statement stands, by the text: what is assigned to it, what a loop
counts, what its function is called with.

Two judge by it at which sizes a condition comes out one way: a table of very many sizes, and the
solver. What stands for a value there, each of them says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from engine.cuir.nodes import Assign, Attr, Call, Expr, For, Name, Path, walk
from engine.cuir.parser import parse_expr
from engine.cuir.rewrite import map_expr, substitute
from engine.errors import CuBridgeError
from engine.gates.analysis.call_sites import Inline, Site, call_sites
from engine.gates.analysis.name_facts import changed_in, constants_in, data_in, places_in
from engine.gates.analysis.path_conditions import Within, runs, standings
from engine.gates.analysis.size_comparisons import scalars_of
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import Tiles
from engine.gates.runs.subject import Subject
from engine.transfer.match import find_attention

MAX_WAYS = 16  # on which a function is called
UNKNOWN = (CuBridgeError, LookupError, RuntimeError, TypeError, ValueError, ArithmeticError)
BLOCK, GROUP, PROCESSORS = Name("$block"), Name("$warpgroup"), Name("$processors")
WARPGROUPS = 8

V = TypeVar("V")  # a value
R = TypeVar("R")  # where something is reached


@dataclass(eq=False, slots=True)
class Draw(Generic[V, R]):
    """A statement on one way that leads to it: what holds there, the call that its function runs
    by and the same of that; and what has been drawn there, by name or expression."""

    path: Path
    held: Within
    site: Site | None = None
    caller: Draw[V, R] | None = None
    values: dict[Expr | tuple[str, Path], V] = field(default_factory=dict)
    reached: R | None = None

    @property
    def function(self) -> str:
        return str(self.path[0])


class Names(ABC, Generic[V, R]):
    """The names of one subject's module, each as it is on the ways that lead to a statement."""

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
        self.calls: tuple[str, list[Draw[V, R]]] = ("", [])
        self.here: tuple[Path, list[Draw[V, R]]] = ((), [])

    def draws(self, path: Path, held: Within) -> list[Draw[V, R]]:
        """A statement on each way to it, `MAX_WAYS` and one at most."""
        # Conditions of one statement come one after another, and those of one function.
        function = str(path[0])
        if self.calls[0] != function:
            called = self._callers(function, frozenset())
            outer = called if self.sites.get(function) else [Draw[V, R]((), ())]
            self.calls = function, list(islice(outer, MAX_WAYS + 1))
        if self.here[0] != path:
            self.here = path, [replace(one, path=path, values={}) for one in self.calls[1]]
        return [replace(one, held=held) for one in self.here[1]]

    def _callers(self, function: str, below: frozenset[str]) -> Iterator[Draw[V, R]]:
        """A function as it is called: each of its calls, with each of the caller's."""
        below |= {function}
        for site in self.sites.get(function, ()):
            caller = str(site.path[0])
            if caller in below:  # one that calls itself
                continue
            outer = self._callers(caller, below) if self.sites.get(caller) else [Draw[V, R]((), ())]
            for one in outer:
                at = replace(one, path=site.path, held=(), values={}, reached=None)
                yield Draw((function,), (), site, at)

    def tests(self, draw: Draw[V, R]) -> Iterator[tuple[Expr, bool, Path]]:
        """What holds where a statement stands, how it came out, and where it was asked."""
        yield from (
            *((*one, at) for one, at in self.held.get(draw.path, ())),
            *((*one, draw.path) for one in draw.held),
            *((runs(self.loops[p]), True, p) for p in self.around(draw.path)),
        )

    def in_names(self, expr: Expr, draw: Draw[V, R]) -> Expr:
        """`expr` over sizes and names: calls written out, constants and fields of the struct."""
        expr = substitute(self.inline(expr), self.constants.get(draw.function, {}))
        return map_expr(expr, lambda e: _drawn_call(e) or self.fields.get(e))

    def of_name(self, name: str, draw: Draw[V, R], path: Path) -> V:
        """What a name may be: what its function is called with, what a loop counts, a batch, a
        head. Raises KeyError where only a run knows."""
        function = draw.function
        loops = self._loops(name, path)
        assigned = None if (function, name) in self.changed else self._assigned(name, path)
        if assigned is not None:
            at, value = assigned
            return self._once((name, at), draw, lambda: self.value(value, draw, at))
        if (function, name) in self.unknown:
            raise KeyError(name)
        if loops:
            return self.one_of(
                name,
                [self._once((name, p), draw, partial(self.counted, p, draw)) for p in loops],
            )
        return self._once((name, ()), draw, lambda: self._begun(name, draw))

    def _begun(self, name: str, draw: Draw[V, R]) -> V:
        """What a name is that no statement gives a value."""
        if draw.site is not None and draw.caller is not None and name in draw.site.given:
            with suppress(*UNKNOWN):
                return self._given(draw.site.given[name], draw.caller)
        return self.begun(name, draw.function)

    def _given(self, expr: Expr, caller: Draw[V, R]) -> V:
        """What a call gives a parameter."""
        if expr not in caller.values:
            caller.values[expr] = self.value(expr, caller, caller.path)
        return caller.values[expr]

    @abstractmethod
    def value(self, expr: Expr, draw: Draw[V, R], path: Path) -> V:
        """`expr` as it is at one statement on the way. Raises one of `UNKNOWN`."""

    @abstractmethod
    def one_of(self, name: str, values: Sequence[V]) -> V:
        """A name that is one of these values."""

    @abstractmethod
    def counted(self, path: Path, draw: Draw[V, R]) -> V:
        """What a loop counts, from its start towards its stop."""

    @abstractmethod
    def begun(self, name: str, function: str) -> V:
        """A name that no statement and no call gives a value."""

    def _once(self, key: tuple[str, Path], draw: Draw[V, R], made: Callable[[], V]) -> V:
        """What is drawn for a name as one statement gives it, the first time or again."""
        if key not in draw.values:
            draw.values[key] = made()
        return draw.values[key]

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
        for at in self.around(path):
            if self.loops[at].var == name:
                return [at]
        return [p for p, s in self.loops.items() if p[0] == path[0] and s.var == name]

    def around(self, path: Path) -> Iterator[Path]:
        """The loops around a statement, the innermost first."""
        for end in range(len(path) - 1, 0, -1):
            if path[:end] in self.loops and path[end] == "body":
                yield path[:end]


def _drawn_call(expr: Expr) -> Name | None:
    """The name that is drawn for a block's or a warpgroup's number, or a card's processors."""
    match expr:
        case Call("sm_count"):
            return PROCESSORS
        case Call("block_id"):
            return BLOCK
        case Call("warpgroup_id"):
            return GROUP
    return None


def _other_branch(one: Path, other: Path, block: int) -> bool:
    """Whether two statements stand in different branches of an `if`, of which one round of the
    block that is so deep in both takes one: no loop in it stands around the `if`."""
    split = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    apart = split > 0 and {one[split], other[split]} == {"then", "other"}
    return apart and "body" not in other[block:split]
