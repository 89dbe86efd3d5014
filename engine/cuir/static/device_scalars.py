"""Device functions and launch constants of a module, evaluated on plain numbers, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.cuir.nodes import (
    Assign,
    Call,
    For,
    Function,
    If,
    Index,
    Return,
    Stmt,
    next_of,
)
from engine.cuir.ops.traits import FIELD_VIEWS
from engine.cuir.scalar import CONSTANTS, Compiler, Env, Fn
from engine.errors import CuirError

MAX_STEPS = 100_000  # of a schedule function's loop: what goes on longer is not drawn


class DeviceScalars(Compiler):
    """Scalar expressions with device functions, loads from functions, and argument fields."""

    def __init__(self, functions: Mapping[str, Function], consts: Mapping[str, Any]) -> None:
        super().__init__("exact")
        self.functions, self.consts = functions, consts
        self._bodies: dict[str, Callable[[Env], Any]] = {}

    def name(self, id: str) -> Fn:
        constant = self.consts.get(id, CONSTANTS.get(id))
        if constant is None:
            return lambda env: env[id]
        return lambda env: env.get(id, constant)

    def index(self, expr: Index) -> Fn:
        base = self.compile(expr.base)
        items = [self.compile(item) for item in expr.index]
        return lambda env: base(env)(*[item(env) for item in items])

    def call(self, expr: Call) -> Fn:
        if expr.fn in FIELD_VIEWS and expr.args:
            return self.compile(expr.args[0])
        function = self.functions.get(expr.fn)
        if function is None:
            return super().call(expr)
        values = [self.compile(a) for a in expr.args]
        consts = [self.compile(p) for p in expr.params]
        names = [*(p.name for p in function.params), *function.consts]
        if len(names) != len(values) + len(consts):
            raise CuirError(f"{expr.fn} is called with another number of operands than it has")

        def called(env: Env) -> Any:
            inner = dict(zip(names, (f(env) for f in (*values, *consts)), strict=True))
            return self.body(function)(inner)

        return called

    def body(self, function: Function) -> Callable[[Env], Any]:
        """A device function as a function from its parameters to its value."""
        found = self._bodies.get(function.name)
        if found is None:
            run = self._block(function.body)

            def found(env: Env) -> Any:
                return run(env)[1]

            self._bodies[function.name] = found
        return found

    def _block(self, body: tuple[Stmt, ...]) -> Callable[[Env], tuple[bool, Any]]:
        """Runs statements; (returned, value)."""
        steps = [self._statement(stmt) for stmt in body]

        def run(env: Env) -> tuple[bool, Any]:
            for each in steps:
                done = each(env)
                if done[0]:
                    return done
            return (False, None)

        return run

    def _statement(self, stmt: Stmt) -> Callable[[Env], tuple[bool, Any]]:
        going: tuple[bool, Any] = (False, None)
        match stmt:
            case Assign(target, value):
                compute = self.compile(value)

                def assign(env: Env) -> tuple[bool, Any]:
                    env[target] = compute(env)
                    return going

                return assign
            case Return(value) if value is not None:
                result = self.compile(value)
                return lambda env: (True, result(env))
            case If(cond, then, other):
                test, yes, no = self.compile(cond), self._block(then), self._block(other)
                return lambda env: yes(env) if test(env) else no(env)
            case For(var, start, stop, step, body) if next_of(step) is None:
                ends = [self.compile(e) for e in (start, stop, step)]
                inner = self._block(body)

                def loop(env: Env) -> tuple[bool, Any]:
                    steps = range(*(int(e(env)) for e in ends))
                    if len(steps) > MAX_STEPS:
                        raise CuirError("a schedule function loops too long to be drawn")
                    for now in steps:
                        env[var] = now
                        done = inner(env)
                        if done[0]:
                            return done
                    return going

                return loop
        raise CuirError(f"a {type(stmt).__name__.lower()} in a device function is not drawn")
