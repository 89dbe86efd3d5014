"""Functions of a module as flat code: a list of instructions with jumps.

A part of a block is a stack of frames over this code, so the scheduler can stop it anywhere
without threads. Expressions are closures (engine.cuir.scalar), ops are `OpSite`s.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from engine.cuir.arch import Arch
from engine.cuir.execute.values import (
    BarrierArray,
    BarrierRef,
    Gmem,
    GmemTile,
    LambdaValue,
    RegTile,
    Shared,
    TensorField,
    Word,
    type_of,
)  # fmt: skip
from engine.cuir.findings import Finding
from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Do,
    Expr,
    For,
    Function,
    If,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Opaque,
    Path,
    Return,
    Slice,
    Stmt,
    Str,
    Tuple,
    walk_expr,
)  # fmt: skip
from engine.cuir.ops import OPS, Effect, OpSpec, Who
from engine.cuir.ops.bind import bind
from engine.cuir.ops.spec import Mismatch, RuleContext, check_operand
from engine.cuir.scalar import CASTS, CONSTANTS, FUNCTIONS, Compiler, Env, Fn, Mode
from engine.cuir.types import (
    DTYPES,
    FAMILIES,
    LAYOUT_NAMES,
    KernelRef,
    LambdaType,
    Layout,
    make_layout,
    vector_layout,
)  # fmt: skip
from engine.errors import CuirError

# Ops and layouts that only make sense where a warpgroup is the unit.
_FAMILY_NEEDS = {f.needs for f in FAMILIES if f.unit == "warpgroup"} | {"setmaxnreg"}
BY_WARPGROUP = frozenset(
    name for name, spec in OPS.items() if spec.needs in _FAMILY_NEEDS or name == "warpgroup_id"
)
WARPGROUP_LAYOUTS = frozenset(n for f in FAMILIES if f.unit == "warpgroup" for n in (f.acc, f.a))

PART = "$part"  # the executing part, in every environment of device and host code
SUCCESS = 0


class Kind(IntEnum):
    EXPR = 0
    OP = 1
    CALL = 2
    JUMP = 3
    BRANCH = 4
    LOOP = 5
    NEXT = 6
    ELECT = 7
    RETURN = 8
    OPAQUE = 9


class Instr:
    """One instruction; what the fields mean depends on `kind`."""

    __slots__ = ("args", "consts", "count", "elected", "fn", "jump", "kind", "path", "site", "target",
                 "var", "visible", "writes")  # fmt: skip

    def __init__(self, kind: Kind, path: int) -> None:
        self.kind = kind
        self.path = path
        self.target: str | None = None
        self.fn: Any = None
        self.site: OpSite | None = None
        self.jump = -1
        self.var = ""
        self.args: list[Fn] = []
        self.consts: list[Fn] = []
        self.visible = False
        self.writes = False  # shared memory
        self.elected = 0
        self.count = 0


class Code:
    """A compiled function."""

    __slots__ = ("consts", "function", "instrs", "names", "option_fns", "params")

    def __init__(self, function: Function) -> None:
        self.function = function
        self.params = tuple(p.name for p in function.params)
        self.consts = function.consts
        self.instrs: list[Instr] = []
        self.names: frozenset[str] = frozenset()
        self.option_fns: list[tuple[str, Fn]] = []

    def options(self, env: Env) -> list[tuple[str, Any]]:
        """The decorator's keywords for these constants: threads, min_blocks."""
        return [(name, fn(env)) for name, fn in self.option_fns]


class Stopped(Exception):
    """The run cannot go on: a finding at an op, or an opaque op without a meaning."""

    def __init__(self, finding: Finding | None, path: Path, reason: str) -> None:
        self.finding = finding
        self.path = path
        self.reason = reason
        super().__init__(reason)


class Block:
    """An op that cannot finish yet: `ready` says when it can, `finish` then does the rest."""

    __slots__ = ("about", "finish", "ready", "what")

    def __init__(
        self, ready: Callable[[], bool], finish: Callable[[], Any], what: str, about: Any = None
    ) -> None:
        self.ready = ready
        self.finish = finish
        self.what = what
        self.about = about


