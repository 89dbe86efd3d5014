"""Scalars of host and device code at known sizes; what depends on data is not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.cuir.arch import Arch
from engine.cuir.nodes import Attr, Call, Expr, Function, Index, Name, stmt_exprs, walk_expr
from engine.cuir.ops.traits import BUILT, ELECTIONS, WARPGROUPS
from engine.cuir.scalar import Env, Fn
from engine.cuir.static.calls import built
from engine.cuir.static.device_scalars import DeviceScalars
from engine.cuir.static.facts import statements
from engine.errors import CuBridgeError


class NotKnown(Exception):
    """A value that depends on what a tensor holds."""


class _Unknown:
    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = _Unknown()


class Values(DeviceScalars):
    """Compiles scalar expressions to functions of an environment.

    `env["args"]` holds the argument struct's numbers; block and grid indices, the warpgroup and
    `elect()` are names in the environment, see `place`.
    """

    def __init__(self, functions: Mapping[str, Function], facts: Arch, processors: int) -> None:
        super().__init__(functions, {"success": 0})
        self.functions, self.facts, self.processors = functions, facts, processors

    def name(self, id: str) -> Fn:
        plain = super().name(id)

        def read(env: Env) -> Any:
            try:
                value = plain(env)
            except KeyError:
                raise NotKnown from None
            if value is UNKNOWN:
                raise NotKnown
            return value

        return read

    def index(self, expr: Index) -> Fn:
        def load(env: Env) -> Any:
            raise NotKnown

        return load

    def compile(self, expr: Expr) -> Fn:
        if isinstance(expr, Attr) and isinstance(expr.base, Name):
            base, field = expr.base.id, expr.field

            def read(env: Env) -> Any:
                try:
                    return env[base][field]
                except KeyError:
                    raise NotKnown from None

            return read
        return super().compile(expr)

    def call(self, expr: Call) -> Fn:
        if expr.fn in ("block_id", "grid_dim"):
            return self.name(place(expr))
        if expr.fn in ELECTIONS | WARPGROUPS:
            return self.name(expr.fn)
        if expr.fn == "sm_count":
            return lambda env: self.processors
        if expr.fn in BUILT:
            return lambda env: self.built(expr, env)
        function = self.functions.get(expr.fn)
        if function is not None:
            return self.device_call(expr, function)
        return super().call(expr)

    def built(self, expr: Call, env: Env) -> Any:
        found = built(expr, self.facts, env)
        if found is None:
            raise NotKnown
        return found

    def device_call(self, expr: Call, function: Function) -> Fn:
        """A device function's value; an operand matters only where the function reads it."""
        names = [*(p.name for p in function.params), *function.consts]
        operands = [
            (lambda env: env.get("args")) if e == Name("args") else self.number(e)
            for e in (*expr.args, *expr.params)
        ]

        def called(env: Env) -> Any:
            inner = {n: f(env) for n, f in zip(names, operands, strict=False)}
            return self.body(function)(inner)

        return called

    def number(self, expr: Expr) -> Callable[[Env], Any]:
        """`expr` as a function that gives UNKNOWN where its value is not known."""
        try:
            compute = self.compile(expr)
        except CuBridgeError:
            return lambda env: UNKNOWN

        def value(env: Env) -> Any:
            try:
                return compute(env)
            except (NotKnown, TypeError, ZeroDivisionError, CuBridgeError):
                return UNKNOWN

        return value


def place(call: Call) -> str:
    """The name of a block's or grid's index in the environment: `block_id.0`."""
    axis = call.args[0]
    return f"{call.fn}.{getattr(axis, 'value', 0)}"


class Reads:
    """The names that an expression's value hangs on.

    Through device functions: an operand counts only where the function uses the parameter.
    """

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = functions
        self._used: dict[str, frozenset[str]] = {}

    def of(self, expr: Expr) -> frozenset[str]:
        match expr:
            case Name(id):
                return frozenset((id,))
            case Attr(Name("args"), _):
                return frozenset()
            case Index():
                return frozenset()  # a load: not known anyway
            case Call(fn, args) if fn in self.functions:
                used = self.used(fn)
                out: frozenset[str] = frozenset()
                for param, arg in zip(self.functions[fn].params, args, strict=False):
                    if param.name in used and arg != Name("args"):
                        out |= self.of(arg)
                return out
            case Call(fn) if fn in ("block_id", "grid_dim"):
                return frozenset((place(expr),))
        from engine.cuir.nodes import children

        return frozenset[str]().union(*(self.of(e) for e in children(expr)))

    def used(self, name: str) -> frozenset[str]:
        """Every name that a function's statements read: parameters among them matter."""
        if name not in self._used:
            self._used[name] = frozenset()  # a function that calls itself reads no more
            function = self.functions[name]
            found: frozenset[str] = frozenset()
            for stmt in statements(function):
                for expr in stmt_exprs(stmt):
                    found |= self.of(expr) if not _loads(expr) else _all(expr)
            self._used[name] = found
        return self._used[name]


def _loads(expr: Expr) -> bool:
    return any(isinstance(e, Index) for e in walk_expr(expr))


def _all(expr: Expr) -> frozenset[str]:
    return frozenset(e.id for e in walk_expr(expr) if isinstance(e, Name))
