"""A kernel as one warpgroup (or the whole block) sees it: ops with their demands, and the control
flow between them that depends on sizes.

Types and compile-time constants are settled here, once; scalars that no condition and no bound
hangs on are dropped. What is left is cheap to walk for every block of a grid (`walk`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.cost.demand import Demand
from engine.cost.nodes import Branch, Loop, Node, Op, Order, Set, sliced
from engine.cost.ops import Bound, cost
from engine.cost.values import Reads, Values
from engine.cuir.arch import Arch
from engine.cuir.nodes import (
    Assign,
    Call,
    Do,
    Expr,
    For,
    Function,
    If,
    Index,
    Module,
    Name,
    Num,
    Opaque,
    Return,
    Stmt,
    next_of,
    walk_block,
)
from engine.cuir.ops import OPS
from engine.cuir.ops.bind import bind
from engine.cuir.ops.spec import Mismatch, Pending, RuleContext
from engine.cuir.ops.traits import DENSE_LOADS, NAMED_BARRIERS
from engine.cuir.printer import print_expr
from engine.cuir.static.facts import Facts
from engine.cuir.static.infer import WarpgroupTyper
from engine.cuir.static.infer_scalars import Scope
from engine.cuir.types import (
    DTYPES,
    DTypeValue,
    LambdaType,
    Nothing,
    Scalar,
    TileType,
    Type,
    Unknown,
)

_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Role:
    """What one warpgroup (or the whole block) does, and the register tiles that it holds."""

    nodes: tuple[Node, ...]
    tiles: Mapping[str, TileType]
    threads: int


def role_tree(
    module: Module, arch: Arch, kernel: str, consts: Mapping[str, Any], threads: int,
    warpgroup: int | None, values: Values, *, orders: bool = False,
) -> Role:  # fmt: skip
    """`kernel` with these constants, as `warpgroup` sees it (None: the block is one unit); with
    what its barriers are given where `orders`."""
    function = module.function(kernel)
    builder = _Builder(module, arch, threads, warpgroup, values)
    scope: Scope = {p.name: Unknown() for p in function.params}
    scope |= {name: _constant(value) for name, value in consts.items()}
    nodes = builder.block(function.body, scope, "")
    return Role(tuple(sliced(nodes, orders=orders)), builder.tiles, builder.unit)


@dataclass
class _Builder:
    module: Module
    arch: Arch
    threads: int
    warpgroup: int | None
    values: Values
    depth: int = 0
    reads: Reads = field(init=False)

    def __post_init__(self) -> None:
        functions = {f.name: f for f in self.module.functions}
        self.functions = functions
        self.tiles: dict[str, TileType] = {}
        self.lazy: set[str] = set()
        self.facts = Facts(self.module)
        self.reads = Reads({n: f for n, f in functions.items() if f.kind == "device"})
        spec: Scope = {}
        for name, value in self.module.spec:
            match value:
                case Name(id) if id in DTYPES:
                    spec[name] = DTypeValue(DTYPES[id])
                case Num(number):
                    spec[name] = _constant(number)
        context = RuleContext(self.arch, self.threads, primitives=False)
        self.typer = WarpgroupTyper(self.module, context, spec, self.returned)
        self.typer.warpgroup = self.warpgroup
        self.typer.kind = "kernel"
        self.unit = 128 if self.warpgroup is not None else self.threads

    # --- statements --------------------------------------------------------------------------

    def block(self, body: Sequence[Stmt], scope: Scope, prefix: str) -> list[Node]:
        out: list[Node] = []
        for stmt in body:
            match stmt:
                case Assign(target, value):
                    out += self.assign(target, value, scope, prefix)
                case Do(call):
                    out += self.op(call, scope, prefix)
                case If(cond, then, other):
                    out += self.branch(cond, then, other, scope, prefix)
                case For():
                    out.append(self.loop(stmt, scope, prefix))
                case Return(value):
                    if isinstance(value, Call):
                        out += self.op(value, scope, prefix)
                    break
                case Opaque(_, _, writes, meaning):
                    scope.update({name: Unknown() for name in writes})
                    out += self.block(meaning, scope, prefix)
        return out

    def type(self, expr: Expr, scope: Scope) -> Type:
        try:
            return self.typer.type(expr, scope)
        except (Mismatch, KeyError):
            return Unknown()

    def assign(self, target: str, value: Expr, scope: Scope, prefix: str) -> list[Node]:
        nodes: list[Node] = []
        if isinstance(value, Call):
            nodes += self.op(value, scope, prefix)
        scope[target] = found = self.type(value, scope)
        if isinstance(value, Call) and value.fn in DENSE_LOADS:
            self.lazy.add(target)
        elif isinstance(found, TileType):
            self.tiles[target] = found
        if isinstance(found, Scalar | Unknown) and not nodes:
            named = self.named(value, scope, prefix)
            nodes.append(Set(prefix + target, self.values.number(named), self.reads.of(named)))
        return nodes

    def named(self, expr: Expr, scope: Scope, prefix: str) -> Expr:
        """`expr` with compile-time constants as numbers, and an inlined function's own names."""
        from engine.cuir.canonical import map_expr

        def change(node: Expr) -> Expr:
            if isinstance(node, Name):
                known = scope.get(node.id)
                if isinstance(known, Scalar) and known.value is not None:
                    return Num(known.value)
                if isinstance(known, DTypeValue):
                    return Name(known.dtype.name)
                return Name(prefix + node.id) if prefix and node.id in scope else node
            return node

        return map_expr(expr, change)

    def branch(
        self, cond: Expr, then: Sequence[Stmt], other: Sequence[Stmt], scope: Scope, prefix: str
    ) -> list[Node]:
        test = self.type(cond, scope)
        known = test.value if isinstance(test, Scalar) else None
        if known is not None:
            return self.block(then if known else other, scope, prefix)
        left, right = dict(scope), dict(scope)
        named = self.named(cond, scope, prefix)
        ways = [tuple(self.block(b, s, prefix)) for b, s in ((then, left), (other, right))]
        for name in {*left, *right}:
            one, two = left.get(name), right.get(name)
            if one == two and one is not None:
                scope[name] = one
            elif isinstance(one, TileType) or isinstance(two, TileType):
                scope[name] = one if isinstance(one, TileType) else two or Unknown()
            else:
                scope[name] = _weak(one or two or Unknown())
        return [Branch(self.values.number(named), self.reads.of(named), ways[0], ways[1])]

    def loop(self, stmt: For, scope: Scope, prefix: str) -> Loop:
        # Claimed pieces are dealt like those of a fixed share: one to each block in turn.
        step = stmt.step if next_of(stmt.step) is None else Call("grid_dim", (Num(0),))
        ends = [self.named(e, scope, prefix) for e in (stmt.start, stmt.stop, step)]
        reads = frozenset[str]().union(*(self.reads.of(e) for e in ends))
        for _, inner in walk_block(stmt.body, ()):
            if isinstance(inner, Assign) and inner.target in scope:
                scope[inner.target] = _weak(scope[inner.target])
        scope[stmt.var] = Scalar("i32")
        body = self.block(stmt.body, scope, prefix)
        bounds = tuple(self.values.number(e) for e in ends)
        return Loop(prefix + stmt.var, bounds, reads, tuple(body))

    # --- calls -------------------------------------------------------------------------------

    def returned(self, function: Function, args: list[Type], consts: list[Type]) -> Type:
        """The type that a device function gives (the typer asks)."""
        scope: Scope = dict(zip((p.name for p in function.params), args, strict=True))
        scope |= dict(zip(function.consts, consts, strict=True))
        last = function.body[-1] if function.body else None
        if self.depth >= _DEPTH or self.facts.is_pure(function.name):
            return Scalar("i32") if self.depth < _DEPTH else Unknown()
        self.depth += 1
        try:
            self.block(function.body[:-1], scope, "")
            if isinstance(last, Return) and last.value is not None:
                return self.type(last.value, scope)
            return Nothing()
        finally:
            self.depth -= 1

    def op(self, call: Call, scope: Scope, prefix: str) -> list[Node]:
        spec = OPS.get(call.fn)
        if spec is not None:
            if spec.is_value:
                return []
            return [self.made(call, scope, prefix)]
        function = self.functions.get(call.fn)
        if function is None or self.facts.is_pure(call.fn) or self.depth >= _DEPTH:
            return []
        return self.inlined(call, function, scope, prefix)

    def inlined(self, call: Call, function: Function, scope: Scope, prefix: str) -> list[Node]:
        """The body of a device function that holds ops, in the caller's place."""
        inner: Scope = {}
        nodes: list[Node] = []
        label = f"{prefix}{function.name}."
        names = [*(p.name for p in function.params), *function.consts]
        for name, arg in zip(names, (*call.args, *call.params), strict=False):
            if arg == Name("args"):
                inner[name] = Unknown()
                continue
            inner[name] = found = self.type(arg, scope)
            if isinstance(found, Scalar) and found.value is None:
                named = self.named(arg, scope, prefix)
                value, reads = self.values.number(named), self.reads.of(named)
                nodes.append(Set(label + name, value, reads))
        self.depth += 1
        try:
            return nodes + self.block(function.body, inner, label)
        finally:
            self.depth -= 1

    def made(self, call: Call, scope: Scope, prefix: str) -> Op:
        spec = OPS[call.fn]
        operands: dict[str, Type | tuple[Type, ...] | None] = {}
        try:
            bound = bind(spec, call)
        except Mismatch:
            return Op(call.fn, Demand())
        for operand, value in zip(spec.operands, bound, strict=True):
            if value is None:
                operands[operand.name] = None
            elif isinstance(value, list):
                operands[operand.name] = tuple(self.type(v, scope) for v in value)
            else:
                found = self.type(value, scope)
                if isinstance(found, LambdaType):
                    found = LambdaType(_constants_in(found, scope))
                operands[operand.name] = found
        lazy = sum(
            isinstance(item, Name) and item.id in self.lazy
            for value in bound if isinstance(value, list) for item in value
        )  # fmt: skip
        bound_op = Bound(call.fn, operands, self.unit, self.type(call, scope), lazy)
        keep = operands.get("n")
        count = keep.value if isinstance(keep, Scalar) else None
        acc = operands.get("acc")
        tile = acc if isinstance(acc, TileType) else None
        order = self.order(call.fn, bound, scope, prefix)
        return Op(call.fn, cost(bound_op), int(count or 0), tile, order)

    def order(self, name: str, bound: Sequence[Any], scope: Scope, prefix: str) -> Order | None:
        """What the op gives a barrier, where it has to do with one."""
        kinds = {o.kind: value for o, value in zip(OPS[name].operands, bound, strict=True)}
        given = kinds.get("barrier")
        barriers: int | str = ""
        if given is None and name not in NAMED_BARRIERS:
            return None
        numbers = {
            o.name: value
            for o, value in zip(OPS[name].operands, bound, strict=True)
            if o.kind == "int" and OPS[name].pending is Pending.NONE
        }
        if isinstance(given, Index):
            numbers["at"], given = given.index[0], given.base
        if given is not None:
            place = getattr(self.type(given, scope), "offset", None)
            barriers = print_expr(given) if place is None else int(place)
        named = {key: self.named(value, scope, prefix) for key, value in numbers.items()}
        reads = frozenset[str]().union(*(self.reads.of(value) for value in named.values()))
        return Order(barriers, {k: self.values.number(v) for k, v in named.items()}, reads)


def _constants_in(found: LambdaType, scope: Scope) -> Any:
    """The lambda with the compile-time constants that it captures as numbers."""
    from engine.cuir.canonical import map_expr
    from engine.cuir.nodes import Lambda

    node = found.node

    def change(inner: Expr) -> Expr:
        if isinstance(inner, Name) and inner.id not in node.params:
            known = scope.get(inner.id)
            if isinstance(known, Scalar) and known.value is not None:
                return Num(known.value)
        return inner

    return Lambda(node.params, map_expr(node.body, change))


def _constant(value: Any) -> Type:
    if isinstance(value, str):
        return DTypeValue(DTYPES[value]) if value in DTYPES else Unknown()
    if isinstance(value, bool):
        return Scalar("bool", value)
    return Scalar("f32" if isinstance(value, float) else "i32", value)


def _weak(kind: Type) -> Type:
    return Scalar(kind.dtype) if isinstance(kind, Scalar) else kind
