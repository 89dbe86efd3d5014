"""What a module's host plan says of its launches: dynamic shared memory and block size, as numbers.

Both are compile-time constants of the launcher; a value that depends on the arguments is unknown
here, and the caller is told so (None).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.build.products import Launch
from engine.cuir.arch import Arch
from engine.cuir.calls import built, is_launch
from engine.cuir.canonical import map_expr
from engine.cuir.nodes import (
    Assign,
    Call,
    Do,
    Expr,
    If,
    Index,
    Module,
    Name,
    Num,
    Return,
    Stmt,
)  # fmt: skip
from engine.cuir.scalar import evaluate
from engine.errors import CuirError


def launches_of(module: Module, arch: Arch) -> dict[str, Launch]:
    """The launch of each kernel that the host function starts, by the kernel's name.

    Of two launches of one kernel the one with more shared memory counts.
    """
    out: dict[str, Launch] = {}
    for function in module.functions:
        if function.kind == "host":
            plan = _Plan(module, arch)
            for call in plan.runs(function.body):
                name, launch = _kernel_name(call), plan.launch(call)
                known = out.get(name)
                if known is None or (launch.shared or 0) > (known.shared or 0):
                    out[name] = launch
    return out


def host_constants(module: Module, arch: Arch) -> dict[str, int]:
    """The whole numbers that the launcher's names stand for at compile time, such as BM and BN."""
    plan = _Plan(module, arch)
    for function in module.functions:
        if function.kind == "host":
            for _ in plan.runs(function.body):
                pass
    return {n: v for n, v in plan.values.items() if isinstance(v, int) and not isinstance(v, bool)}


def _kernel_name(call: Call) -> str:
    """The kernel that `run(kernel[...], ...)` names."""
    kernel = call.args[0]
    if isinstance(kernel, Index):
        kernel = kernel.base
    return kernel.fn if isinstance(kernel, Call) else getattr(kernel, "id", "")


class _Plan:
    def __init__(self, module: Module, arch: Arch) -> None:
        self.arch = arch
        self.values: dict[str, int | float] = {}
        self.types: dict[str, str] = {}
        for name, value in module.spec:
            if isinstance(value, Name):
                self.types[name] = value.id
            elif isinstance(value, Num):
                self.values[name] = value.value

    def runs(self, body: Sequence[Stmt]) -> Iterator[Call]:
        """The launches in a block, while its constants become known one by one."""
        for stmt in body:
            match stmt:
                case If():
                    yield from self.runs(stmt.then)
                    yield from self.runs(stmt.other)
                case Assign(target, value):
                    number = self.value(value)
                    self.values.pop(target, None)
                    if number is not None:
                        self.values[target] = number
            called = {Assign: "value", Return: "value", Do: "call"}.get(type(stmt))
            call = getattr(stmt, called) if called else None
            if isinstance(call, Call) and is_launch(call):
                yield call

    def launch(self, call: Call) -> Launch:
        given = dict(call.kwargs)
        return Launch(self.integer(given.get("shared")), self.integer(given.get("threads")))

    def integer(self, expr: Expr | None) -> int | None:
        value = self.value(expr) if expr is not None else None
        return int(value) if value is not None else None

    def value(self, expr: Expr) -> int | float | None:
        """The number that `expr` is at compile time, or None."""

        def known(node: Expr) -> Expr:
            number = built(node, self.arch, self.types)
            return node if number is None else Num(number)

        try:
            found = evaluate(map_expr(expr, known), self.values)
        except (CuirError, KeyError, TypeError, ValueError, ZeroDivisionError):
            return None
        return found if isinstance(found, int | float) else None
