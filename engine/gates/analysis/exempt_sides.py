"""Conditions with a side that no run need show: rows that keep no key, and launches that fail.

A statistic of a row that is nothing is guarded against: `0.0 if top == -inf else top`.

The maximum of a row is -inf, and its sum 0, where the row keeps no key. A function that keeps one
in every row at every size has no such row, and no run can show what the guard does then: nor can
any user. So of a comparison of such a statistic with -inf or 0 (or NaN) only the ordinary side is
asked for. What is computed from sizes or places is no statistic, and a guard on that is a branch
like others.

A launch fails where a card or a driver does, which no run of CuIR shows. What hands on its status
and does nothing else (`if listed != success: return listed`) need only be seen where it succeeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.cuir.nodes import (
    MIRRORED,
    Assign,
    Attr,
    Call,
    Compare,
    Expr,
    If,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Return,
    Stmt,
    free_names,
    walk,
    walk_expr,
)
from engine.cuir.ops.traits import FILLS, MAPS, REDUCTIONS
from engine.cuir.rewrite import map_expr
from engine.cuir.scalar import CASTS, CONSTANTS, FUNCTIONS
from engine.cuir.static.calls import is_launch
from engine.gates.analysis.size_comparisons import resolved, scalars_of

# The outcome of a comparison (statistic on the left) that says that it is nothing.
_NOTHING = {"==": True, "!=": False, ">": False, "<=": True}

_HEADS = {"b", "h", "h_kv"}  # where an input is read that is one for all rows of a head


class Guards:
    """Which names of one module are statistics of rows."""

    def __init__(self, module: Module) -> None:
        self._values: dict[tuple[str, str], list[Expr]] = {}
        for path, stmt in walk(module):
            if isinstance(stmt, Assign):
                self._values.setdefault((str(path[0]), stmt.target), []).append(stmt.value)
        self._scalars = scalars_of(module)
        self._whole = {f.name for f in module.fields if f.type != "f32"}

    def exempt(self, test: Expr, function: str, tiles: Mapping[str, Expr | None]) -> bool | None:
        """The outcome of a test that says that a row has no key; None where it says no such thing.

        `tiles` are the parameters of the lambda around it, and whose elements they are.
        """
        match test:
            case Compare(op, Num(), right):
                test = Compare(MIRRORED[op], right, test.left)
        match test:
            case Compare(op, Name(id), Num(value)) if op in _NOTHING and _is_nothing(op, value):
                tile = tiles.get(id)
                if isinstance(tile, Name) and self._is_statistic(function, tile.id):
                    return _NOTHING[op]
            case Compare("==" | "!=" as op, Name(id), Name(same)) if id == same:
                tile = tiles.get(id)  # whether it is NaN
                if isinstance(tile, Name) and self._is_statistic(function, tile.id):
                    return op == "!="
        return None

    def hands_on(self, stmt: Stmt, function: str) -> bool:
        """Whether it is an `if` that gives back the status of a launch that failed, and no more."""
        match stmt:
            case If(Compare("!=", Name(id), Name("success")), (Return(Name(given)),), ()):
                values = self._values.get((function, id), [])
                ran = all(is_launch(v) for v in values)
                return given == id and bool(values) and ran
        return False

    def _is_statistic(self, function: str, name: str) -> bool:
        """Whether a tile is made of reductions of rows alone, at least of one."""
        seen: set[str] = set()
        todo, reduced = [name], False
        while todo:
            tile = todo.pop()
            if tile in seen:
                continue
            seen.add(tile)
            values = self._values.get((function, tile), [])
            if not values:
                return False
            for value in values:
                made_of = self._made_of(function, value)
                if made_of is None:
                    return False
                todo += made_of
                reduced |= isinstance(value, Call) and value.fn in REDUCTIONS
        return reduced

    def _made_of(self, function: str, value: Expr) -> list[str] | None:
        """The tiles that a statistic is made of; None of what is none."""
        match value:
            case Name(id):
                return [id]
            case Call(fn, (*_, Num())) | Call(fn, (_,)) if fn in FILLS:
                return []
            case Call(fn, (_, filled)) if fn in FILLS:  # by an input's element, such as a sink
                return [] if self._is_data(function, filled) else None
            case Call(fn, (_, Name(old))) if fn in REDUCTIONS:
                return [old]
            case Call("row_reduce", (Name(row),)):
                return [row]
            case Call(fn, (*tiles, Lambda() as f), ()) if fn in MAPS:
                names = [t.id for t in tiles if isinstance(t, Name)]
                same = len(names) == len(tiles) and self._is_plain(function, f)
                return names if same else None
        return None

    def _is_plain(self, function: str, f: Lambda) -> bool:
        """Whether a lambda reads its elements and data, and nothing else."""
        return self._is_data(function, f.body, f.params)

    def _is_data(self, function: str, value: Expr, params: tuple[str, ...] = ()) -> bool:
        """Whether a scalar is made of `params`, of inputs' elements and of scalars that are no
        sizes, and of nothing else: no row's or key's place is in it, nor in what an input is
        read at."""
        names = {n: e for n, e in self._scalars.get(function, {}).items() if n not in params}
        body = map_expr(resolved(value, names), lambda e: Num(0) if isinstance(e, Index) else None)
        at = (free_names(n) for e in walk_expr(value) if isinstance(e, Index) for n in e.index)
        if not frozenset[str]().union(*at) <= _HEADS:
            return False
        return free_names(body) <= {"args", *params} | CONSTANTS.keys() and not any(
            (isinstance(n, Attr) and n.field in self._whole)
            or (isinstance(n, Call) and n.fn not in FUNCTIONS and n.fn not in CASTS)
            for n in walk_expr(body)
        )


def _is_nothing(op: str, value: float) -> bool:
    """-inf and 0 from either side; +inf and NaN only as such."""
    if op in ("==", "!="):
        return value == 0 or not math.isfinite(value)
    return value in (0, -math.inf)
