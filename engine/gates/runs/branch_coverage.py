"""Which sides of its conditions a module takes while the deck runs.

A side that no run takes is one that nobody has tested: right answers at every size of a deck say
nothing about it. Elements of a tile past the last row or key count for nothing, since no output
shows them; nor do those for which an outer condition has already chosen another way.

Runs in the torch child only.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engine.cuir.execute.compiled.code import PART, Code, Instr, Kind, Stopped
from engine.cuir.execute.compiled.compiler import ProgramCompiler
from engine.cuir.execute.compiled.op_site import OpSite
from engine.cuir.execute.compiled.program import Coverage
from engine.cuir.nodes import Bool, Call, Compare, Expr, Module, Path, Select, Stmt
from engine.cuir.ops import OpSpec
from engine.cuir.scalar import Env, Fn, Mode
from engine.errors import CuBridgeError
from engine.gates.analysis.conditions import Condition, Key, new_conditions
from engine.gates.analysis.float_expressions import coordinates, parameters
from engine.transfer.match import find_attention


@dataclass(slots=True)
class Watch:
    """What the runs of a deck take, of the conditions that an edit brought. `rows` and `keys` are
    those of the run that is under way. `sampled` are the sides, in words, that a table of sizes
    found at none, and no proof."""

    base: Module
    watched: tuple[Condition, ...]
    seen: dict[Key, set[bool]] = field(default_factory=dict)
    ran: set[Path] = field(default_factory=set)
    rows: int = 0
    keys: int = 0
    sampled: list[str] = field(default_factory=list)

    @staticmethod
    def of(base: Module, module: Module) -> Watch:
        """A watch on the edit that leads from `base` to `module`."""
        return Watch(base, new_conditions(base, module))

    def compiler(self, module: Module, mode: Mode) -> ProgramCompiler:
        """What turns the module into code that reports here."""
        return _Watching(module, mode, self)

    def finished(self, coverage: Coverage) -> None:
        """Takes in which statements a run reached."""
        self.ran |= {path for path, count in coverage.ops.items() if count}

    def unseen(self) -> tuple[tuple[Condition, bool], ...]:
        """The conditions that no run took one way, and which way that is."""
        return tuple((one, s) for one in self.watched for s in one.sides if not self.has(one, s))

    def words(self) -> str:
        """What a verdict says of sides that nobody took, and of which no proof says that none
        can."""
        if not self.sampled:
            return ""
        more = f" and {len(self.sampled) - 1} more" if len(self.sampled) > 1 else ""
        return f"that no size has {self.sampled[0]}{more} was sampled in a table of sizes"

    def has(self, one: Condition, side: bool) -> bool:
        """Whether a run took this side."""
        if one.loop:
            return (*one.path, "body", 0) in self.ran
        return side in self.seen.get(one.key, ())

    def note(self, key: Key, value: Any, counts: list[Any]) -> None:
        """One value of a condition, of one element or of a tile of them, where all of `counts`
        hold."""
        seen = self.seen.setdefault(key, set())
        what = torch.as_tensor(value) != 0
        held = torch.ones((), dtype=torch.bool)
        for count in counts:
            held = held & (torch.as_tensor(count) != 0)
        seen |= {side for side in (True, False) if bool((held & (what == side)).any())}


class _Watching(ProgramCompiler):
    """A compiler whose conditions tell a watch what they give."""

    def __init__(self, module: Module, mode: Mode, watch: Watch) -> None:
        self._watch = watch
        self._watched = {o.key: o for o in watch.watched if not o.loop and not o.ends}
        self._ends = {o.path: o.key for o in watch.watched if o.ends}
        self._op: Call | None = None
        self._inside: tuple[tuple[Expr, bool, Fn], ...] = ()
        self._rows = _first_row(module)
        super().__init__(module, mode)

    def stmt(self, code: Code, stmt: Stmt, path: Path, index: int) -> None:
        super().stmt(code, stmt, path, index)
        key = self._ends.get(path)
        if key is not None:  # what comes next is not run after a return
            ended = Instr(Kind.EXPR, index)
            ended.fn = lambda _: self._watch.note(key, True, [])
            code.instrs.append(ended)

    def site(self, spec: OpSpec, call: Call, index: int) -> OpSite:
        outer, self._op = self._op, call
        try:
            return super().site(spec, call, index)
        finally:
            self._op = outer

    def compile(self, expr: Expr) -> Fn:
        match expr:
            case Select(cond, then, other):
                test = self.compile(cond)
                ways = (
                    self._way(cond, side, test, e) for side, e in ((True, then), (False, other))
                )
                fn = self.select(test, *ways)
            case Bool(op, left, right):
                first = self.compile(left)
                fn = self.logic(op, first, self._way(left, op == "and", first, right))
            case _:
                fn = super().compile(expr)
        path = self.paths[self._path]
        one = self._watched.get((path, expr, tuple((e, side) for e, side, _ in self._inside)))
        return fn if one is None else self._telling(one, expr, fn)

    def _way(self, cond: Expr, side: bool, test: Fn, expr: Expr) -> Fn:
        """One way of an expression, which counts where the test comes out as that side."""
        outer, self._inside = self._inside, (*self._inside, (cond, side, test))
        try:
            return self.compile(expr)
        finally:
            self._inside = outer

    def _telling(self, one: Condition, expr: Expr, fn: Fn) -> Fn:
        watch, key, op, inside = self._watch, one.key, self._op, self._inside
        rows = self._row_of(str(one.path[0]))
        seen = watch.seen.setdefault(key, set())
        match one.test:
            case Compare("!=", left, _) if left == expr:
                test = None  # whether it is 0
            case test_expr:
                test = fn if test_expr == expr else super().compile(test_expr)

        def told(env: Env) -> Any:
            value = fn(env)
            if len(seen) < 2:
                what = value != 0 if test is None else value if test is fn else test(env)
                if not _may_add(what, seen):
                    return value
                counts = [_same(held(env), side) for _, side, held in inside]
                counts += _in_tensor(op, env, rows, watch)
                watch.note(key, what, counts)
            return value

        return told

    def _row_of(self, function: str) -> Fn | None:
        if self._rows is None or self._rows[0] != function:
            return None
        return super().compile(self._rows[1])


def _may_add(what: Any, seen: set[bool]) -> bool:
    """Whether there is a side among these values that has not been seen."""
    if not isinstance(what, Tensor):
        return bool(what) not in seen
    return any(bool(((what != 0) == side).any()) for side in {True, False} - seen)


def _same(value: Any, side: bool) -> Any:
    return (torch.as_tensor(value) != 0) == side


def _first_row(module: Module) -> tuple[str, Expr] | None:
    """The kernel with the attention, and the first row of its score tiles."""
    try:
        found = find_attention(module)
    except CuBridgeError:
        return None
    return found.kernel, found.sites[0].rows


def _in_tensor(op: Call | None, env: Env, rows: Fn | None, watch: Watch) -> list[Tensor]:
    """Which elements of a lambda lie inside the tensors: rows are a column, keys a row."""
    if op is None:
        return []
    out: list[Tensor] = []
    for name in coordinates(op):
        value = env.get(name)
        if isinstance(value, Tensor):
            out.append(value < (watch.rows if value.shape[-1] == 1 else watch.keys))
    tiles = [env.get(name) for name, tile in parameters(op).items() if tile is not None]
    count = max((t.shape[0] for t in tiles if isinstance(t, Tensor)), default=1)
    if not out and rows is not None and count > 1:
        with suppress(Stopped, KeyError):
            first = rows(env) + env[PART].local * count
            out.append(torch.arange(first, first + count)[:, None] < watch.rows)
    return out