class OpSite:
    """One op at one place of the text: operands bound, types checked, then executed."""

    __slots__ = ("args", "execute", "path", "seen", "spec", "wanted")

    def __init__(
        self, spec: OpSpec, args: list[Fn | list[Fn] | None], path: int, execute: Any
    ) -> None:
        self.spec = spec
        self.args = args
        self.path = path
        self.execute = execute
        self.seen: dict[tuple[Any, ...], Any] = {}
        # Whether an operand's number takes part in the type rule.
        self.wanted = [o.kind in ("int", "number") for o in spec.operands]

    def __call__(self, env: Env) -> Any:
        part = env[PART]
        values = [
            a if a is None else [f(env) for f in a] if type(a) is list else a(env)
            for a in self.args
        ]
        key = tuple(
            [
                _key(v, wanted) if type(v) is not list else tuple([_key(x, False) for x in v])
                for v, wanted in zip(values, self.wanted, strict=True)
            ]
        )
        try:
            out = self.seen[key]
        except KeyError:
            out = self.seen[key] = self.check(part, values)
        part.path = self.path
        return self.execute(part, out, *values)

    def check(self, part: Any, values: list[Any]) -> Any:
        """The type of the result. Raises `Stopped` with the finding where a rule does not hold."""
        spec, program = self.spec, part.program
        try:
            if not program.arch.has(spec.needs):
                raise Mismatch(
                    "not_on_arch", f"{program.arch.name} has no {spec.needs}, which {spec.name} needs"
                )
            types: list[Any] = []
            for operand, value in zip(spec.operands, values, strict=True):
                if value is None:
                    types.append(None)
                    continue
                if operand.many:
                    each = tuple(type_of(v) for v in value)
                    for item in each:
                        check_operand(spec, operand, item)
                    types.append(each)
                else:
                    types.append(type_of(value))
                    check_operand(spec, operand, types[-1])
            return spec.rule(RuleContext(program.arch, part.threads), *types)
        except Mismatch as wrong:
            raise program.stop(wrong.kind, self.path, wrong.message, part) from None


def _key(value: Any, wanted: bool) -> Any:
    if type(value) is RegTile:
        return value.type
    if type(value) is int or type(value) is float:
        return value if wanted else type(value)
    if isinstance(value, Layout):
        return value
    return getattr(value, "type", None) or (value.name if hasattr(value, "name") else type(value))


