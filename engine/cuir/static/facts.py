"""Facts about functions, read from their text."""

from __future__ import annotations

from collections.abc import Iterator

from engine.cuir.nodes import (
    Assign,
    Call,
    Expr,
    For,
    Function,
    Index,
    Module,
    Name,
    Opaque,
    Stmt,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.ops import OPS
from engine.cuir.ops.traits import WARPGROUPS
from engine.cuir.types import FAMILIES

# Ops and layouts that only make sense where a warpgroup is the unit.
_NEEDS = {f.needs for f in FAMILIES if f.unit == "warpgroup"} | {"setmaxnreg"}
_OPS = frozenset(name for name, spec in OPS.items() if spec.needs in _NEEDS or name in WARPGROUPS)
_LAYOUTS = {n for f in FAMILIES if f.unit == "warpgroup" for n in (f.acc, f.a)}
# Ops of the primitives that drive the async proxy (sm90_async.cuh); the others do not know them.
_ASYNC = {"mbarrier", "mbarrier_tx", "tma", "wgmma", "setmaxnreg"}
_ASYNC_OPS = _OPS | {name for name, spec in OPS.items() if spec.needs in _ASYNC}
_ALL_OPS = frozenset(OPS)


def statements(function: Function) -> Iterator[Stmt]:
    """Every statement of the function, those inside others included."""
    return (stmt for _, stmt in walk_block(function.body, (function.name,)))


def expressions(function: Function) -> Iterator[Expr]:
    """Every expression of the function and everything below it."""
    for stmt in statements(function):
        for expr in stmt_exprs(stmt):
            yield from walk_expr(expr)


def own_names(function: Function) -> set[str]:
    """The names of a function's parameters, constants and variables."""
    out = {p.name for p in function.params} | set(function.consts)
    for stmt in statements(function):
        if isinstance(stmt, Assign):
            out.add(stmt.target)
        elif isinstance(stmt, For):
            out.add(stmt.var)
    return out


class Facts:
    """What is known of a module's functions without running them."""

    def __init__(self, module: Module) -> None:
        self.functions = {f.name: f for f in module.functions}
        self._pure: dict[str, bool] = {}
        self._by: dict[tuple[str, frozenset[str]], bool] = {}

    def callees(self, name: str) -> set[str]:
        """Functions of the module that `name` calls."""
        return {
            e.fn
            for e in expressions(self.functions[name])
            if isinstance(e, Call) and e.fn in self.functions
        }

    def is_pure(self, name: str, active: tuple[str, ...] = ()) -> bool:
        """Whether a function only computes scalars, so that its call may stand in expressions."""
        if name in active:
            return True
        if name not in self._pure:
            function = self.functions[name]
            self._pure[name] = (
                not any(isinstance(s, Opaque) for s in statements(function))
                and not any(
                    isinstance(e, Call) and e.fn in OPS and not OPS[e.fn].is_value
                    for e in expressions(function)
                )
                and all(self.is_pure(c, (*active, name)) for c in self.callees(name))
            )
        return self._pure[name]

    def of_numbers(self, name: str) -> bool:
        """Whether numbers that a function is given and the launch's own say what it gives."""
        return not self._uses(name, _ALL_OPS)

    def by_warpgroups(self, name: str) -> bool:
        """Whether a kernel's unit is the warpgroup: it uses an op or layout that only they have."""
        return self._uses(name, _OPS)

    def by_async(self, name: str) -> bool:
        """Whether a kernel is written in the primitives that drive the async proxy.

        Its shared memory starts at the next multiple of the arch's `async_tile`, and its tiles lie
        in panels of 128 bytes (kernels/include/cubridge/sm90_async.cuh); in the other primitives
        it starts where the launch's does, and tiles lie row by row (shared.cuh).
        """
        return self._uses(name, _ASYNC_OPS)

    def _uses(self, name: str, ops: frozenset[str]) -> bool:
        """Whether a kernel uses one of these ops, or a layout of warpgroups."""
        if (name, ops) not in self._by:
            self._by[name, ops] = self._reaches(name, ops)
        return self._by[name, ops]

    def _reaches(self, name: str, ops: frozenset[str]) -> bool:
        seen: set[str] = set()
        todo = [name]
        while todo:
            now = todo.pop()
            if now in seen:
                continue
            seen.add(now)
            for expr in expressions(self.functions[now]):
                match expr:
                    case Call(fn) if fn in ops:
                        return True
                    case Index(Name(id), _) if id in _LAYOUTS:
                        return True
            todo += self.callees(now)
        return False
