"""Between which numbers each whole number of a module lies, at every legal size.

Intervals: names by all that is assigned to them, loop variables by their ends, parameters by the
calls, counters by the rounds of the loops around them. Numbers are exact here: whether 32 bits hold
them is what `engine.gates.widths.overflow` asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from engine.cuir.execute.compiled.outputs import written_fields
from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    For,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Path,
    Return,
    Select,
    Tuple,
    Unary,
    children,
    stmt_exprs,
    walk,
    walk_expr,
)
from engine.cuir.ops import OPS
from engine.cuir.ops.traits import FIELD_VIEWS
from engine.cuir.scalar import CASTS
from engine.cuir.static.calls import callee, fields_of
from engine.cuir.static.legal_sizes import COLUMNS, STRIDES, LegalSizes
from engine.gates.analysis.name_facts import constants_in
from engine.gates.analysis.path_conditions import climbs
from engine.gates.widths.intervals import (
    GRID,
    LOADED,
    STEPS,
    WIDTHS,
    Range,
    arithmetic,
    joined,
)
from engine.lower.spelling.cpp_kinds import Kinds, module_kinds
from engine.lower.spelling.templates import default_templates

_ROUNDS = 8  # of the fixed point, after which what still grows counts as any number of its type

_Around = TypeVar("_Around")
Given = Mapping[str, Range | None]  # a lambda's parameters; None: a float


@dataclass(frozen=True, slots=True)
class At:
    """Where an expression stands: a function, and what the lambda parameters around it are."""

    function: str
    kinds: Kinds
    given: Given = field(default_factory=dict)

    def kind(self, expr: Expr) -> str:
        return self.kinds.stored(expr)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an expression stands in the text: a function, and the ops whose lambdas are around it,
    outermost first."""

    function: str
    lambdas: tuple[Call, ...] = ()

    def inside(self, call: Call) -> Place:
        return replace(self, lambdas=(*self.lambdas, call))


