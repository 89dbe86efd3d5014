"""What a launcher's names stand for at compile time, such as BM, BN and STAGES."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from engine.cuir.arch import arch_name, arch_of
from engine.cuir.canonical import map_expr
from engine.cuir.nodes import Assign, Call, Expr, If, Module, Name, Num, Return, Stmt, stmt_call
from engine.cuir.scalar import evaluate
from engine.cuir.static.calls import built, is_launch, launched
from engine.cuir.static.device_scalars import DeviceScalars
from engine.errors import CuirError


class HostPlan:
    """A module's launchers, read statement by statement: `values` are the constants so far, under
    the arch and the types of the module, `bound` what the kernel that is returned calls them."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.arch = arch_of(module) if arch_name(module) else None
        self.values: dict[str, Any] = {}
        self.bound: dict[str, Any] = {}
        self.types: dict[str, str] = {}
        for name, value in module.spec:
            if isinstance(value, Name):
                self.types[name] = value.id
            elif isinstance(value, Num):
                self.values[name] = value.value

    def launches(self) -> Iterator[Call]:
        """The launches of all host functions, while the constants become known one by one."""
        for function in self.module.functions:
            if function.kind == "host":
                yield from self.block(function.body)

    def block(self, body: Sequence[Stmt]) -> Iterator[Call]:
        for stmt in body:
            match stmt:
                case If():
                    yield from self.block(stmt.then)
                    yield from self.block(stmt.other)
                case Assign(target, value):
                    number = self.value(value)
                    self.values.pop(target, None)
                    if number is not None:
                        self.values[target] = number
            call = stmt_call(stmt)
            if call is not None and is_launch(call):
                yield call
                if isinstance(stmt, Return):
                    self.bind(call)

    def bind(self, call: Call) -> None:
        """The kernel's own names for the template arguments that it is launched with."""
        found = launched(call)
        if found is None:
            return
        consts = self.module.function(found.name).consts
        pairs = list(zip(consts, map(self.value, found.consts), strict=False))
        self.bound |= {name: value for name, value in pairs if value is not None}

    def value(self, expr: Expr) -> int | float | None:
        """The number that `expr` is at compile time, or None."""

        def known(node: Expr) -> Expr:
            number = built(node, self.arch, self.types) if self.arch is not None else None
            return node if number is None else Num(number)

        try:
            found = evaluate(map_expr(expr, known), self.values)
        except (CuirError, KeyError, TypeError, ValueError, ZeroDivisionError):
            return None
        return found if isinstance(found, int | float) else None


@lru_cache(maxsize=8)
def _plan(module: Module) -> HostPlan:
    plan = HostPlan(module)
    for _ in plan.launches():
        pass
    return plan


def constants_of(module: Module) -> dict[str, Any]:
    """The launcher's compile-time numbers, and what the kernel that it returns calls them."""
    plan = _plan(module)
    return plan.values | plan.bound


def host_constants(module: Module) -> dict[str, int]:
    """The whole numbers among the launcher's own."""
    found = _plan(module).values.items()
    return {n: v for n, v in found if isinstance(v, int) and not isinstance(v, bool)}


def scalars_of(module: Module) -> DeviceScalars:
    """A module's device functions on plain numbers, under its launcher's constants."""
    return DeviceScalars(module.devices, constants_of(module))


@lru_cache(maxsize=8)
def head_sizes(module: Module) -> tuple[int, int] | None:
    """The columns of q and k, and those of v and o: the launcher's `DV` where it has one, else as
    many. None where the module is of no known head size."""
    columns = dict(module.spec).get("D")
    if not isinstance(columns, Num) or not isinstance(columns.value, int):
        return None
    values = constants_of(module).get("DV")
    return columns.value, values if isinstance(values, int) else columns.value
