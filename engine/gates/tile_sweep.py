"""A tile schedule held to its mask, without running a kernel: at very many sizes at once.

What a schedule's functions say of a tile are whole numbers, which follow from lengths alone where
the mask reads indices only. So for each part of a block: a tile with a kept pair is visited once,
one that is called full holds kept pairs alone, and there is no tile before the first or after the
last. The pairs come from the recipe's own predicate. Large tiles are looked at in their corners
and their middle: what is found there is wrong in any case.

Runs in the torch child only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from engine.cuir.device_scalars import DeviceScalars, constants_of
from engine.cuir.integers import integers_in
from engine.cuir.nodes import Call, Index, Name, walk_block, walk_expr
from engine.cuir.parser import parse_expr
from engine.cuir.scalar import Fn, evaluate
from engine.errors import CuBridgeError
from engine.gates.cases import bent
from engine.gates.deck import Case
from engine.gates.schedule_asked import Asked, asked_schedule
from engine.gates.subject import Failure, Subject, op_text
from engine.gates.sweep_sizes import sweep
from engine.transfer.rewrite import free_names, stmt_exprs

MAX_WORK = 120_000_000  # operations on pairs and steps: about 2 s
CHUNK = 500_000  # pairs at once
MAX_SIZES = 64  # at once
ALL_PAIRS = 8192  # of a size: with more, each tile's corners and middle
FUNCTION = 20  # what an element of a schedule function costs
POINTWISE = 1500  # and one that is evaluated by itself
LAST_HEAD = 64  # sizes at which the last one is looked at too where the mask knows no heads
MOST = 4  # visits for each tile that there is
UNKNOWN = (CuBridgeError, LookupError, RuntimeError, TypeError, ValueError, ArithmeticError)


@dataclass(frozen=True, slots=True)
class Swept:
    """How many sizes a schedule was held to its mask at; what is wrong; or why it was not held."""

    sizes: int = 0
    failure: Failure | None = None
    skipped: str = ""

    def words(self) -> str:
        """What a verdict says of it; nothing where the schedule was held to its mask."""
        why = self.skipped
        return f"the tile schedule was held to its mask in runs alone: {why}" if why else ""


def swept(subject: Subject) -> Swept:
    """Holds the subject's tile schedule to its recipe's mask, at the sizes that the spec allows."""
    if subject.unread:
        return Swept()
    if subject.binding.workspace is not None:
        return Swept(skipped="its tiles are listed by what the inputs hold")
    if any(isinstance(node, Index) for node in walk_expr(subject.recipe.keep)):
        return Swept(skipped="the mask reads inputs")
    try:
        return _Sweep(subject, asked_schedule(subject.module)).run()
    except UNKNOWN as error:
        words = str(error) if isinstance(error, CuBridgeError) else "it reads what is no size"
        return Swept(skipped=words.splitlines()[0])


@dataclass(frozen=True, slots=True)
class _Seen:
    """One chunk of sizes: [sizes, parts, tiles], where a part or a tile may lie beyond a size."""

    nk: Tensor
    row0: Tensor
    exists: Tensor
    i: Tensor
    j: Tensor
    keep: Tensor  # [sizes, parts, tiles, rows, keys]
    held: Tensor  # whether a tile has a kept pair, of those that are looked at
    whole: Tensor  # whether it has kept pairs alone


class _Sweep:
    def __init__(self, subject: Subject, asked: Asked) -> None:
        module = subject.module
        self.subject, self.asked, self.at = subject, asked, asked.extent
        self.functions = {f.name: f for f in module.functions if f.kind == "device"}
        scalars = DeviceScalars(self.functions, constants_of(module))
        self.names = asked.names
        given = {
            self.names.count: ("q0",), self.names.index: ("q0", "step"),
            self.names.full: ("row", "n"), self.names.lead: ("q0", "row0"),
        }  # fmt: skip
        self.calls: dict[str, Fn] = {}
        for name, params in asked.params.items():
            operands = tuple(Name(n) for n in ("args", "b", "h", *given[name]))
            self.calls[name] = scalars.compile(Call(name, operands, (), params))
        self.pointwise: set[str] = set()
        self.spent = 0
        self.cost = sum(1 for _ in walk_expr(subject.recipe.keep))

    def run(self) -> Swept:
        done = 0
        for cases in self._chunks():
            for b, h in self._heads(cases[0], done):
                failure = self._failure(cases, b, h)
                if failure is not None:
                    return Swept(done, failure)
            done += len(cases)
            if self.spent > MAX_WORK:
                break
        return Swept(done)

    def _heads(self, case: Case, done: int) -> list[tuple[int, int]]:
        """Batches and heads that are looked at: all where the mask knows them."""
        if {"b", "h"} & free_names(self.subject.recipe.keep):
            return list(product(range(case.B), range(case.Hq)))
        last = (case.B - 1, case.Hq - 1)
        return [(0, 0), last] if done < LAST_HEAD and last != (0, 0) else [(0, 0)]

    def _numbers(self) -> list[int]:
        schedule = [
            expr
            for name in self._called()
            for _, stmt in walk_block(self.functions[name].body, (name,))
            for expr in stmt_exprs(stmt)
        ]
        own = integers_in([self.subject.recipe.keep])
        return [*reversed(own), *reversed(integers_in(schedule))]

    def _called(self) -> list[str]:
        """The schedule's functions and those that they call."""
        found = list(self.calls)
        for name in found:  # grows
            for _, stmt in walk_block(self.functions[name].body, (name,)):
                nodes = (n for e in stmt_exprs(stmt) for n in walk_expr(e))
                called = [n.fn for n in nodes if isinstance(n, Call) and n.fn in self.functions]
                found += [n for n in dict.fromkeys(called) if n not in found]
        return found

    def _chunks(self) -> Iterator[list[Case]]:
        """Cases that the spec allows, a few at a time that are alike."""
        known: set[Case] = set()
        chunk: list[Case] = []
        for nq, nk in sweep(self.at, self._numbers()):
            ways = (Case(2, 4, 2, nq, nk), Case(1, 1, 1, nq, nk))
            case = next((c for way in ways if (c := bent(self.subject, way)) is not None), None)
            if case is None or case in known:
                continue
            known.add(case)
            if chunk and not self._alike([*chunk, case]):
                yield chunk
                chunk = []
            chunk.append(case)
        if chunk:
            yield chunk

    def _alike(self, cases: Sequence[Case]) -> bool:
        first = cases[0]
        heads = all((c.B, c.Hq, c.Hkv) == (first.B, first.Hq, first.Hkv) for c in cases)
        parts, tiles = self._most(cases)
        few = sum(-(-c.Nq // self.at.part) * max(-(-c.Nk // self.at.keys), 1) for c in cases)
        waste = len(cases) * parts * tiles > 2 * few + 64
        rows, keys = self._places(parts, tiles)
        work = len(cases) * parts * tiles * len(rows) * len(keys)
        return heads and not waste and len(cases) <= MAX_SIZES and work <= CHUNK

    def _most(self, cases: Sequence[Case]) -> tuple[int, int]:
        parts = max(-(-c.Nq // self.at.part) for c in cases)
        return parts, max(1, *(-(-c.Nk // self.at.keys) for c in cases))

    def _places(self, parts: int, tiles: int) -> tuple[list[int], list[int]]:
        """Rows of a part and keys of a tile that are looked at."""
        rows, keys = self.at.part, self.at.keys
        if parts * tiles * rows * keys <= ALL_PAIRS:
            return list(range(rows)), list(range(keys))
        return _corners(rows), _corners(keys)

    def _seen(self, cases: Sequence[Case], env: Mapping[str, Any]) -> _Seen:
        at = self.at
        parts, tiles = self._most(cases)
        rows, keys = (torch.tensor(p) for p in self._places(parts, tiles))
        nq, nk = env["Nq"], env["Nk"]
        row0 = (torch.arange(parts) * at.part)[None, :, None]
        i = torch.minimum(row0[..., None, None] + rows[:, None], nq[..., None, None] - 1)
        j = (torch.arange(tiles) * at.keys)[:, None, None] + keys
        five = {n: v[..., None, None] for n, v in env.items() if isinstance(v, Tensor)}
        keep = evaluate(self.subject.recipe.keep, {**env, **five, "i": i, "j": j})
        keep = (torch.as_tensor(keep) != 0) & (j < five["Nk"])
        keep = keep.expand((len(cases), parts, tiles, len(rows), len(keys)))
        self.spent += keep.numel() * self.cost
        exists = row0 < nq
        pairs = keep.flatten(3)
        return _Seen(nk, row0, exists, i, j, keep, pairs.any(3) & exists, pairs.all(3))

    def _value(self, name: str, env: Mapping[str, Any], **at: Tensor) -> Tensor:
        """A schedule function at all points at once; at one after another where it branches."""
        sizes = [v for v in env["args"].values() if isinstance(v, Tensor)]
        shape = sum((torch.zeros_like(t) for t in (*at.values(), *sizes)), torch.zeros(())).shape
        if name not in self.pointwise:
            try:
                value = torch.as_tensor(self.calls[name]({**env, **at})).expand(shape)
            except (RuntimeError, TypeError, ValueError):
                self.pointwise.add(name)
            else:
                self.spent += value.numel() * FUNCTION
                return value
        points = {n: t.expand(shape).flatten().tolist() for n, t in at.items()}
        fields = {
            n: v.expand(shape).flatten().tolist()
            for n, v in env["args"].items()
            if isinstance(v, Tensor)
        }
        out: list[int] = []
        for k in range(shape.numel()):
            args = {**env["args"], **{n: v[k] for n, v in fields.items()}}
            here = {**env, "args": args, **{n: p[k] for n, p in points.items()}}
            out.append(int(self.calls[name](here)))
        self.spent += shape.numel() * POINTWISE
        return torch.tensor(out).view(shape)

    def _env(self, cases: Sequence[Case], b: int, h: int) -> dict[str, Any]:
        binding = self.subject.binding
        known: dict[str, Any] = cases[0].sizes | self.subject.columns
        for name in ("Nq", "Nk"):
            known[name] = torch.tensor([c.sizes[name] for c in cases])[:, None, None]
        fields = {s.field: evaluate(parse_expr(s.size, "size"), known) for s in binding.sizes}
        for scalar in binding.scalars:
            if not free_names(scalar.value) - known.keys():
                fields[scalar.field] = evaluate(scalar.value, known)
        return {**known, "args": fields, "b": b, "h": h}

    def _failure(self, cases: Sequence[Case], b: int, h: int) -> Failure | None:
        env, at, names = self._env(cases, b, h), self.at, self.names
        seen = self._seen(cases, env)
        row0, exists = seen.row0, seen.exists
        q0 = row0 // at.rows * at.rows
        held, tiles = seen.held, seen.keep.shape[2]
        there = (seen.nk + at.keys - 1) // at.keys
        count = self._value(names.count, env, q0=q0).masked_fill(~exists, 0)
        found = _Found(self, cases, seen, b, h)
        many = count > MOST * (there + 1)
        if bool(many.any()):
            return found.at(names.count, many, "more tiles are visited than there are")
        lead = torch.zeros_like(count)
        if names.lead is not None:
            lead = self._value(names.lead, env, q0=q0, row0=row0).broadcast_to(count.shape)
            over = (count > 0) & ((lead > count) | (lead < 0))
            if bool(over.any()):
                words = "more tiles are passed over than the block has, or fewer than none"
                return found.at(names.lead, over, words)
        steps = torch.arange(max(int(count.max()), 0))
        block = steps < count
        n = self._value(names.index, env, q0=q0, step=steps).expand(block.shape)
        inside = (n >= 0) & (n < there)
        outside = block & ~inside
        if bool(outside.any()):
            s, g, step = _first(outside)
            words = f"tile {int(n[s, g, step])} is visited, and there are {int(there[s])}"
            return found.at(names.index, outside.any(2, keepdim=True), words)
        by_block, mine = _visits(n, block, tiles), _visits(n, block & (steps >= lead), tiles)
        lost = held & (mine == 0)
        if bool((lost & (by_block == 0)).any()):
            name = found.changed(names.count, names.index)
            return found.pair(name, lost & (by_block == 0), True, "is never visited")
        if bool(lost.any()):
            return found.pair(names.lead or names.count, lost, True, "is passed over")
        twice = held & (mine > 1)
        if bool(twice.any()):
            return found.pair(names.index, twice, True, "is visited more than once")
        tile = torch.arange(tiles)
        full = self._value(names.full, env, row=q0 if self.asked.by_block else row0, n=tile) != 0
        wrong = full & (mine > 0) & exists & ~seen.whole
        if bool(wrong.any()):
            return found.pair(names.full, wrong, False, "is called full")
        return None


@dataclass(frozen=True, slots=True)
class _Found:
    """Words for what is wrong, at the first size of a chunk that has it."""

    sweep: _Sweep
    cases: Sequence[Case]
    seen: _Seen
    b: int
    h: int

    def changed(self, *names: str) -> str:
        """The one of these functions that the edit changed, else the first."""
        watch = self.sweep.subject.watch
        before = {} if watch is None else {f.name: f for f in watch.base.functions}
        now = self.sweep.functions
        return next((n for n in names if n in before and before[n] != now[n]), names[0])

    def at(self, name: str, bad: Tensor, words: str) -> Failure:
        s, g, _ = _first(bad)
        row = int(self.seen.row0[0, g, 0])
        return self._failure(name, s, f"{words}, for the rows from {row} on", {"i": row, "j": 0})

    def pair(self, name: str, bad: Tensor, kept: bool, words: str) -> Failure:
        """A tile and the first pair in it that is kept, or is not."""
        s, g, n = _first(bad)
        r, c = (int(x) for x in (self.seen.keep[s, g, n] == kept).nonzero()[0])
        i = int(self.seen.i[s, g, 0, r, 0])
        j = int(self.seen.j[n, 0, c])
        beyond = not kept and j >= self.cases[s].Nk
        does = "has no such key" if beyond else "is kept" if kept else "is not kept"
        says = "masks a key that the spec keeps" if kept else "keeps a key that the spec masks"
        diagnosis = f"the tile schedule is wrong: in this row the target {says} (j={j})"
        example = {"i": i, "j": j, "expected": kept, "got": not kept, "diagnosis": diagnosis}
        return self._failure(name, s, f"tile {n} {words} and the pair ({i}, {j}) {does}", example)

    def _failure(self, name: str, s: int, words: str, example: Mapping[str, Any]) -> Failure:
        case = self.cases[s]
        last = len(self.sweep.functions[name].body) - 1
        reason = f"the tile schedule is wrong at {case}: {words} ({name})"
        more = {"b": self.b, "h": self.h, **example, "case": str(case)}
        return Failure(reason, op=op_text((name, last)), counterexample=more)


def _visits(n: Tensor, counted: Tensor, tiles: int) -> Tensor:
    """How often each tile is visited, from the tile of each step."""
    out = torch.zeros((*n.shape[:2], tiles), dtype=torch.int64)
    return out.scatter_add(2, n.clamp(0, tiles - 1), counted.long())


def _first(bad: Tensor) -> tuple[int, int, int]:
    s, g, last = (int(x) for x in bad.nonzero()[0])
    return s, g, last


def _corners(length: int) -> list[int]:
    """The first, the middle and the last of a tile's rows or keys."""
    ends = {0, 1, length // 2, length - 2, length - 1}
    return sorted(p for p in ends if 0 <= p < length)
