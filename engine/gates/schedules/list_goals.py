"""What is proven of the kernel that classes the tiles of a mask that reads inputs.

An input is any function of its indices. Of the ops that look at a whole tile what their contracts
say of one pair is used: the least and the greatest of a range bound what stands at the pair, and a
class is none only where the pair is not kept, and all only where it is. What is proven so holds for
whatever the inputs hold. How lists are made of classes is `compact`'s contract (conformance holds
that op to it); where they lie, and that the attention reads them there, runs judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import z3

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Expr,
    For,
    Lambda,
    Module,
    Name,
    Num,
    Stmt,
    Tuple,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.ops.traits import FIELD_VIEWS
from engine.cuir.static.calls import launched
from engine.cuir.static.host_constants import constants_of
from engine.errors import CuirError
from engine.gates.runs.subject import Subject
from engine.gates.schedules.work_pieces import resolved
from engine.prove.domain import Domain
from engine.prove.schedule import ScheduleGoals, TileSchedule
from engine.prove.solver import Condition, Goal, Whole
from engine.prove.terms import NotWhole, Path, Terms, Value, as_whole, constant_of

NONE = "tiles with a kept pair are not classed as empty"
ALL = "tiles that are classed as full hold kept pairs of existing keys alone"
CANDIDATE = "of the candidates for a list: "
_BLOCK = Call("i32", (Call("block_id", (Num(0),)),))
_EACH = Call("block_id", (Num(1),)), Call("grid_dim", (Num(1),))  # of a loop: all, among blocks
_OTHERWISE = "its lists are made in another way"


class _PairTerms(Terms):
    """Terms of one kernel, in which ops over tiles are what they say of the pair (i, j)."""

    def __init__(self, module: Module, i: Whole, j: Whole) -> None:
        super().__init__(module.devices, constants_of(module))
        self.i, self.j = i, j
        self.lemmas: list[Condition] = []

    def _value(self, expr: Expr, env: Mapping[str, Any], path: Path) -> Value:
        match expr:
            case Call("least" | "greatest" as fn, (Lambda((name,), body),), _, (count,)):
                (start,) = self._starts(expr, env, path)
                found = self._any(fn)
                end = start + self.whole(count, env, path)
                for x in (self.i, self.j):
                    value = self.whole(body, {**env, name: x}, path)
                    bound = found <= value if fn == "least" else found >= value
                    self.lemmas.append(z3.Implies(z3.And(x >= start, x < end), bound))
                return found
            case Call("class_of", (Lambda((row, col), body),), _, (rows, cols)):
                first, start = self._starts(expr, env, path)
                found = self._any("class")
                kept = self.truth(body, {**env, row: self.i, col: self.j}, path)
                inside = z3.And(
                    *(self.i >= first, self.i < first + self.whole(rows, env, path)),
                    *(self.j >= start, self.j < start + self.whole(cols, env, path)),
                )
                says = z3.If(kept, found != 0, found != 2)
                self.lemmas += [found >= 0, found <= 2, z3.Implies(inside, says)]
                return found
        return super()._value(expr, env, path)

    def _starts(self, op: Call, env: Mapping[str, Any], path: Path) -> list[Whole]:
        where = dict(op.kwargs).get("at")
        if not isinstance(where, Tuple):
            raise NotWhole(_OTHERWISE)
        return [self.whole(e, env, path) for e in where.items]

    def _any(self, name: str) -> Whole:
        return z3.Int(f"{name}${len(self.lemmas)}")

    def run(self, body: tuple[Stmt, ...], env: dict[str, Any]) -> None:
        """Runs statements that only compute; `env` takes what they assign."""
        if self._block(body, env, ()):
            raise NotWhole(_OTHERWISE)


def list_goals(subject: Subject, domain: Domain, fields: Mapping[str, Value]) -> Iterator[Goal]:
    """The goals about the candidates for a list and about their classes.

    Raises:
        CuirError: the lists are made in another way, or of what is no whole number.
    """
    size, made = domain.sizes, _classing(subject.module)
    b, block, step, i, j = z3.Ints("b block step i j")
    terms = _PairTerms(subject.module, i, j)
    reads = _reads(subject)
    env: dict[str, Any] = {"args": fields, made.loop.var: step}
    by = _before(subject, made, env, terms, b, block)
    rows, keys = (constant_of(terms.value(e, {})) for e in made.sizes)
    if rows is None or keys is None:
        raise NotWhole(_OTHERWISE)
    blocks = terms.whole(by, env)
    if not z3.is_true(z3.simplify(terms.whole(made.blocks, env) - blocks * size["B"] == 0)):
        raise CuirError(_OTHERWISE)
    terms.run(made.classed, env)
    kind, count, n = (as_whole(env[x]) for x in (made.kind, made.count_name, made.index_name))
    pair = {**size, **reads, "b": b, "h": z3.IntVal(0), "i": i, "j": j}
    kept = z3.And(j < size["Nk"], Terms({}, subject.columns).truth(subject.recipe.keep, pair))
    given = (
        *domain.given, b >= 0, b < size["B"], block >= 0, block < blocks, step >= 0, step < count,
        i >= block * rows, i < (block + 1) * rows, i < size["Nq"], j >= 0, j >= n * keys,
        j < (n + 1) * keys, *terms.lemmas,
    )  # fmt: skip
    shown = {**size, "b": b, "i": i, "j": j}
    smallest = (*domain.smallest, i, j)
    yield Goal(NONE, (*given, kept), kind != 0, kind == 2, shown, smallest)
    yield Goal(ALL, given, z3.Implies(kind == 2, kept), kept, shown, smallest)
    asked = TileSchedule(
        count=made.count, index=made.index, full="", lead=None, tail=None,
        params=dict.fromkeys((made.count, made.index), made.params),
        rows=rows, part=rows, keys=keys, by_block=True,
    )  # fmt: skip
    plain = Terms.of(subject.module)
    goals = ScheduleGoals(plain, domain, fields, asked, subject.recipe.keep, reads)
    for stated in islice(goals.stated(), 3):  # the last one is about full tiles
        yield replace(stated.goal, name=CANDIDATE + stated.goal.name)
    if plain.needs or terms.needs:
        raise NotWhole("it divides by what may not be positive")


@dataclass(frozen=True, slots=True)
class _Classing:
    """The kernel that classes tiles: its `loop` over candidates, of which the statements `classed`
    give a tile's number and its class; the device functions of the candidates, with `params`; rows
    and keys of a tile; and how many blocks are launched."""

    before: tuple[Stmt, ...]
    loop: For
    classed: tuple[Stmt, ...]
    kind: str
    count: str
    count_name: str
    index: str
    index_name: str
    params: tuple[Expr, ...]
    sizes: tuple[Expr, ...]
    blocks: Expr


def _classing(module: Module) -> _Classing:
    for kernel in (f for f in module.functions if f.kind == "kernel"):
        for at, loop in enumerate(kernel.body):
            if not isinstance(loop, For) or not isinstance(loop.stop, Name):
                continue
            if (loop.start, loop.step) != _EACH:
                continue
            found = [s for _, s in walk_block(loop.body, ()) if isinstance(s, Assign)]
            before, end = kernel.body[:at], len(loop.body) - 1
            match [s for s in found if isinstance(s.value, Call) and s.value.fn == "class_of"]:
                case [Assign(kind, Call(_, _, _, sizes))] if kind in _put(loop.body[end]):
                    counts = _calls(module, before, 4)
                    indices = _calls(module, loop.body, 5)
                    if list(counts) != [loop.stop.id] or len(indices) != 1:
                        break
                    ((name, index),) = indices.items()
                    count = counts[loop.stop.id]
                    return _Classing(
                        before, loop, loop.body[:end], kind, count.fn, loop.stop.id, index.fn,
                        name, count.params, sizes, _blocks(module, kernel.name),
                    )  # fmt: skip
    raise CuirError(_OTHERWISE)


def _calls(module: Module, body: tuple[Stmt, ...], operands: int) -> dict[str, Call]:
    """The names that are assigned a call of a device function with so many operands."""
    return {
        s.target: s.value
        for s in body
        if isinstance(s, Assign) and isinstance(s.value, Call) and s.value.fn in module.devices
        and len(s.value.args) == operands
    }  # fmt: skip


def _put(stmt: Stmt) -> tuple[str, ...]:
    """The names that a statement puts into memory."""
    return tuple(
        e.args[1].id
        for expr in stmt_exprs(stmt)
        for e in walk_expr(expr)
        if isinstance(e, Call) and e.fn == "put" and isinstance(e.args[1], Name)
    )


def _blocks(module: Module, kernel: str) -> Expr:
    """The first size of the grid that a kernel is launched with."""
    known = frozenset(constants_of(module))
    for host in (f for f in module.functions if f.kind == "host"):
        for path, stmt in walk_block(host.body, (host.name,)):
            found = launched(stmt.value) if isinstance(stmt, Assign) else None
            if found is not None and found.name == kernel and found.grid:
                return resolved(module, path, found.grid[0], known)
    raise CuirError(_OTHERWISE)


def _reads(subject: Subject) -> dict[str, Any]:
    """The inputs of whole numbers and conditions, as functions of their indices."""
    sorts = {"i32": z3.IntSort, "i64": z3.IntSort, "bool": z3.BoolSort}
    return {
        i.name: z3.Function(i.name, *(z3.IntSort() for _ in i.dims), sorts[i.dtype]())
        for i in subject.recipe.extra()
        if i.dtype in sorts and i.dims
    }


def _before(
    subject: Subject, made: _Classing, env: dict[str, Any], terms: _PairTerms, b: Whole,
    block: Whole,
) -> Expr:  # fmt: skip
    """Runs what comes before the loop: the block's number says which rows of which batch it has,
    each of them once. What it is divided by is given back."""
    reads = _reads(subject)
    source = {t.field: t.source for t in subject.binding.tensors if t.dims == t.source_dims}
    split: dict[str, Expr] = {}
    for stmt in made.before:
        match stmt:
            case Assign(target, Call(fn, (Attr(_, field), *_))) if fn in FIELD_VIEWS:
                if source.get(field) in reads:
                    env[target] = reads[source[field]]
            case Assign(target, Binary("%" | "//" as op, number, by)) if number == _BLOCK:
                env[target] = block if op == "%" else b
                split[op] = by
            case _:
                terms.run((stmt,), env)
    if split.keys() != {"%", "//"} or split["%"] != split["//"]:
        raise CuirError(_OTHERWISE)
    return split["%"]
