"""What intervals cannot bound, proven by what names stand for: `first * row_blocks` is at most
`work`, since `first` is `work` divided by as much.

A name that is assigned once is its expression, a loop's variable lies between the loop's ends, a
device function is looked at in each of its calls, a block's number is less than its launch has
blocks; everything else (a load, a counter) is any number of its range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import z3

from engine.cuir.nodes import (
    Attr,
    Call,
    Expr,
    For,
    Function,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    children,
    next_of,
    stmt_exprs,
    walk,
    walk_expr,
)
from engine.cuir.nodes import Path as StmtPath
from engine.cuir.ops.traits import BLOCKS, FIELD_VIEWS, STEADY
from engine.cuir.static.calls import callee
from engine.cuir.static.host_constants import constants_of
from engine.gates.analysis.path_conditions import Standing, climbs, standings
from engine.gates.widths.intervals import WIDTHS, Range
from engine.gates.widths.value_ranges import At, Ranges
from engine.prove.solver import Answer, Condition, Goal, Proven, Unknown, prove
from engine.prove.terms import Env, NotWhole, Path, Terms, Value, names_in

ENOUGH = 2
UNSEEN = Unknown("not every place could be looked at")
BUDGET = 400_000  # z3's steps for one question to one solver
_SCALAR = frozenset({
    "min", "max", "abs", "ceil_div", "floor_div", "floor_mod", "i32", "int", "i64", "bool",
})  # fmt: skip

Asked = Mapping[tuple[str, Expr], Range]  # expressions by function, and what must hold each


def proofs(ranges: Ranges, asked: Asked) -> dict[tuple[str, Expr], Answer]:
    """For each expression whether its bounds hold wherever it is reached: the first answer that is
    not proven, where there is one; `Unknown` where some place could not be looked at, and of all
    that comes after `ENOUGH` that are not proven."""
    return _Proofs(ranges, asked).answers()


class _Proofs:
    def __init__(self, ranges: Ranges, asked: Asked) -> None:
        self.ranges, self.asked = ranges, asked
        self.module: Module = ranges.module
        self.function: Function = self.module.functions[0]
        self.found: dict[tuple[str, Expr], Answer] = {}
        self.visited: list[tuple[tuple[str, Expr], Value, Path]] = []
        self.watching = True
        self.unseen: set[str] = set()  # functions of which a call could not be looked at
        self.bounds: list[Condition] = []
        self.launched: list[Condition] = []  # of blocks' numbers, by their launches
        self.path: StmtPath = ()  # of the statement that is looked at
        self.names: dict[tuple[str, StmtPath], Value] = {}
        self.variables: list[tuple[StmtPath, tuple[object, ...], Value]] = []  # of loops
        self.proven: dict[tuple[int, ...], Answer] = {}
        self.kept: list[Condition] = []  # so that no other term gets the id of one that was proven
        self.lambdas: list[At] = []
        self.number = 0
        self.fields = {f.name: z3.Int(f.name) for f in self.module.fields if f.type == "i32"}
        self.terms = _Terms(self)
        self.reached = _reached(self.module)
        self.wanted = {f for f, _ in asked}

    # --- the walk ----------------------------------------------------------------------------

    def answers(self) -> dict[tuple[str, Expr], Answer]:
        for function in self.module.functions:
            if function.kind == "device":
                continue
            self.function = function
            self.names.clear()
            self.variables.clear()
            self.terms.steady.clear()
            self.bounds = list(self._domain(function))
            self.launched.clear()
            for at in standings(function):
                self.path = at.path
                for expr in stmt_exprs(at.stmt):
                    self._statement(expr, at)
        for key in self.asked:
            if key[0] in self.unseen and isinstance(self.found.get(key, Proven("")), Proven):
                self.found[key] = UNSEEN
            self.found.setdefault(key, Unknown("it hangs on more than sizes"))
        return self.found

    def _domain(self, function: Function) -> Iterator[Condition]:
        at = self.ranges.at(function.name)
        for name, term in self.fields.items():
            low, high = self.ranges.of(Attr(Name("args"), name), at) or WIDTHS["i32"]
            yield from (term >= low, term <= high)
        if {"B", "Hq", "Hkv"} <= self.fields.keys():
            group, legal = z3.Int("$group"), self.ranges.legal
            yield self.fields["B"] * self.fields["Hq"] <= legal.pairs
            yield from (group >= 1, group <= legal.heads)
            yield self.fields["Hq"] == group * self.fields["Hkv"]

    def _statement(self, expr: Expr, at: Standing) -> None:
        wrong = sum(not isinstance(answer, Proven) for answer in self.found.values())
        if wrong >= ENOUGH:
            self.unseen |= self.wanted  # what was proven so far was proven in some places alone
        if wrong >= ENOUGH or not self._matters(expr):
            return
        try:
            self.visited, first = [], len(self.terms.needs)
            self.terms.value(expr, self._env())
        except NotWhole:
            self._missed(expr)
            self._parts(expr, at)
            return
        needs = [_implied(n.path, n.claim) for n in self.terms.needs[first:]]
        visited, whole, twins = self.visited, list(needs), list[Condition]()
        for key, value, path in visited:
            low, high = self.asked[key]
            whole.append(_implied(path, z3.And(value >= low, value <= high)))
            # The range beyond it: refuted only where the place can be reached.
            beyond = high + (high - low + 1)
            twins.append(_implied(path, z3.And(value > high, value <= beyond)))
        every = z3.And(*twins)
        if not visited or isinstance(self._prove(z3.And(*whole), every, ()), Proven):
            for key, _, _ in visited:
                self.found.setdefault(key, Proven(""))
            return
        held = self._held(at)
        sure = all(isinstance(self._prove(n, z3.Not(n), held), Proven) for n in needs)
        for (key, _, _), claim, twin in zip(visited, whole[len(needs) :], twins, strict=True):
            if isinstance(self.found.get(key, Proven("")), Proven):
                unsure = Unknown("a divisor in it may be 0 or less")
                self.found[key] = self._prove(claim, twin, held) if sure else unsure

    def _parts(self, expr: Expr, at: Standing) -> None:
        for child in children(expr):
            if isinstance(child, Lambda) and isinstance(expr, Call):
                outer = self.lambdas[-1] if self.lambdas else self.ranges.at(self.function.name)
                self.lambdas.append(self.ranges.inside(expr, outer))
                self._statement(child.body, at)
                self.lambdas.pop()
            else:
                self._statement(child, at)

    def _matters(self, expr: Expr) -> bool:
        return any(
            (self.function.name, n) in self.asked
            or (isinstance(n, Call) and self.reached.get(n.fn, frozenset()) & self.wanted)
            for n in walk_expr(expr)
        )

    def _missed(self, expr: Expr) -> None:
        """A call whose parts alone are looked at tells nothing of the function."""
        if isinstance(expr, Call):
            self.unseen |= self.reached.get(expr.fn, frozenset())

    def _held(self, at: Standing) -> Path:
        """The conditions that hold where a statement stands, as far as there are terms for them."""
        out: list[Condition] = []
        self.watching = False
        for test, side in at.held:
            try:
                truth = self.terms.truth(test, self._env())
            except NotWhole:
                continue
            out.append(truth if side else z3.Not(truth))
        self.watching = True
        return tuple(out)

    def _env(self) -> Env:
        return {"args": self.fields}

    def visit(self, expr: Expr, value: Value, path: Path) -> None:
        function = self.terms.inside or self.function.name
        if self.watching and (function, expr) in self.asked and not z3.is_bool(value):
            self.visited.append(((function, expr), value, path))

    def _prove(self, claim: Condition, twin: Condition, held: Path) -> Answer:
        key = (claim.get_id(), *(c.get_id() for c in held))
        if key not in self.proven:
            answer = self._answer(claim, twin, held, self.bounds)
            if self.launched and not isinstance(answer, Proven):
                # How many blocks there are is a product more, which the solver is spared if it can.
                answer = self._answer(claim, twin, held, [*self.bounds, *self.launched])
            self.proven[key] = answer
            self.kept += [claim, *held]
        return self.proven[key]

    def _answer(
        self, claim: Condition, twin: Condition, held: Path, bounds: Sequence[Condition]
    ) -> Answer:
        given = (*_about([claim, *held], bounds), *held)
        named = names_in(z3.And(claim, *given))
        shown = {name: term for name, term in self.fields.items() if name in named}
        sizes = [n for n in ("Nq", "Nk", "B", "Hq", "Hkv") if n in shown]
        smallest = tuple(shown[n] for n in sizes)
        goal = Goal("a number is held by its type", given, claim, twin, shown, smallest)
        return prove(goal, BUDGET)

    # --- what names stand for ----------------------------------------------------------------

    def any(self, found: Range | None) -> Value:
        """A number of which its range alone is known."""
        self.number += 1
        term = z3.Int(f"${self.number}")
        if found is not None:
            self.bounds += [term >= found[0], term <= found[1]]
        return term

    def below_grid(self, term: Value, axis: int) -> None:
        """A block's number is less than the launch has blocks, where all launches can be read."""
        around = self.function, self.path, self.names, self.lambdas, self.watching
        counts: list[Condition] = []
        first = len(self.terms.needs)
        try:
            for host, path, grid in _launches(self.module, self.function.name):
                self.function, self.path, self.names = host, path, {}
                self.lambdas, self.watching = [], False
                if axis >= len(grid):
                    return
                counts.append(term < self.terms.whole(grid[axis], self._env()))
            needs = [_implied(n.path, n.claim) for n in self.terms.needs[first:]]
            if counts:
                self.launched.append(z3.Implies(z3.And(*needs), z3.Or(*counts)))
        except NotWhole:
            return
        finally:
            del self.terms.needs[first:]
            self.function, self.path, self.names, self.lambdas, self.watching = around

    def name(self, id: str) -> Value:
        """What a name of the kernel stands for. Raises `NotWhole`."""
        for at in reversed(self.lambdas):
            if id in at.given:
                return self.any(self._whole(at.given[id], id))
        hull = self._whole(self.ranges.names.get((self.function.name, id)), id)
        found = self._definition(id)
        if found is None:
            return self.any(hull)
        path, what = found
        if (id, path) not in self.names:
            here, self.path = self.path, path
            try:
                self.names[id, path] = self._defined(path, what, hull)
            finally:
                self.path = here
        return self.names[id, path]

    def _definition(self, id: str) -> tuple[StmtPath, Expr | For] | None:
        """The one assignment or loop that gives a name its number where the statement stands: what
        comes before it in a block around it, if nothing else in that block gives it another."""
        key = (self.function.name, id)
        values, loops = self.ranges.values.get(key, []), self.ranges.loops.get(key, [])
        every: list[tuple[StmtPath, StmtPath, Expr | For]] = [
            *((path, path[:-1], value) for path, value in values),
            *((path, path, loop) for path, loop in loops),
        ]
        around = [one for one in every if self.path[: len(one[1])] == one[1]]
        if not around:
            return None
        path, block, what = max(around, key=lambda one: len(one[1]))
        inside = [other for other, _, _ in every if other[: len(block)] == block and other != path]
        before = isinstance(what, For) or _comes_before(path, self.path)
        return None if inside or not before else (path, what)

    def _whole(self, found: Range | None, id: str) -> Range:
        if found is None:
            raise NotWhole(f"{id} is no whole number")
        return found

    def _defined(self, path: StmtPath, what: Expr | For, hull: Range) -> Value:
        if not isinstance(what, For):
            try:
                return self.terms.whole(what, self._env())
            except NotWhole:
                return self.any(hull)
        ends = [self._end(what.start), self._end(what.stop)]
        way = climbs(what) or next_of(what.step) is not None
        alike = (hull, way, *(None if end is None else end.get_id() for end in ends))
        for other, known, term in self.variables:
            # Loops of the same ends one after another: what is shown of one holds of the other.
            apart = other != path[: len(other)] and path != other[: len(path)]
            if known == alike and apart and None not in alike:
                return term
        term = self.any(hull)
        if way:
            self.bounds += [] if ends[0] is None else [term >= ends[0]]
            self.bounds += [] if ends[1] is None else [term < ends[1]]
        self.variables.append((path, alike, term))
        return term

    def _end(self, end: Expr) -> Value | None:
        try:
            return self.terms.whole(end, self._env())
        except NotWhole:
            return None


