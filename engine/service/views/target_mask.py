"""A target's own mask at given sizes: its tile schedule and its keep predicate, evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Expr,
    Index,
    Lambda,
    Module,
    Name,
    Slice,
    Stmt,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.ops import OPS
from engine.cuir.ops.spec import Trait
from engine.cuir.ops.traits import CONDITIONS, MASKS, REGISTER_LOADS
from engine.cuir.rewrite import map_expr, substitute
from engine.cuir.scalar import Env
from engine.cuir.static.device_scalars import MAX_STEPS
from engine.cuir.static.host_constants import scalars_of
from engine.errors import CuirError
from engine.service.views.drawn_lists import DrawnLists
from engine.transfer.match import definitions, find_attention

_DEPTH = 32


class TileClass(StrEnum):
    """What the schedule does with a tile."""

    SKIP = "skip"
    PARTIAL = "partial"
    FULL = "full"


class TargetMask:
    """The target's own mask: its schedule functions and its keep predicate."""

    def __init__(
        self,
        module: Module,
        arguments: Mapping[str, Any],
        sizes: Mapping[str, int],
        b: int,
        h: int,
        base: Module | None = None,
        workspace: str | None = None,
    ) -> None:
        """`base` is the lifted module: a target without a softmax has no row maximum to start from.
        `workspace` is the field of the lists that the target makes itself.

        Raises:
            CuBridgeError: the target has no mask of a known form, and why.
        """
        attention = find_attention(base or module)
        self._scalars = scalars_of(module)
        if workspace is not None:
            made = DrawnLists(module, workspace, attention.kernel, dict(arguments))
            arguments = {**arguments, workspace: made}
        self._env: Env = {"args": arguments, "b": b, "h": h}
        self._sizes = sizes
        self._module, self._attention = module, attention
        schedule = attention.schedule
        self.count = self._schedule(schedule.count, ("args", "b", "h", "q0"))
        self.index = self._schedule(schedule.index, ("args", "b", "h", "q0", "step"))
        self.full = self._schedule(schedule.full, ("args", "b", "h", "q0", "n"))
        self._lead, self._tail = (
            self._schedule(name, ("args", "b", "h", "q0", "row0"))
            if name is not None and self._calls_of(name)
            else _none
            for name in (schedule.lead, schedule.tail)
        )
        self.rows, self.keys = self._tile()
        self.part_rows = self._rows_asked(schedule.full)
        self._asks_by_block = self._row_of(schedule.full) == self._row_of(schedule.count)
        self._predicate = self._scalars.compile(self._keep())
        self._parts: dict[int, dict[int, TileClass]] = {}

    def classes(self, part: int) -> Mapping[int, TileClass]:
        """The tiles that a part of a block visits, with their class, as the kernel asks for it.

        A part is `part_rows` rows: those of a warpgroup, or of the whole block. Tiles that it
        passes over are not among them, though the block's other parts may visit them.
        """
        known = self._parts.get(part)
        if known is None:
            row0 = part * self.part_rows
            q0 = row0 // self.rows * self.rows
            asked = q0 if self._asks_by_block else row0
            first, end = int(self._lead(q0, row0)), int(self.count(q0) - self._tail(q0, row0))
            known = {}
            for step in range(first, min(end, MAX_STEPS)):
                n = int(self.index(q0, step))
                known[n] = TileClass.FULL if self.full(asked, n) else TileClass.PARTIAL
            self._parts[part] = known
        return known

    def row(self, i: int) -> list[bool]:
        """Which keys query row i keeps."""
        nk = self._sizes["Nk"]
        out = [False] * nk
        env = {**self._env, "i": i}
        for n, kind in self.classes(i // self.part_rows).items():
            for j in range(max(n * self.keys, 0), min((n + 1) * self.keys, nk)):
                if kind is TileClass.FULL:
                    out[j] = True
                else:
                    env["j"] = j
                    out[j] = bool(self._predicate(env))
        return out

    def _schedule(self, name: str, given: tuple[str, ...]) -> Callable[..., Any]:
        """A schedule function over (q0[, step or n]) under the template arguments of its call."""
        function, call = self._module.function(name), self._call_of(name)
        if len(function.params) != len(given):
            raise CuirError(f"{name} has other parameters than a tile schedule's")
        bound = Call(name, tuple(Name(n) for n in given), (), call.params)
        run = self._scalars.compile(bound)
        more = given[3:]

        def evaluate(*values: int) -> Any:
            return run(self._env | dict(zip(more, values, strict=True)))

        return evaluate

    def _calls_of(self, name: str) -> list[Call]:
        """The kernel's calls of a schedule function."""
        kernel = self._module.function(self._attention.kernel)
        return [
            node
            for _, stmt in walk_block(kernel.body, (kernel.name,))
            for expr in stmt_exprs(stmt)
            for node in walk_expr(expr)
            if isinstance(node, Call) and node.fn == name
        ]

    def _call_of(self, name: str) -> Call:
        """The kernel's call of a schedule function."""
        calls = self._calls_of(name)
        if not calls:
            raise CuirError(f"the kernel never calls {name}")
        return calls[0]

    def _row_of(self, name: str) -> Expr | None:
        """The row that the kernel asks a schedule function about."""
        args = self._call_of(name).args
        return args[3] if len(args) > 3 else None

    def _rows_asked(self, name: str) -> int:
        """How many rows one call is about: its third template argument, or the whole block."""
        params = self._call_of(name).params
        rows = self._scalars.compile(params[2])({}) if len(params) > 2 else self.rows
        if not isinstance(rows, int) or rows < 1 or self.rows % rows:
            raise CuirError(f"the rows that {name} is asked about are no part of a block's")
        return rows

    def _tile(self) -> tuple[int, int]:
        """Rows of a block and keys of a tile: the template arguments BM and BN of the schedule."""
        for call in self._calls_of(self._attention.schedule.count):
            sizes = [self._scalars.compile(p)({}) for p in call.params]
            if len(sizes) == 2 and all(isinstance(s, int) and s > 0 for s in sizes):
                return sizes[0], sizes[1]
        raise CuirError("the tile's rows and keys are no compile-time numbers")

    def _keep(self) -> Expr:
        """The predicate over b, h, i and j, with loads in place of row and column vectors."""
        kernel = self._module.function(self._attention.kernel)
        statements = list(walk_block(kernel.body, (kernel.name,)))
        call = next((c for _, stmt in statements if (c := _keep_call(stmt)) is not None), None)
        if call is None:
            raise CuirError("the target has no keep")
        arguments = call.args
        predicate = arguments[-1]
        if not isinstance(predicate, Lambda):
            raise CuirError("the keep has no predicate")
        values = definitions(statements)
        given = {
            name: self._vector(value, values)
            for name, value in zip(predicate.params, arguments[1:-1], strict=False)
        }
        # The last two parameters are the coordinates, whatever they are called.
        row, key = predicate.params[-2:]
        body = substitute(predicate.body, given | {row: Name("i"), key: Name("j")})
        return self._resolved(body, values, 0)

    def _vector(self, expr: Expr, values: Mapping[str, list[Expr]]) -> Expr:
        """A row or column vector as the load of its element."""
        if isinstance(expr, Name) and len(values.get(expr.id, ())) == 1:
            expr = values[expr.id][0]
        match expr:
            case Call(fn, (Index(view, (*front, Slice())), *_)) if fn in REGISTER_LOADS:
                both = (("i", Trait.BY_ROW), ("j", Trait.BY_COLUMN))
                places = (Name(place) for place, trait in both if trait in OPS[fn].traits)
                return Index(view, (*front, *places))
        raise CuirError("the keep reads a vector that is no load, so it cannot be drawn")

    def _resolved(self, expr: Expr, values: Mapping[str, list[Expr]], depth: int) -> Expr:
        """Local names replaced by what they are computed from; the tile's batch and head known."""
        if depth > _DEPTH:
            raise CuirError("the keep predicate depends on itself")
        known = {"args", "b", "h", "i", "j"}

        def change(node: Expr) -> Expr | None:
            if node == self._attention.batch:
                return Name("b")
            if node == self._attention.head:
                return Name("h")
            if isinstance(node, Attr):
                return node
            if isinstance(node, Name) and node.id not in known and node.id in values:
                found = values[node.id]
                if len(found) != 1:
                    raise CuirError(f"{node.id} has several values, so it cannot be drawn")
                return self._resolved(found[0], values, depth + 1)
            return None

        return map_expr(expr, change)


def _none(q0: int, row0: int) -> int:
    return 0


def _keep_call(stmt: Stmt) -> Call | None:
    match stmt:
        case Assign(_, Call(fn) as call) if fn in MASKS & CONDITIONS:
            return call
    return None