class Ranges:
    """The ranges of one module, conversions written out (`engine.lower.spelling.legal`)."""

    def __init__(
        self, module: Module, legal: LegalSizes, results: Mapping[str, Range] | None = None
    ) -> None:
        self.module, self.legal = module, legal
        self.results = results or {}  # what is known of device functions beforehand
        self.kinds = module_kinds(module, default_templates())
        self.written = frozenset(written_fields(module))
        self.constants = {
            function: {n: int(e.value) for n, e in known.items() if isinstance(e, Num)}
            for function, known in constants_in(module).items()
        }
        self.values: dict[tuple[str, str], list[tuple[Path, Expr]]] = {}
        self.loops: dict[tuple[str, str], list[tuple[Path, For]]] = {}
        self.by_path: dict[Path, For] = {}
        self.returned: dict[str, list[Expr]] = {}
        self.calls: dict[str, list[tuple[Place, tuple[Expr, ...], tuple[Expr, ...]]]] = {}
        self.grids: dict[str, list[tuple[Place, tuple[Expr, ...]]]] = {}
        self.posted: list[tuple[Place, Expr]] = []
        self.functions = {f.name: f for f in module.functions}
        self.names: dict[tuple[str, str], Range | None] = {}
        self.counters: set[tuple[str, str]] = set()  # counted in more rounds than are known
        self._read()
        self._settle()

    def run(self) -> frozenset[str]:
        """The functions that may run: the launcher, kernels, and the device functions they reach.
        An edit may leave others, of whose parameters nothing is known."""
        found = {f.name for f in self.module.functions if f.kind != "device"}
        while True:
            more = {
                f for f, calls in self.calls.items() if any(c.function in found for c, *_ in calls)
            }
            if more <= found:
                return frozenset(found)
            found |= more

    def at(self, function: str) -> At:
        return At(function, self.kinds[function])

    def at_place(self, place: Place) -> At:
        at = self.at(place.function)
        for call in place.lambdas:
            at = self.inside(call, at)
        return at

    # --- what the text says ------------------------------------------------------------------

    def _read(self) -> None:
        for path, stmt in walk(self.module):
            function = str(path[0])
            match stmt:
                case Assign(target, value):
                    self.values.setdefault((function, target), []).append((path, value))
                case For(var):
                    self.loops.setdefault((function, var), []).append((path, stmt))
                    self.by_path[path] = stmt
                case Return(value) if value is not None:
                    self.returned.setdefault(function, []).append(value)
            for expr in stmt_exprs(stmt):
                for node, place in placed(expr, Place(function), lambda call, at: at.inside(call)):
                    self._read_call(node, place)

    def _read_call(self, node: Expr, place: Place) -> None:
        called = callee(node)
        if called is None:
            return
        if called.name in self.functions:
            self.calls.setdefault(called.name, []).append((place, called.args, called.consts))
        if called.grid:
            self.grids.setdefault(called.name, []).append((place, called.grid))
        if called.name == "post" and len(called.args) == 2:
            self.posted.append((place, called.args[1]))

    def _settle(self) -> None:
        """The fixed point: what names may be, from nothing on."""
        keys = [*self.values, *(k for k in self.loops if k not in self.values)]
        for function in self.module.functions:
            given = [*(p.name for p in function.params), *function.consts]
            keys += [(function.name, n) for n in given if (function.name, n) not in self.values]
        keys += [(f, "") for f in self.returned]
        pending = [k for k in keys if self._kind(k) in WIDTHS]
        for round in itertools.count():  # ends: from `_ROUNDS` on each key grows once at most
            grown = False
            for key in pending:
                new = self._of_key(key)
                old = self.names.get(key)
                both = new if old is None else joined(old, new)
                if both is None:
                    continue
                width = WIDTHS.get(self._kind(key), WIDTHS["i64"])
                if round >= _ROUNDS and both != old:
                    both = width
                both = max(both[0], width[0]), min(both[1], width[1])
                grown |= both != old
                self.names[key] = both
            if not grown:
                return

    def _kind(self, key: tuple[str, str]) -> str:
        function, name = key
        kinds = self.kinds[function]
        return kinds.results[function] if not name else kinds.locals.get(name, "")

    def _of_key(self, key: tuple[str, str]) -> Range | None:
        function, name = key
        at = self.at(function)
        if not name and function in self.results:
            return self.results[function]
        if not name:
            return joined(*(self.of(e, at) for e in self.returned[function]))
        known = self.constants.get(function, {}).get(name)
        if known is not None:
            return known, known
        parts: list[Range | None] = [self._of_param(function, name)]
        parts += [self.of_variable(loop, at) for _, loop in self.loops.get(key, ())]
        counted: list[tuple[Path, Range]] = []
        for path, value in self.values.get(key, ()):
            step = self._step(name, value, at)
            if step is None:
                parts.append(self.of(value, at))
            else:
                counted.append((path, step))
        base = joined(*(p for p in parts if p is not None))
        return base if base is None or not counted else self._counted(key, base, counted, at)

    def _of_param(self, function: str, name: str) -> Range | None:
        one = self.functions[function]
        params = [p.name for p in one.params]
        names = params if name in params else [*one.consts]
        if name not in names:
            return None
        nth = names.index(name)
        given = [
            (caller, args if name in params else consts)
            for caller, args, consts in self.calls.get(function, ())
        ]
        found = [self.of(e[nth], self.at_place(caller)) for caller, e in given if nth < len(e)]
        return joined(*found) if found else WIDTHS["i32"]

    # --- counters and loops ------------------------------------------------------------------

    def _step(self, name: str, value: Expr, at: At) -> Range | None:
        """What `name = name + step` adds, on each of its ways; None of every other value."""
        match value:
            case Name(id) if id == name:
                return 0, 0
            case Select(_, then, other):
                return joined(self._step(name, then, at), self._step(name, other, at))
            case Binary("+" | "-" as op, Name(id), step) if id == name:
                if any(isinstance(n, Name) and n.id == name for n in walk_expr(step)):
                    return None
                found = self.of(step, at)
                return found if found is None or op == "+" else (-found[1], -found[0])
        return None

    def _counted(
        self, key: tuple[str, str], base: Range, counted: list[tuple[Path, Range]], at: At
    ) -> Range:
        low, high = base
        for path, (least, most) in counted:
            rounds = self.rounds(path, at, self._since(key, path))
            low += min(0, least) * rounds
            high += max(0, most) * rounds
        by_one = all(abs(n) <= 1 for _, step in counted for n in step)
        if by_one and max(-low, high) > STEPS + max(map(abs, base)):
            self.counters.add(key)
            return max(low, base[0] - STEPS), min(high, base[1] + STEPS)
        return low, high

    def _since(self, key: tuple[str, str], path: Path) -> int:
        """How deep the block is in which a counter begins anew before it counts at `path`."""
        deep = 0
        for other, value in self.values.get(key, ()):
            block = other[:-1]
            here = path[: len(block)] == block and len(path) > len(block)
            begins = self._step(key[1], value, self.at(key[0])) is None
            if here and begins and path[len(block)] > other[-1]:  # type: ignore[operator]
                deep = max(deep, len(block))
        return deep

    def rounds(self, path: Path, at: At, since: int = 0) -> int:
        """How often a statement is reached at most, in one run of the block around it of that
        depth."""
        total = 1
        for end in range(since + 1, len(path)):
            loop = self.by_path.get(path[:end])
            if loop is not None:
                start, stop = self.of(loop.start, at), self.of(loop.stop, at)
                if start is None or stop is None:
                    return 2**32
                up, down = stop[1] - start[0], start[1] - stop[0]
                way = climbs(loop)
                total *= max(0, up if way else down if way is False else max(up, down))
        return min(total, 2**32)

    def of_variable(self, loop: For, at: At) -> Range | None:
        """The values of a loop's variable in its body."""
        start, stop = self.of(loop.start, at), self.of(loop.stop, at)
        if start is None or stop is None:
            return None
        up, down = (start[0], max(start[0], stop[1] - 1)), (min(start[1], stop[0] + 1), start[1])
        way = climbs(loop)
        return up if way else down if way is False else joined(up, down)

    # --- expressions -------------------------------------------------------------------------

    def of(self, expr: Expr, at: At) -> Range | None:
        """The range of an expression; None of a float, and of what nothing has reached yet."""
        match expr:
            case Num(value):
                return None if isinstance(value, float) else (int(value), int(value))
            case Name(id):
                if id in at.given:
                    return at.given[id]
                return self.names.get((at.function, id))
            case Attr(_, name):
                if at.kind(expr) == "i64":
                    return -self.legal.most[STRIDES], self.legal.most[STRIDES]
                return self._field(name, at) if at.kind(expr) == "i32" else None
            case Compare() | Bool() | Unary("not", _):
                return 0, 1
            case Index():
                return self._loaded(expr, at)
            case Call(fn, args) if CASTS.get(fn) in WIDTHS:
                return self._cast(CASTS[fn], args[0], at)
            case Call():
                return self._call(expr, at)
            case Select(_, then, other):
                return joined(self.of(then, at), self.of(other, at))
            case Unary(op, operand):
                inner = self.of(operand, at)
                if inner is None:
                    return None
                low, high = inner
                return (-high, -low) if op == "-" else (-high - 1, -low - 1)
            case Binary("*") if (heads := _heads_of_batches(expr)) is not None:
                most = 0 if any(self.of(e, at) == (0, 0) for e in heads[0]) else self.legal.pairs
                least = int(all((self.of(e, at) or (0, 0))[0] for e in heads[0]))
                parts = [self.of(e, at) for e in heads[1]]
                total: Range | None = (least, most)
                for part in parts:
                    total = None if total is None or part is None else arithmetic("*", total, part)
                return total
            case Binary(op, left, right):
                a, b = self.of(left, at), self.of(right, at)
                return None if a is None or b is None or op == "/" else arithmetic(op, a, b)
        return None

    def _field(self, name: str, at: At) -> Range:
        """A kernel runs where there are rows, heads and batches; its launcher is asked without."""
        most = self.legal.most.get(name)
        if name in ("D", "Dv"):
            return 1, COLUMNS
        if most is None:
            return -self.legal.length, self.legal.length
        launched = self.functions[at.function].kind != "host" and name != "Nk"
        return int(launched), most

    def _cast(self, kind: str, operand: Expr, at: At) -> Range | None:
        inner = self.of(operand, at)
        if kind == "bool":
            return 0, 1
        if inner is None:
            floating = at.kind(operand) == "f32"
            return WIDTHS[kind] if floating else None
        low, high = WIDTHS[kind]
        return max(min(inner[0], high), low), min(max(inner[1], low), high)

    def _loaded(self, expr: Index, at: At) -> Range | None:
        kind = at.kind(expr)
        if kind == "bool":
            return 0, 1
        if kind not in WIDTHS:
            return None
        views = self.values.get((at.function, expr.base.id), []) if isinstance(
            expr.base, Name
        ) else []  # fmt: skip
        own = any(
            isinstance(v, Call) and v.fn in FIELD_VIEWS
            and not self.written.isdisjoint(fields_of(v.args[0]))
            for _, v in views
        )  # fmt: skip
        most = self.legal.length if own else LOADED
        return -most, most

    def _call(self, expr: Call, at: At) -> Range | None:
        if expr.fn in self.functions:
            return self.names.get((expr.fn, ""))
        if (spec := OPS.get(expr.fn)) is not None and spec.between is not None:
            return spec.between
        match expr:
            case Call("block_id" | "grid_dim" as fn, (Num(int() as axis),)):
                blocks = self._grid(at.function, axis)
                return (0, blocks - 1) if fn == "block_id" else (1, blocks)
            case Call("claim" | "compact", (_, count, *_)):
                most = self.of(count, at)
                return None if most is None else (0, max(0, most[1]))
            case Call("fetch") if not self.posted:
                return 0, 0  # a run reports it: the word holds nothing
            case Call("fetch"):
                return joined(*(self.of(e, self.at_place(p)) for p, e in self.posted))
            case Call("least" | "greatest", (Lambda(_, body),)):
                return self.of(body, self.inside(expr, at))
        values = [self.of(a, at) for a in expr.args]
        known = [v for v in values if v is not None]
        if not values or len(known) < len(values):
            return None
        match expr.fn, known:
            case "min", [a, b]:
                return min(a[0], b[0]), min(a[1], b[1])
            case "max", [a, b]:
                return max(a[0], b[0]), max(a[1], b[1])
            case "abs", [(low, high)]:
                return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(-low, high)
            case "ceil_div", [a, b]:
                return arithmetic("//", (a[0] + b[0] - 1, a[1] + b[1] - 1), b)
            case "floor_div", [a, b]:
                quotient = arithmetic("//", a, b)
                return quotient[0] - (a[0] < 0 or b[0] < 0), quotient[1]
            case "floor_mod", [a, b]:
                rest = arithmetic("%", a, b)
                limit = max(abs(b[0]), abs(b[1])) - 1
                return (-limit if b[0] < 0 else 0), (limit if a[0] < 0 else rest[1])
        return None

    def _grid(self, kernel: str, axis: int) -> int:
        found = [
            self.of(items[axis], self.at_place(p)) if axis < len(items) else (1, 1)
            for p, items in self.grids.get(kernel, ())
        ]
        hull = joined(*found) if found else None
        return GRID[axis] if hull is None else max(1, min(hull[1], GRID[axis]))

    def inside(self, call: Call, at: At) -> At:
        """Inside an op's lambda: elements of tiles, and coordinates from where `at=[..]` says."""
        found = at.kinds.templates.find(call, at.kinds.has_kind)
        lambda_ = next((a for a in call.args if isinstance(a, Lambda)), None)
        if found is None or lambda_ is None:
            return at
        kinds = at.kinds.lambda_kinds(*found, lambda_)
        where = dict(call.kwargs).get("at")
        places = list(where.items) if isinstance(where, Tuple) else []
        first = len(kinds) - len(places) if len(places) <= len(kinds) else 0
        given: dict[str, Range | None] = dict(at.given)
        for position, (name, kind) in enumerate(zip(lambda_.params, kinds, strict=True)):
            place = position - first
            if 0 <= place < len(places):
                start = self.of(places[place], at)
                given[name] = None if start is None else (start[0], start[1] + self._span(call, at))
            else:
                given[name] = {"i32": (-LOADED, LOADED), "bool": (0, 1)}.get(kind)
        own = dict(zip(lambda_.params, kinds, strict=True))
        return replace(at, kinds=at.kinds.inside(own), given=given)

    def _span(self, call: Call, at: At) -> int:
        """How far an op's coordinates go from where it starts: a tile, or all that it compacts."""
        if call.fn != "compact":
            return 1024
        count = self.of(call.args[1], at)
        return self.legal.length if count is None else max(0, count[1])