class _Terms(Terms):
    """Terms in which everything that is no term of sizes is some number of its range."""

    def __init__(self, owner: _Proofs) -> None:
        functions = owner.module.devices
        super().__init__(functions, constants_of(owner.module), owner.visit)
        self.owner = owner
        self.steady: dict[Expr, Value] = {}

    @property
    def inside(self) -> str:
        """The device function that is being looked into, or nothing."""
        return self._calls[-1] if self._calls else ""

    def _value(self, expr: Expr, env: Env, path: Path) -> Value:
        match expr:
            case Name(id) if id not in env and id not in self.constants and not self.inside:
                return self.owner.name(id)
            case Index():
                return self._any(expr)
            case Call(fn) if fn not in self.functions and fn not in _SCALAR:
                if fn in STEADY and expr in self.steady:
                    return self.steady[expr]
                term = self._any(expr)
                if fn in STEADY:
                    self.steady[expr] = term
                match expr:
                    case Call(fn, (Num(int() as axis),)) if fn in BLOCKS and not self.inside:
                        self.owner.below_grid(term, axis)
                return term
        return super()._value(expr, env, path)

    def _any(self, expr: Expr) -> Value:
        owner = self.owner
        at = owner.ranges.at(self.inside or owner.function.name)
        if owner.lambdas and not self.inside:
            at = owner.lambdas[-1]
        found = owner.ranges.of(expr, at)
        if found is None and not (isinstance(expr, Call) and expr.fn in FIELD_VIEWS):
            raise NotWhole("it is no whole number")
        return owner.any(found)


