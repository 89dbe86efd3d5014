"""Which expressions of a module are floats, and what a lambda's parameters stand for.

By what is loaded and how an op gives its lambda its values, never by names: `x` may be a row and
`i` a score.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Expr,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Return,
    Select,
    Stmt,
    Unary,
    stmt_exprs,
    walk,
    walk_expr,
)
from engine.cuir.ops.traits import FIELD_VIEWS, MAPS, MASKS, REDUCTIONS, REGISTER_LOADS
from engine.cuir.scalar import CASTS, CONSTANTS, FUNCTIONS

WHOLE = frozenset({"i32", "i64", "bool"})

Parameters = Mapping[str, bool]  # of a lambda: whether each is a float


def parameters(call: Call) -> dict[str, Expr | None]:
    """The parameters of an op's lambda: the tile whose elements each one is, None for a coordinate.

    A map and a mask give elements first and then coordinates, every other op coordinates alone.
    """
    for position, argument in enumerate(call.args):
        if isinstance(argument, Lambda):
            first = 1 if call.fn in MASKS else 0  # the scores
            tiles = call.args[first:position] if call.fn in MAPS | MASKS else ()
            given = (*tiles, *(None for _ in argument.params))
            return dict(zip(argument.params, given, strict=False))
    return {}


def coordinates(call: Call) -> tuple[str, ...]:
    """The parameters of an op's lambda that say where an element is."""
    return tuple(name for name, tile in parameters(call).items() if tile is None)


class Kinds:
    """The kinds of one module's names. What cannot be told is a float where it is an element of a
    tile, and a whole number elsewhere."""

    def __init__(self, module: Module) -> None:
        self._fields = {f.name for f in module.fields if f.type == "f32"}
        self._params = {
            (f.name, p.name): p.type == "f32" for f in module.functions for p in f.params
        }
        self._devices = set(module.devices)
        self._values: dict[tuple[str, str], list[Expr]] = {}
        self._returned: dict[tuple[str, str], list[Expr]] = {}
        for path, stmt in walk(module):
            function = str(path[0])
            if isinstance(stmt, Assign):
                self._values.setdefault((function, stmt.target), []).append(stmt.value)
            elif isinstance(stmt, Return) and stmt.value is not None:
                self._returned.setdefault((function, ""), []).append(stmt.value)
        self._floats = {key for key, is_float in self._params.items() if is_float}
        grown = True
        while grown:  # names may be made of each other
            grown = False
            for (function, name), values in (*self._values.items(), *self._returned.items()):
                key = (function, name)
                if key not in self._floats and any(self.is_float(v, function, {}) for v in values):
                    self._floats.add(key)
                    grown = True

    def is_float(self, expr: Expr, function: str, given: Parameters) -> bool:
        """Whether a scalar expression of `function` is a float, under a lambda's parameters."""
        match expr:
            case Num(value):
                return isinstance(value, float)
            case Name(id):
                own = (function, id) in self._values or (function, id) in self._params
                found = (function, id) in self._floats or (not own and id in CONSTANTS)
                return given.get(id, found)
            case Attr(_, field):
                return field in self._fields
            case Index(Name(id), _) if id in given:
                return given[id]
            case Index(base, _):
                return self._view_is_float(function, base)
            case Binary("/", _, _):
                return True
            case Binary(_, left, right) | Select(_, left, right):
                return any(self.is_float(e, function, given) for e in (left, right))
            case Unary("-", operand):
                return self.is_float(operand, function, given)
            case Call(fn, args) if fn in CASTS:
                return CASTS[fn] not in WHOLE
            case Call(fn, args) if fn in FUNCTIONS:
                gives = FUNCTIONS[fn].gives
                same = gives == "same" and any(self.is_float(a, function, given) for a in args)
                return gives == "float" or same
            case Call(fn, _) if fn in self._devices:
                return (fn, "") in self._floats
        return False

    def of_lambda(self, call: Call, function: str) -> dict[str, bool]:
        """Whether each parameter of an op's lambda is a float."""
        return {
            name: tile is not None and self._tile_is_float(function, tile, frozenset())
            for name, tile in parameters(call).items()
        }

    def _view_is_float(self, function: str, view: Expr) -> bool:
        values = self._values.get((function, view.id), []) if isinstance(view, Name) else []
        return any(
            isinstance(v, Call) and v.fn in FIELD_VIEWS and v.params[:1] not in _VIEWS
            for v in values
        )

    def _tile_is_float(self, function: str, tile: Expr, seen: frozenset[str]) -> bool:
        match tile:
            case Name(id):
                values = self._values.get((function, id), [])
                if id in seen or not values:
                    return not values
                return any(self._tile_is_float(function, v, seen | {id}) for v in values)
            case Call(fn, (Index(view, _), *_)) if fn in REGISTER_LOADS:
                return self._view_is_float(function, view)
        return True


_VIEWS = tuple((Name(kind),) for kind in sorted(WHOLE))


@lru_cache(maxsize=8)
def float_in_lists(module: Module) -> bool:
    """Whether the kernels that prepare the attention's lists of tiles, or the functions that they
    call, read or make a float: typed mode may then list other tiles than exact mode."""
    kinds = Kinds(module)
    statements: dict[str, list[Stmt]] = {f.name: [] for f in module.functions}
    for path, stmt in walk(module):
        statements[str(path[0])].append(stmt)
    todo = [
        f.name
        for f in module.functions
        if f.kind == "kernel" and not any(map(_reduces, statements[f.name]))
    ]
    seen = set[str]()
    while todo:
        function = todo.pop()
        if function in seen:
            continue
        seen.add(function)
        for stmt in statements[function]:
            for expr in stmt_exprs(stmt):
                for node in walk_expr(expr):
                    if isinstance(node, Call):
                        todo += [node.fn] if node.fn in statements else []
                        if node.fn in FIELD_VIEWS and node.params[:1] not in _VIEWS:
                            return True
                    if kinds.is_float(node, function, {}):
                        return True
    return False


def _reduces(stmt: Stmt) -> bool:
    return isinstance(stmt, Assign) and isinstance(stmt.value, Call) and stmt.value.fn in REDUCTIONS
