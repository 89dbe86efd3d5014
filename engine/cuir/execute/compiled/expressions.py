"""Expressions as closures over a part's names: ids, views, tiles, element loads, calls."""

from __future__ import annotations

import importlib
from dataclasses import replace
from operator import itemgetter
from typing import Any

from engine.cuir.execute.compiled.code import PART, SUCCESS, Code, Stopped
from engine.cuir.execute.compiled.op_site import OpSite
from engine.cuir.execute.compiled.pure import run_pure
from engine.cuir.execute.state.global_memory import read_of_written
from engine.cuir.execute.state.values import (
    BarrierArray,
    BarrierRef,
    Gmem,
    GmemTile,
    LambdaValue,
    Shared,
    TensorField,
    Word,
    WordArray,
    WordRef,
)
from engine.cuir.findings import Finding
from engine.cuir.nodes import (
    Attr,
    Call,
    Expr,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Path,
    Slice,
    Str,
    Tuple,
    walk_expr,
)
from engine.cuir.ops import OPS, OpSpec
from engine.cuir.ops.bind import bind
from engine.cuir.ops.spec import Mismatch
from engine.cuir.scalar import CASTS, CONSTANTS, FUNCTIONS, Compiler, Env, Fn, Mode
from engine.cuir.static.calls import why_not_nested
from engine.cuir.static.facts import Facts
from engine.cuir.types import (
    DTYPES,
    LAYOUT_NAMES,
    WORD_PITCH,
    KernelRef,
    LambdaType,
    Layout,
    make_layout,
    vector_layout,
)