def _implied(path: Path, claim: Condition) -> Condition:
    return z3.Implies(z3.And(*path), claim) if path else claim


def _comes_before(path: StmtPath, other: StmtPath) -> bool:
    """Whether a statement comes before another one that stands in its block or deeper."""
    at = len(path) - 1
    first, second = path[at], other[at]
    return isinstance(first, int) and isinstance(second, int) and first < second


def _launches(module: Module, kernel: str) -> Iterator[tuple[Function, StmtPath, Sequence[Expr]]]:
    """Where a kernel is launched: the host function, the statement and the grid."""
    hosts = {f.name: f for f in module.functions if f.kind == "host"}
    for path, stmt in walk(module):
        if path[0] not in hosts:
            continue
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                called = callee(node)
                if called is not None and called.name == kernel and called.grid:
                    yield hosts[str(path[0])], path, called.grid


def _reached(module: Module) -> dict[str, frozenset[str]]:
    """The device functions that a call of each one reaches, itself among them."""
    devices = set(module.devices)
    direct: dict[str, set[str]] = {name: {name} for name in devices}
    for path, stmt in walk(module):
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                if isinstance(node, Call) and node.fn in devices and str(path[0]) in devices:
                    direct[str(path[0])].add(node.fn)
    for _ in devices:
        for reached in direct.values():
            reached |= set().union(*(direct[name] for name in reached))
    return {name: frozenset(reached) for name, reached in direct.items()}


def _about(asked: Sequence[Condition], bounds: Sequence[Condition]) -> list[Condition]:
    """The bounds that say something, directly or not, of what is asked."""
    of = [(bound, names_in(bound)) for bound in bounds]
    known = set[str]().union(*map(names_in, asked))
    out: list[Condition] = []
    grown = True
    while grown:
        more = [(b, names) for b, names in of if names & known]
        of = [(b, names) for b, names in of if not names & known]
        out += [b for b, _ in more]
        known |= set[str]().union(*(names for _, names in more))
        grown = bool(more)
    return out