class ProgramCompiler(Compiler):
    """Compiles all functions of one module for one mode."""

    def __init__(self, module: Module, mode: Mode, arch: Arch) -> None:
        super().__init__(mode)
        self.module = module
        self.arch = arch
        self.paths: list[Path] = []
        self.functions = {f.name: f for f in module.functions}
        self.spec_values = {k: self._spec(v) for k, v in module.spec}
        self.codes: dict[str, Code] = {}
        self.pure: dict[str, bool] = {}
        self._names: frozenset[str] = frozenset()
        self._path = -1
        self._elected: set[str] = set()
        for function in module.functions:
            self.codes[function.name] = Code(function)
        for function in module.functions:
            self.build(self.codes[function.name])

    @staticmethod
    def _spec(value: Expr) -> Any:
        match value:
            case Name(id):
                return DTYPES.get(id, id)
            case Num(number):
                return number
            case Str(text):
                return text
        return None

    def path_index(self, path: Path) -> int:
        self.paths.append(path)
        return len(self.paths) - 1

    def fail(self, kind: str, message: str) -> Stopped:
        path = self.paths[self._path]
        return Stopped(Finding(kind, path, message), path, message)

    # --- functions ---------------------------------------------------------------------------

    def build(self, code: Code) -> None:
        function = code.function
        assigned = {s.target for s in _statements(function.body) if isinstance(s, Assign)}
        loops = {s.var for s in _statements(function.body) if isinstance(s, For)}
        opaque = {n for s in _statements(function.body) if isinstance(s, Opaque) for n in s.writes}
        code.names = frozenset(assigned | loops | opaque | set(code.params) | set(code.consts))
        self._names = code.names
        self._elected = set()
        self._path = self.path_index((function.name,))
        code.option_fns = [(name, self.compile(value)) for name, value in function.options]
        self.block(code, function.body, (function.name,))
        self._path = self.path_index((function.name,))
        code.instrs.append(Instr(Kind.RETURN, self._path))

    def is_pure(self, name: str, active: tuple[str, ...] = ()) -> bool:
        """Whether a device function only computes scalars, so that it may stand in expressions."""
        if name not in self.pure:
            if name in active:
                return True
            pure = True
            for stmt in _statements(self.functions[name].body):
                if isinstance(stmt, Opaque):
                    pure = False
                for expr in _expressions(stmt):
                    for inner in walk_expr(expr):
                        if isinstance(inner, Call):
                            if inner.fn in OPS and not OPS[inner.fn].is_value:
                                pure = False
                            if inner.fn in self.functions and not self.is_pure(
                                inner.fn, (*active, name)
                            ):
                                pure = False
            self.pure[name] = pure
        return self.pure[name]

    def by_warpgroups(self, code: Code) -> bool:
        """Whether a kernel's unit is the warpgroup: it uses an op or layout that only they have."""
        seen: set[str] = set()
        todo = [code.function.name]
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            for stmt in _statements(self.functions[name].body):
                for expr in _expressions(stmt):
                    for inner in walk_expr(expr):
                        match inner:
                            case Call(fn) if fn in BY_WARPGROUP:
                                return True
                            case Index(Name(id), _) if id in WARPGROUP_LAYOUTS:
                                return True
                            case Call(fn) if fn in self.functions:
                                todo.append(fn)
        return False

    def block(self, code: Code, body: tuple[Stmt, ...], prefix: Path) -> None:
        for position, stmt in enumerate(body):
            path = (*prefix, position)
            self._path = self.path_index(path)
            try:
                self.stmt(code, stmt, path, self._path)
            except Mismatch as wrong:
                raise self.fail(wrong.kind, wrong.message) from None
            except CuirError as error:
                raise self.fail("unknown_op", error.message) from None

    def stmt(self, code: Code, stmt: Stmt, path: Path, index: int) -> None:
        emit = code.instrs.append
        match stmt:
            case Assign(target, value):
                if self.elects(value):
                    self._elected.add(target)
                emit(self.action(index, target, value))
            case Do(call):
                emit(self.action(index, None, call))
            case For(var, start, stop, step, body):
                loop = Instr(Kind.LOOP, index)
                loop.var = var
                loop.args = [self.compile(e) for e in (start, stop, step)]
                emit(loop)
                top = len(code.instrs)
                self.block(code, body, (*path, "body"))
                again = Instr(Kind.NEXT, index)
                again.var = var
                again.jump = top
                emit(again)
                loop.jump = len(code.instrs)
            case If(cond, then, other):
                branch = Instr(Kind.BRANCH, index)
                branch.fn = self.compile(cond)
                emit(branch)
                elected = self.elects(cond)
                if elected:
                    self.mark(code, index, 1)
                self.block(code, then, (*path, "then"))
                if elected:
                    self.mark(code, index, -1)
                if other:
                    over = Instr(Kind.JUMP, index)
                    emit(over)
                    branch.jump = len(code.instrs)
                    self.block(code, other, (*path, "other"))
                    over.jump = len(code.instrs)
                else:
                    branch.jump = len(code.instrs)
            case Return(value):
                back = Instr(Kind.RETURN, index)
                back.fn = None if value is None else self.returned(value, index)
                emit(back)
            case Opaque(text, _, _, meaning):
                if meaning:
                    self.block(code, meaning, (*path, "meaning"))
                else:
                    stop = Instr(Kind.OPAQUE, index)
                    stop.var = text
                    emit(stop)

    def mark(self, code: Code, index: int, change: int) -> None:
        instr = Instr(Kind.ELECT, index)
        instr.elected = change
        code.instrs.append(instr)

    def elects(self, expr: Expr) -> bool:
        """Whether the value of `expr` says that this is the elected thread."""
        return any(
            (isinstance(e, Call) and e.fn == "elect")
            or (isinstance(e, Name) and e.id in self._elected)
            for e in walk_expr(expr)
        )

    def action(self, index: int, target: str | None, value: Expr) -> Instr:
        if isinstance(value, Call):
            spec = OPS.get(value.fn)
            if spec is not None and not spec.is_value:
                instr = Instr(Kind.OP, index)
                instr.site = self.site(spec, value, index)
                instr.fn = instr.site
                instr.target = target
                instr.visible = spec.is_visible
                instr.writes = Effect.WRITES_SHARED in spec.effects
                return instr
            if value.fn in self.functions and not self.is_pure(value.fn):
                instr = Instr(Kind.CALL, index)
                instr.fn = self.callee(value)
                instr.args = [self.compile(a) for a in value.args]
                instr.consts = [self.compile(c) for c in value.params]
                instr.target = target
                return instr
        instr = Instr(Kind.EXPR, index)
        instr.fn = self.compile(value)
        instr.target = target
        return instr

    def returned(self, value: Expr, index: int) -> Fn:
        """`return run(...)` gives the launch's error code; else a value."""
        if isinstance(value, Call) and value.fn in OPS and OPS[value.fn].who is Who.HOST:
            return self.site(OPS[value.fn], value, index)
        return self.compile(value)

    def callee(self, call: Call) -> Code:
        code = self.codes[call.fn]
        if code.function.kind != "device":
            raise Mismatch("unknown_op", f"{call.fn} is a {code.function.kind} function: "
                           "only device functions are called")  # fmt: skip
        if len(call.args) != len(code.params) or len(call.params) != len(code.consts):
            raise Mismatch(
                "arity",
                f"{call.fn} takes {len(code.params)} operands and {len(code.consts)} constants, not "
                f"{len(call.args)} and {len(call.params)}",
            )
        return code

    def site(self, spec: OpSpec, call: Call, index: int) -> OpSite:
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
        module, name = spec.execute.split(":")
        execute = getattr(importlib.import_module(f"engine.cuir.execute.{module}"), name)
        return OpSite(spec, args, index, execute)

    # --- expressions -------------------------------------------------------------------------

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
        type = LambdaType(node)
        return lambda env: LambdaValue(type, fn, env)

    def name(self, id: str) -> Fn:
        if id in self._names:
            path = self._path

            def local(env: Env) -> Any:
                try:
                    return env[id]
                except KeyError:
                    where = self.paths[path]
                    text = f"{id} has no value here"
                    raise Stopped(Finding("unknown_name", where, text), where, text) from None

            return local
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
        if spec is not None:
            if not spec.is_value:
                raise Mismatch("unknown_op", f"{expr.fn} is a statement of its own")
            return self.site(spec, expr, self._path)
        if expr.fn in self.functions:
            return self.pure_call(expr)
        if expr.fn not in FUNCTIONS and expr.fn not in CASTS:
            raise Mismatch("unknown_op", f"{expr.fn} is no op, scalar function or device function")
        return super().call(expr)

    def pure_call(self, expr: Call) -> Fn:
        if not self.is_pure(expr.fn):
            raise Mismatch("unknown_op", f"{expr.fn} holds ops: its call is a statement of its own")
        code = self.callee(expr)
        args = [self.compile(a) for a in expr.args]
        consts = [self.compile(c) for c in expr.params]

        def call(env: Env) -> Any:
            inner: Env = {PART: env.get(PART), "args": env.get("args")}
            inner.update(zip(code.params, [a(env) for a in args], strict=True))
            inner.update(zip(code.consts, [c(env) for c in consts], strict=True))
            return run_pure(code, inner, self.paths)

        return call

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
                return value.load(at)
            if kind is Shared and value.type.stages is not None and len(at) == 1:
                return self.stage(value, at[0], path, env[PART])
            if kind is BarrierArray and len(at) == 1:
                count = value.type.count
                if not 0 <= at[0] < count:
                    raise self.stop_at(path, f"barrier {at[0]} of {count}", "out_of_bounds")
                return BarrierRef(value.offset + 8 * at[0])
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
            t = value.type
            offset = value.offset + number * t.tile_bytes
            one = type(t)(t.dtype, t.rows, t.cols, offset, None, t.transposed)
            found = cache[key] = Shared(one, offset)
        return found

    def stop_at(self, path: int, message: str, kind: str = "type_mismatch") -> Stopped:
        where = self.paths[path]
        return Stopped(Finding(kind, where, message), where, message)

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


