"""Tile lists that a target makes on the device, made here on plain numbers: what a mask's picture
needs where the schedule reads a list. The target's own kernels make them, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine.cuir.nodes import (
    Assign,
    Call,
    Do,
    Expr,
    Function,
    Index,
    Lambda,
    Module,
    Slice,
    Stmt,
    Tuple,
    stmt_exprs,
    walk_block,
)
from engine.cuir.rewrite import substitute
from engine.cuir.scalar import Env, Fn
from engine.cuir.static.calls import launched
from engine.cuir.static.device_scalars import DeviceScalars
from engine.cuir.static.host_constants import constants_of
from engine.errors import CuirError

_BLOCK, _GRID = "$block", "$grid"
Place = tuple[int, ...]


class DrawnLists:
    """The workspace of a target as a function of its index, filled as far as it is read."""

    def __init__(self, module: Module, field: str, attention: str, arguments: Env) -> None:
        """`arguments` are the fields of the argument struct; `attention` names the kernel that
        reads the lists. Raises `CuirError` for a kernel that cannot be run on plain numbers."""
        functions = module.devices
        consts = constants_of(module)
        self._held: dict[Place, int] = {}
        self._args = {**arguments, field: self._load}
        self._kernels = [
            (_Runner(functions, consts, self._held), kernel, given, grid)
            for kernel, given, grid in _launches(module, attention, consts)
        ]
        self._names = DeviceScalars(functions, consts)
        self._next = 0

    def __call__(self, *index: int) -> int:
        """An element; blocks run until one has written it."""
        while index not in self._held and self._run_block():
            pass
        if index not in self._held:
            raise CuirError("a tile list that no block of the target writes cannot be drawn")
        return self._held[index]

    def _load(self, *index: int) -> int:
        return self._held[index]

    def _run_block(self) -> bool:
        """The next block of rows, through every kernel; False when there is none."""
        ran = False
        for runner, kernel, given, grid in self._kernels:
            outer: Env = {"args": self._args}
            sizes = [int(self._names.compile(g)(outer)) for g in grid]
            sizes += [1] * (2 - len(sizes))
            if self._next >= sizes[0]:
                continue
            ran = True
            consts = [self._names.compile(g)(outer) for g in given]
            for lane in range(sizes[1]):
                env: Env = dict(zip(kernel.consts, consts, strict=True))
                env |= {"args": self._args, _BLOCK: (self._next, lane), _GRID: sizes}
                runner.kernel(kernel)(env)
        self._next += 1
        return ran


def _launches(
    module: Module, attention: str, constants: Mapping[str, Any]
) -> list[tuple[Function, tuple[Expr, ...], tuple[Expr, ...]]]:
    """Kernel, constants and grid of every launch but the attention's, with host names resolved."""
    out = []
    for host in (f for f in module.functions if f.kind == "host"):
        values: dict[str, Expr] = {}
        for _, stmt in walk_block(host.body, (host.name,)):
            if isinstance(stmt, Assign) and stmt.target not in constants:
                values[stmt.target] = substitute(stmt.value, values)
            for expr in stmt_exprs(stmt):
                found = launched(expr)
                if found is not None and found.name != attention:
                    sizes = tuple(substitute(i, values) for i in found.grid)
                    out.append((module.function(found.name), found.consts, sizes))
    return out


def _class(kept: Iterable[bool]) -> int:
    """0 none, 1 some, 2 all; some is known before the end."""
    some = not_all = False
    for one in kept:
        some, not_all = some or one, not_all or not one
        if some and not_all:
            return 1
    return 2 if some else 0


class _Runner(DeviceScalars):
    """The ops of a list kernel on plain numbers; every warp does all of it, so one is enough."""

    def __init__(
        self,
        functions: Mapping[str, Function],
        consts: Mapping[str, Any],
        held: dict[Place, int],
    ) -> None:
        super().__init__(functions, consts)
        self._held = held
        self._kernels: dict[str, Callable[[Env], Any]] = {}

    def kernel(self, kernel: Function) -> Callable[[Env], Any]:
        found = self._kernels.get(kernel.name)
        if found is None:
            found = self._kernels[kernel.name] = self._block(kernel.body)
        return found

    def call(self, expr: Call) -> Fn:
        match expr:
            case Call("block_id" | "grid_dim", (axis,)):
                at, key = self.compile(axis), _BLOCK if expr.fn == "block_id" else _GRID
                return lambda env: env[key][at(env)]
            case Call("class_of" | "least" | "greatest"):
                return self._over(expr)
            case Call("compact", (Index() as dst, count, f)):
                place, many = self._place(dst), self.compile(count)
                fn = self._lambda(f)

                def compact(env: Env) -> int:
                    values = (int(fn(env, n)) for n in range(many(env)))
                    kept = [value for value in values if value >= 0]
                    *lead, first = place(env)
                    for n, value in enumerate(kept):
                        self._held[*lead, first + n] = value
                    return len(kept)

                return compact
        return super().call(expr)

    def _over(self, expr: Call) -> Fn:
        sizes = [self.compile(p) for p in expr.params]
        at = dict(expr.kwargs)["at"]
        starts = [self.compile(i) for i in (at.items if isinstance(at, Tuple) else ())]
        fn, name = self._lambda(expr.args[0]), expr.fn

        def value(env: Env) -> int:
            spans = [
                range(s(env), s(env) + n(env)) for s, n in zip(starts, sizes, strict=True)
            ]  # fmt: skip
            if name == "class_of":
                return _class(bool(fn(env, i, j)) for i in spans[0] for j in spans[1])
            return int((min if name == "least" else max)(fn(env, i) for i in spans[0]))

        return value

    def _lambda(self, expr: Expr) -> Callable[..., Any]:
        if not isinstance(expr, Lambda):
            raise CuirError("a list kernel's op has no lambda")
        params, body = expr.params, self.compile(expr.body)

        def call(env: Env, *values: int) -> Any:
            return body({**env, **dict(zip(params, values, strict=True))})

        return call

    def _place(self, tile: Index) -> Callable[[Env], Place]:
        *lead, last = tile.index
        if not isinstance(last, Slice):
            raise CuirError("a list kernel writes to no tile of a view")
        items = [self.compile(i) for i in (*lead, last.start)]
        return lambda env: tuple(int(i(env)) for i in items)

    def _statement(self, stmt: Stmt) -> Callable[[Env], tuple[bool, Any]]:
        match stmt:
            case Do(Call("put_bits")):
                return lambda env: (False, None)  # another writing of the mask; nobody draws it
            case Do(Call("put", (Index() as dst, value))):
                place, number = self._place(dst), self.compile(value)

                def put(env: Env) -> tuple[bool, Any]:
                    self._held[place(env)] = int(number(env))
                    return (False, None)

                return put
        return super()._statement(stmt)
