"""The host function at given sizes: which kernels it launches, on which grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.cost.card import Card
from engine.cost.values import UNKNOWN, Values
from engine.cuir.arch import Arch
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
)
from engine.cuir.ops.traits import COLUMN_LOADS
from engine.cuir.static.calls import is_launch, launched
from engine.cuir.static.facts import statements
from engine.errors import InputError


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: the kernel with its constants, and the numbers that it is given.

    `consts` are by the kernel's own names: numbers, or an element type's name. `numbers` are the
    kernel's parameters that are known (`args` and tensor maps are not numbers).
    """

    kernel: str
    consts: Mapping[str, Any]
    numbers: Mapping[str, Any]
    grid: tuple[int, ...]
    threads: int
    shared: int

    @property
    def blocks(self) -> int:
        out = 1
        for size in self.grid:
            out *= max(size, 0)
        return out


def constants(module: Module) -> dict[str, Any]:
    """What the specialisation binds: numbers, and element types by name."""
    out: dict[str, Any] = {}
    for name, value in module.spec:
        match value:
            case Num(number):
                out[name] = number
            case Name(id):
                out[name] = id
    return out


def flags_keys(module: Module) -> bool:
    """Whether a kernel's mask reads a flag of each key. Neighbours' flags have nothing to do with
    each other, where ids and levels come in runs: a key tile holds kept keys and dropped ones."""
    for function in module.functions:
        values = {s.target: s.value for s in statements(function) if isinstance(s, Assign)}
        for value in values.values():
            match value:
                case Call(op, (Index(Name(view)),)) if op in COLUMN_LOADS:
                    held = values.get(view)
                    if isinstance(held, Call) and Name("bool") in held.params:
                        return True
    return False


def launches(
    module: Module, args: Mapping[str, int | float], card: Card, facts: Arch
) -> tuple[Launch, ...]:
    """The launches of the host function with these numbers in its argument struct, in order.

    `facts` are those of the arch that it is compiled for.

    A field that is not in `args` counts as 0 where the host asks for it (`planned`: nothing is
    held). Raises `InputError` where a grid is not known from the sizes.
    """
    host = next((f for f in module.functions if f.kind == "host"), None)
    if host is None:
        raise InputError("the module has no host function", fix="@host def launch(args): ...")
    plan = _Plan(module, args, card, facts)
    plan.block(host.body)
    return tuple(plan.out)


class _Plan:
    def __init__(
        self, module: Module, args: Mapping[str, int | float], card: Card, facts: Arch
    ) -> None:
        functions = {f.name: f for f in module.functions if f.kind == "device"}
        self.module, self.facts, self.known = module, facts, tuple(args)
        self.values = Values(functions, facts, card.multiprocessors)
        numbers = {f.name: 0 for f in module.fields if f.type != "tensor"}
        self.env: dict[str, Any] = {**constants(module), "args": {**numbers, **args}}
        self.out: list[Launch] = []

    def block(self, body: Sequence[Stmt]) -> bool:
        """Runs statements; False when the function has returned."""
        for stmt in body:
            match stmt:
                case Assign(target, value):
                    self.launch(value)
                    self.env[target] = 0 if is_launch(value) else self.value(value)
                case Do(call):
                    self.launch(call)
                case If(cond, then, other):
                    test = self.value(cond)
                    if not self.block(then if test is not UNKNOWN and test else other):
                        return False
                case Return(value):
                    if value is not None:
                        self.launch(value)
                    return False
        return True

    def value(self, expr: Expr) -> Any:
        if isinstance(expr, Name) and isinstance(self.env.get(expr.id), str):
            return self.env[expr.id]
        return self.values.number(expr)(self.env)

    def launch(self, expr: Expr) -> None:
        found = launched(expr)
        if found is None or found.launch is None:
            return
        name, kernel = found.name, self.module.function(found.name)
        grid = [self.value(e) for e in found.grid]
        threads, shared = self.value(found.launch["threads"]), self.value(found.launch["shared"])
        if UNKNOWN in (*grid, threads, shared):
            raise InputError(
                f"the launch of {name} does not follow from the sizes",
                fix="the grid, threads and shared bytes must be functions of args and constants",
            )
        self.judge(name, grid, int(threads))
        consts = dict(zip(kernel.consts, map(self.value, found.consts), strict=True))
        numbers = {
            p.name: v
            for p, e in zip(kernel.params, found.args, strict=False)
            if e != Name("args") and (v := self.value(e)) is not UNKNOWN
        }
        self.out.append(Launch(name, consts, numbers, tuple(grid), int(threads), int(shared)))

    def judge(self, kernel: str, grid: Sequence[Any], threads: int) -> None:
        """Raises `InputError` for a launch that no card takes."""
        if not 1 <= threads <= self.facts.threads_block:
            raise InputError(
                f"{kernel} is launched with {threads:,} threads per block, and {self.facts.name} "
                f"allows 1 to {self.facts.threads_block}",
                fix="`cubridge check FILE.cuir` says where",
            )
        if any(size < 1 for size in grid):
            raise InputError(
                f"{kernel} is launched on a grid of {list(grid)}: no blocks to follow",
                fix=f"sizes are given to {', '.join(self.known)}; a field of another name counts "
                "as 0",
            )
