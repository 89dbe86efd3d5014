"""The type of an expression, with the values of compile-time constants carried along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.cuir.nodes import (
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Field,
    Function,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Select,
    Slice,
    Str,
    Tuple,
    Unary,
)
from engine.cuir.ops import OPS, OpSpec
from engine.cuir.ops.bind import bind
from engine.cuir.ops.registers import loaded_as
from engine.cuir.ops.spec import Mismatch, RuleContext, check_operand, mismatch
from engine.cuir.ops.traits import MAPS, WARPGROUPS
from engine.cuir.printer import print_expr
from engine.cuir.scalar import (
    CASTS,
    CONSTANTS,
    FUNCTIONS,
)
from engine.cuir.static.infer_scalars import ScalarTyper, Scope
from engine.cuir.types import (
    DTYPES,
    LAYOUT_NAMES,
    BarriersType,
    DTypeValue,
    FieldType,
    GmemTileType,
    GmemType,
    KernelRef,
    LambdaType,
    LayoutValue,
    ListType,
    NameType,
    Scalar,
    SharedType,
    TileType,
    Type,
    Unknown,
    WordsType,
    describe,
    make_layout,
    vector_layout,
)

CallFunction = Callable[[Function, list[Type], list[Type]], Type]


def _element(tile: Type) -> str:
    """The type that a tile's element has in a lambda; whole numbers have 32 bits there."""
    if not isinstance(tile, TileType):
        return "f32"
    return {"i32": "i32", "i64": "i32", "bool": "bool"}.get(tile.dtype, "f32")