class ExpressionCompiler(Compiler):
    """Compiles the expressions of one module; `_names` are those that the function assigns."""

    def __init__(self, module: Module, mode: Mode) -> None:
        super().__init__(mode)
        self.module = module
        self.facts = Facts(module)
        self.functions = self.facts.functions
        self.codes = {f.name: Code(f) for f in module.functions}
        self.spec_values = {k: _spec_value(v) for k, v in module.spec}
        self.paths: list[Path] = []
        self._names: frozenset[str] = frozenset()
        self._path = -1
        self._kind = "device"

    def compile(self, expr: Expr) -> Fn:
        match expr:
            case Attr(Name("args"), field):
                return lambda env: env["args"][field]
            case Lambda(params, body):
                return self.lambda_(expr, params, body)
            case Tuple(items):
                parts = [self.compile(i) for i in items]
                return lambda env: [p(env) for p in parts]
            case Str(value):
                return lambda env: value
        return super().compile(expr)

    def lambda_(self, node: Lambda, params: tuple[str, ...], body: Expr) -> Fn:
        outer = self._names
        self._names = outer | set(params)
        try:
            fn = self.compile(body)
        finally:
            self._names = outer
        type, inside = LambdaType(node), list(walk_expr(body))
        called = {n.fn for n in inside if isinstance(n, Call)}
        read = {n.id for n in inside if isinstance(n, Name)} & (outer - {"args", *params})
        reads = None if called - {*FUNCTIONS, *CASTS} else tuple(sorted(read))
        return lambda env: LambdaValue(type, fn, env, reads)

    def name(self, id: str) -> Fn:
        if id in self._names:
            return itemgetter(id)
        for table in (self.spec_values, DTYPES):
            if id in table:
                value = table[id]
                return lambda env: value
        if id in CONSTANTS:
            constant = self.constant(id)
            return lambda env: constant
        if id == "success":
            return lambda env: SUCCESS
        if id == "a_operand":
            word = Word(id)
            return lambda env: word
        if id in self.functions and self.functions[id].kind == "kernel":
            return self.kernel(Name(id))
        raise Mismatch("unknown_name", f"{id} is not defined")

    def kernel(self, value: Expr) -> Fn:
        match value:
            case Name(id):
                consts: list[Fn] = []
            case Index(Name(id), items):
                consts = [self.compile(i) for i in items]
            case _:
                raise Mismatch("launch_mismatch", "run launches a kernel by its name")
        function = self.functions.get(id)
        if function is None or function.kind != "kernel":
            raise Mismatch("launch_mismatch", f"{id} is no kernel of this module")
        if len(consts) != len(function.consts):
            raise Mismatch("launch_mismatch", f"{id} has {len(function.consts)} constants "
                           f"({', '.join(function.consts)}), not {len(consts)}")  # fmt: skip
        return lambda env: KernelRef(id, tuple(c(env) for c in consts))

    def call(self, expr: Call) -> Fn:
        spec = OPS.get(expr.fn)
        if why := why_not_nested(expr, self.facts):
            raise Mismatch("unknown_op", why)
        if spec is not None:
            return self.site(spec, expr, self._path)
        if expr.fn in self.functions:
            return self.pure_call(expr)
        if expr.fn not in FUNCTIONS and expr.fn not in CASTS:
            raise Mismatch("unknown_op", f"{expr.fn} is no op, scalar function or device function")
        return super().call(expr)

    def pure_call(self, expr: Call) -> Fn:
        code = self.callee(expr)
        given = [self.compile(e) for e in (*expr.args, *expr.params)]
        names, of_numbers = (*code.params, *code.consts), self.facts.of_numbers(expr.fn)

        def call(env: Env) -> Any:
            part, values = env.get(PART), [f(env) for f in given]

            def run() -> Any:
                inner: Env = {PART: part, "args": env.get("args")}
                inner.update(zip(names, values, strict=True))
                return run_pure(code, inner, self.paths)

            # Beside the argument struct: all parts of all blocks ask a schedule for the same tiles.
            numbers = [v for v in values if type(v) is not dict]
            if not of_numbers or part is None or {*map(type, numbers)} - {int}:
                return run()
            found, key = part.program.found, (code, *numbers)
            if key not in found:
                found[key] = run()
            return found[key]

        return call

    def callee(self, call: Call) -> Code:
        code = self.codes[call.fn]
        if code.function.kind != "device":
            raise Mismatch("unknown_op", f"{call.fn} is a {code.function.kind} function: "
                           "only device functions are called")  # fmt: skip
        if len(call.args) != len(code.params) or len(call.params) != len(code.consts):
            raise Mismatch(
                "arity",
                f"{call.fn} takes {len(code.params)} operands and {len(code.consts)} constants, "
                f"not {len(call.args)} and {len(call.params)}",
            )
        return code

    def site(self, spec: OpSpec, call: Call, index: int) -> OpSite:
        if not spec.may_stand_in(self._kind):
            raise Mismatch("unknown_op", f"{spec.name} is no op for a {self._kind} function")
        bound = bind(spec, call)
        args: list[Fn | list[Fn] | None] = []
        for operand, value in zip(spec.operands, bound, strict=True):
            if value is None:
                args.append(None)
            elif isinstance(value, list):
                args.append([self.compile(v) for v in value])
            elif operand.kind == "kernel":
                args.append(self.kernel(value))
            else:
                args.append(self.compile(value))
        family, name = spec.execute.split(":")
        module = importlib.import_module(f"engine.cuir.execute.families.run_{family}")
        execute = getattr(module, name)
        return OpSite(spec, args, index, execute)

    # --- indexing ----------------------------------------------------------------------------

    def index(self, expr: Index) -> Fn:
        match expr.base:
            case Name(id) if id in LAYOUT_NAMES and id not in self._names:
                return self.layout(id, expr.index)
        base = self.compile(expr.base)
        path = self._path
        *lead, tail = expr.index
        if isinstance(tail, Slice):
            row = self.compile(tail.start)
            items = [self.compile(i) for i in lead]

            def tile(env: Env) -> Any:
                view = base(env)
                if type(view) is not Gmem or len(items) not in (
                    len(view.shape) - 1, len(view.shape) - 2,
                ):  # fmt: skip
                    raise self.stop_at(path, "only a view of a tensor has tiles: all indices but "
                                       "the last one or two, then `row:`")  # fmt: skip
                return GmemTile(view, tuple([int(i(env)) for i in items]), int(row(env)))

            return tile
        items = [self.compile(i) for i in expr.index]
        mode = self.mode

        def element(env: Env) -> Any:
            value = base(env)
            at = [i(env) for i in items]
            kind = type(value)
            if kind is Gmem:
                if len(at) != len(value.shape):
                    raise self.stop_at(path, f"{len(at)} indices for a view of rank "
                                       f"{len(value.shape)}")  # fmt: skip
                if not value.inside and value.beyond(at):
                    env[PART].program.report(
                        "out_of_bounds", path, "reads inside the view of "
                        f"{value.field.name} and outside its tensor", env[PART].index,
                    )  # fmt: skip
                if value.field.owner is not None or value.field.unfilled:
                    read_of_written(env[PART], path, value, at)
                return value.load(at)
            if kind is Shared and value.type.stages is not None and len(at) == 1:
                return self.stage(value, at[0], path, env[PART])
            if kind is BarrierArray and len(at) == 1:
                count = value.type.count
                if not 0 <= at[0] < count:
                    raise self.stop_at(path, f"barrier {at[0]} of {count}", "out_of_bounds")
                return BarrierRef(value.offset + 8 * at[0])
            if kind is WordArray and len(at) == 1:
                count = value.type.count
                if not 0 <= at[0] < count:
                    raise self.stop_at(path, f"word {at[0]} of {count}", "out_of_bounds")
                return WordRef(value.offset + WORD_PITCH * at[0])
            if kind is TensorField:
                raise self.stop_at(path, "a tensor field is read through a gmem view")
            raise self.stop_at(path, f"cannot index this ({mode} run)")

        return element

    def stage(self, value: Shared, number: int, path: int, part: Any) -> Shared:
        cache = part.program.stages
        key = (value.type, value.offset, number)
        found = cache.get(key)
        if found is None:
            count = value.type.stages or 0
            if not 0 <= number < count:
                raise self.stop_at(path, f"stage {number} of {count}", "out_of_bounds")
            offset = value.offset + number * value.type.tile_bytes
            one = replace(value.type, offset=offset, stages=None)
            cache[key] = found = Shared(one, offset)
        made: Shared = found
        return made

    def layout(self, id: str, items: tuple[Expr, ...]) -> Fn:
        dims = [self.compile(i) for i in items]
        path = self._path
        cache: dict[tuple[Any, ...], Layout] = {}

        def make(env: Env) -> Layout:
            values = tuple([d(env) for d in dims])
            found = cache.get(values)
            if found is None:
                try:
                    if id in ("row_of", "col_of"):
                        if len(values) != 1 or not isinstance(values[0], Layout):
                            raise ValueError(f"{id} takes a tile layout")
                        found = vector_layout(id, values[0])
                    else:
                        found = make_layout(id, values)
                except (ValueError, TypeError) as wrong:
                    raise self.stop_at(path, str(wrong), "layout_mismatch") from None
                cache[values] = found
            return found

        return make

    def stop_at(self, path: int, message: str, kind: str = "type_mismatch") -> Stopped:
        where = self.paths[path]
        return Stopped(Finding(kind, where, message), where, message)


def _spec_value(value: Expr) -> Any:
    match value:
        case Name(id):
            return DTYPES.get(id, id)
        case Num(number):
            return number
        case Str(text):
            return text
    return None