def _heads_of_batches(expr: Expr) -> tuple[list[Expr], list[Expr]] | None:
    """The factors of a product of batches and heads, and its other factors."""
    factors, pending = list[Expr](), [expr]
    while pending:
        match pending.pop():
            case Binary("*", left, right):
                pending += [left, right]
            case factor:
                factors.append(factor)
    fields = {f.field: f for f in factors if isinstance(f, Attr)}
    heads = next((n for n in ("Hq", "Hkv") if n in fields), "")
    if "B" not in fields or not heads:
        return None
    chosen: list[Expr] = [fields["B"], fields[heads]]
    for one in chosen:
        factors.remove(one)
    return chosen, factors


def placed(
    expr: Expr, around: _Around, inside: Callable[[Call, _Around], _Around]
) -> Iterator[tuple[Expr, _Around]]:
    """Every expression of `expr`, inner ones first, with what is around it; `inside` says what is
    around the body of an op's lambda."""
    for child in children(expr):
        if isinstance(child, Lambda):
            assert isinstance(expr, Call)
            yield from placed(child.body, inside(expr, around), inside)
        else:
            yield from placed(child, around, inside)
    yield expr, around


def expressions(ranges: Ranges) -> Iterator[tuple[Path, Expr, At]]:
    """Every expression that may run, inner ones first, with where it stands."""
    run = ranges.run()
    for path, stmt in walk(ranges.module):
        if path[0] not in run:
            continue
        for expr in stmt_exprs(stmt):
            for node, at in placed(expr, ranges.at(str(path[0])), ranges.inside):
                yield path, node, at