def run_host(code: Code, env: Env, paths: list[Path]) -> Any:
    """Runs the host function: scalars, tensor maps and launches, in order."""
    return run_pure(code, env, paths)


def run_pure(code: Code, env: Env, paths: list[Path], limit: int = 10_000_000) -> Any:
    """Runs a function that never waits to its return."""
    instrs = code.instrs
    pc = 0
    loops: list[tuple[int, int, int]] = []
    for _ in range(limit):
        instr = instrs[pc]
        instr.count += 1
        kind = instr.kind
        if kind == Kind.EXPR or kind == Kind.OP:
            value = instr.fn(env)
            if instr.target is not None:
                env[instr.target] = value
            pc += 1
        elif kind == Kind.CALL:
            inner: Env = {PART: env.get(PART), "args": env.get("args")}
            inner.update(zip(instr.fn.params, [a(env) for a in instr.args], strict=True))
            inner.update(zip(instr.fn.consts, [c(env) for c in instr.consts], strict=True))
            value = run_pure(instr.fn, inner, paths)
            if instr.target is not None:
                env[instr.target] = value
            pc += 1
        elif kind == Kind.OPAQUE:
            raise Stopped(None, paths[instr.path], f"no meaning is known for: {instr.var}")
        elif kind == Kind.RETURN:
            return None if instr.fn is None else instr.fn(env)
        elif kind == Kind.BRANCH:
            pc = pc + 1 if instr.fn(env) else instr.jump
        elif kind == Kind.JUMP:
            pc = instr.jump
        elif kind == Kind.LOOP:
            start, stop, step = (a(env) for a in instr.args)
            if not in_range(start, stop, step, paths[instr.path]):
                pc = instr.jump
                continue
            loops.append((start, stop, step))
            env[instr.var] = start
            pc += 1
        elif kind == Kind.NEXT:
            now, stop, step = loops[-1]
            now += step
            if (now < stop) if step > 0 else (now > stop):
                loops[-1] = (now, stop, step)
                env[instr.var] = now
                pc = instr.jump
            else:
                loops.pop()
                pc += 1
        else:
            pc += 1
    path = paths[code.instrs[0].path]
    raise Stopped(Finding("runaway", path, "a function that does not return"), path, "no return")


def in_range(start: int, stop: int, step: int, path: Path) -> bool:
    """Whether a loop runs at all. Raises `Stopped` for a step of zero."""
    if step == 0:
        raise Stopped(Finding("bad_value", path, "a loop with a step of 0"), path, "step of 0")
    return start < stop if step > 0 else start > stop


def _statements(body: tuple[Stmt, ...]) -> list[Stmt]:
    out: list[Stmt] = []
    for stmt in body:
        out.append(stmt)
        match stmt:
            case For(body=inner) | Opaque(meaning=inner):
                out += _statements(inner)
            case If(then=then, other=other):
                out += _statements(then) + _statements(other)
    return out


def _expressions(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case Assign(_, value):
            return (value,)
        case Do(call):
            return (call,)
        case For(_, start, stop, step, _):
            return (start, stop, step)
        case If(cond, _, _):
            return (cond,)
        case Return(value) if value is not None:
            return (value,)
    return ()


def constants(values: Mapping[str, Any]) -> dict[str, Any]:
    """Compile-time values with word-like strings turned into element types."""
    return {k: DTYPES.get(v, v) if isinstance(v, str) else v for k, v in values.items()}