class Typer(ScalarTyper):
    """Types expressions of one function. Raises `Mismatch` where a rule does not hold."""

    def __init__(
        self, module: Module, context: RuleContext, spec: Scope, call: CallFunction
    ) -> None:
        self.module = module
        self.context = context
        self.spec = spec
        self.functions = {f.name: f for f in module.functions}
        self.fields: dict[str, Field] = {f.name: f for f in module.fields}
        self.call_function = call
        self.kind = "device"  # of the function whose expressions are typed

    def type(self, expr: Expr, scope: Scope) -> Type:
        match expr:
            case Num(value):
                narrow = isinstance(value, bool) or -(2**31) < value < 2**31
                kind = "bool" if isinstance(value, bool) else "i32" if narrow else "i64"
                return Scalar("f32" if isinstance(value, float) else kind, value)
            case Str(value):
                return NameType(value)
            case Name(id):
                return self.name(id, scope)
            case Attr(Name("args"), field):
                return self.field(field)
            case Unary(op, operand):
                return self.unary(op, self.type(operand, scope), operand)
            case Binary(op, left, right):
                return self.binary(op, left, right, scope)
            case Compare(op, left, right):
                sides = [self.number(e, scope) for e in (left, right)]
                return self.fold("bool", op, sides)
            case Bool(op, left, right):
                return self.logic(op, self.type(left, scope), self.type(right, scope))
            case Select(cond, then, other):
                return self.select(self.type(cond, scope), then, other, scope)
            case Lambda():
                return LambdaType(expr)
            case Tuple(items):
                return ListType(tuple(self.type(i, scope) for i in items))
            case Call():
                return self.call(expr, scope)
            case Index():
                return self.index(expr, scope)
        mismatch(f"{print_expr(expr)} has no value here", "unknown_op")

    # --- names -------------------------------------------------------------------------------

    def name(self, id: str, scope: Scope) -> Type:
        if id in scope:
            return scope[id]
        if id in self.spec:
            return self.spec[id]
        if id in DTYPES:
            return DTypeValue(DTYPES[id])
        if id in CONSTANTS:
            return Scalar("f32", CONSTANTS[id])
        if id == "success":
            return Scalar("i32", 0)
        if id == "a_operand":
            return NameType(id)
        if id in self.functions and self.functions[id].kind == "kernel":
            return self.kernel(id, (), scope)
        mismatch(f"{id} is not defined", "unknown_name")

    def field(self, name: str) -> Type:
        field = self.fields.get(name)
        if field is None:
            mismatch(f"args has no field {name}", "unknown_name")
        return FieldType(name, "tensor") if field.type == "tensor" else Scalar(field.type)

    def kernel(self, id: str, items: tuple[Expr, ...], scope: Scope) -> Type:
        function = self.functions[id]
        if len(items) != len(function.consts):
            mismatch(
                f"{id} has {len(function.consts)} constants ({', '.join(function.consts)}), not "
                f"{len(items)}",
                "launch_mismatch",
            )
        return KernelRef(id, tuple(self.type(i, scope) for i in items))

    # --- calls -------------------------------------------------------------------------------

    def call(self, expr: Call, scope: Scope) -> Type:
        spec = OPS.get(expr.fn)
        if spec is not None:
            return self.op(spec, expr, scope)
        if expr.fn in self.functions:
            return self.device(expr, scope)
        if expr.fn in FUNCTIONS:
            return self.function(expr, scope)
        if expr.fn in CASTS:
            return self.cast(expr, scope)
        mismatch(f"{expr.fn} is no op, scalar function or device function", "unknown_op")

    def device(self, expr: Call, scope: Scope) -> Type:
        function = self.functions[expr.fn]
        if function.kind != "device":
            mismatch(f"{expr.fn} is a {function.kind} function: only device functions are called",
                     "unknown_op")  # fmt: skip
        if len(expr.args) != len(function.params) or len(expr.params) != len(function.consts):
            mismatch(
                f"{expr.fn} takes {len(function.params)} operands and {len(function.consts)} "
                f"constants, not {len(expr.args)} and {len(expr.params)}",
                "arity",
            )
        args = [self.argument(a, scope) for a in expr.args]
        return self.call_function(function, args, [self.type(p, scope) for p in expr.params])

    def argument(self, expr: Expr, scope: Scope) -> Type:
        if expr == Name("args"):
            return Unknown()
        return self.type(expr, scope)

    def op(self, spec: OpSpec, expr: Call, scope: Scope) -> Type:
        if not spec.may_stand_in(self.kind):
            mismatch(f"{spec.name} is no op for a {self.kind} function", "unknown_op")
        bound = bind(spec, expr)
        if not self.context.arch.has(spec.needs):
            mismatch(
                f"{self.context.arch.name} has no {spec.needs}, which {spec.name} needs",
                "not_on_arch",
            )
        types: list[Any] = []
        for operand, value in zip(spec.operands, bound, strict=True):
            if value is None:
                types.append(None)
            elif isinstance(value, list):
                types.append(tuple(self.type(v, scope) for v in value))
                for item in types[-1]:
                    check_operand(spec, operand, item)
            else:
                types.append(self.kernel_operand(value, scope) if operand.kind == "kernel"
                             else self.type(value, scope))  # fmt: skip
                check_operand(spec, operand, types[-1])
        result = spec.rule(self.context, *types)
        for operand, kind in zip(spec.operands, types, strict=True):
            if operand.kind == "lambda" and isinstance(kind, LambdaType):
                tiles = types[0] if isinstance(types[0], tuple) else (types[0],)
                self.lambda_body(spec, kind.node, tiles, scope)
        return result

    def kernel_operand(self, value: Expr, scope: Scope) -> Type:
        match value:
            case Name(id) if id in self.functions:
                return self.kernel(id, (), scope)
            case Index(Name(id), items) if id in self.functions:
                return self.kernel(id, items, scope)
        mismatch("run launches a kernel by its name", "launch_mismatch")

    def lambda_body(
        self, spec: OpSpec, node: Lambda, tiles: tuple[Type, ...], scope: Scope
    ) -> None:
        """Types a lambda's body: values of the tiles first (map), then whole coordinates."""
        inner = dict(scope)
        values = tiles if spec.name in MAPS else tiles[1:]  # others judge, and map nothing
        for position, name in enumerate(node.params):
            tile = values[position] if position < len(values) else None
            inner[name] = Scalar("i32" if tile is None else _element(tile))
        result = self.type(node.body, inner)
        if not isinstance(result, (Scalar, Unknown)):
            mismatch(f"the lambda gives {describe(result)}, not a number")
        if not isinstance(result, Scalar):
            return
        if spec.spelling.condition and result.dtype != "bool":
            mismatch(f"{spec.name}'s lambda is a condition, and this one gives {result.dtype}")
        counts = spec.spelling.kind == "i32" and not spec.spelling.condition
        if counts and result.dtype not in ("i32", "i64"):
            mismatch(f"{spec.name}'s lambda gives whole numbers, and this one {result.dtype}")

    # --- indexing ----------------------------------------------------------------------------

    def index(self, expr: Index, scope: Scope) -> Type:
        match expr.base:
            case Name(id) if id in LAYOUT_NAMES and id not in scope:
                return self.layout(id, expr.index, scope)
            case Name(id) if id in self.functions and self.functions[id].kind == "kernel":
                return self.kernel(id, expr.index, scope)
        base = self.type(expr.base, scope)
        *lead, tail = expr.index
        if any(isinstance(i, Slice) for i in lead):
            mismatch("`row:` stands last in a tile: of a view whose rows come last or last but one")
        if isinstance(tail, Slice):
            whole = [self.whole(i, scope) for i in (*lead, tail.start)]
            if isinstance(base, Unknown):
                return base
            if not isinstance(base, GmemType) or len(lead) not in (base.rank - 1, base.rank - 2):
                mismatch("only a view of a tensor has tiles: all indices but the last one or two, "
                         "then `row:`")  # fmt: skip
            return GmemTileType(base, len(whole) == base.rank)
        items = [self.whole(i, scope) for i in expr.index]
        match base:
            case GmemType(_, dtype, rank):
                if len(items) != rank:
                    mismatch(f"{len(items)} indices for a view of rank {rank}")
                return Scalar(loaded_as(dtype))
            case SharedType(stages=stages) if stages is not None and len(items) == 1:
                self.inside(items[0], stages, "stage")
                return replace(base, offset=None, stages=None, skew=self.skew(base, items[0]))
            case BarriersType(count, single=False) if len(items) == 1:
                if count is not None:
                    self.inside(items[0], count, "barrier")
                return BarriersType(None, True)
            case WordsType(count, single=False) if len(items) == 1:
                if count is not None:
                    self.inside(items[0], count, "word")
                return WordsType(None, True)
            case Unknown():
                return base
        mismatch(f"{describe(base)} cannot be indexed")

    def whole(self, expr: Expr, scope: Scope) -> Type:
        value = self.number(expr, scope)
        if isinstance(value, Scalar) and value.dtype not in ("i32", "i64"):
            mismatch(f"an index is a whole number, and {print_expr(expr)} is {value.dtype}")
        return value

    def inside(self, index: Type, count: int, what: str) -> None:
        known = index.value if isinstance(index, Scalar) else None
        if known is not None and not 0 <= known < count:
            mismatch(f"{what} {known} of {count}", "out_of_bounds")

    def skew(self, stages: SharedType, index: Type) -> int | None:
        """`SharedType.skew` of one of these stages."""
        align = self.context.arch.async_tile
        if stages.offset is None or not align:
            return None
        number = index.value if isinstance(index, Scalar) else None
        if number is None and stages.tile_bytes % align:
            return None
        return (stages.offset + int(number or 0) * stages.tile_bytes) % align

    def layout(self, id: str, items: tuple[Expr, ...], scope: Scope) -> Type:
        values = [self.type(i, scope) for i in items]
        try:
            if id in ("row_of", "col_of"):
                if len(values) == 1 and isinstance(values[0], Unknown):
                    return Unknown()
                if len(values) != 1 or not isinstance(values[0], LayoutValue):
                    raise ValueError(f"{id} takes a tile layout")
                return LayoutValue(vector_layout(id, values[0].layout))
            dims = [v.value for v in values if isinstance(v, Scalar) and v.value is not None]
            if len(dims) < len(values):
                return Unknown()
            return LayoutValue(make_layout(id, tuple(int(d) for d in dims)))
        except ValueError as wrong:
            raise Mismatch("layout_mismatch", str(wrong)) from None


class WarpgroupTyper(Typer):
    """Types a kernel as one of its warpgroups sees it, where one is set."""

    warpgroup: int | None = None

    def call(self, expr: Call, scope: Scope) -> Type:
        found = super().call(expr, scope)
        known = expr.fn in WARPGROUPS and self.warpgroup is not None
        return Scalar("i32", self.warpgroup) if known else found
