"""Functions as flat code."""

from __future__ import annotations

from engine.cuir.execute.compiled.code import Code, Instr, Kind, Stopped
from engine.cuir.execute.compiled.expressions import ExpressionCompiler
from engine.cuir.execute.compiled.outputs import written_fields
from engine.cuir.findings import Finding
from engine.cuir.nodes import (
    Assign,
    Call,
    Do,
    Expr,
    For,
    If,
    Module,
    Num,
    Opaque,
    Path,
    Return,
    Stmt,
    next_of,
)
from engine.cuir.ops import OPS, Effect, Who
from engine.cuir.ops.spec import Mismatch
from engine.cuir.scalar import Fn, Mode
from engine.cuir.static.elected import WORDS, flags_of, is_one_thread, misuses
from engine.cuir.static.facts import statements
from engine.errors import CuirError


class ProgramCompiler(ExpressionCompiler):
    """Compiles all functions of one module for one mode."""

    def __init__(self, module: Module, mode: Mode) -> None:
        super().__init__(module, mode)
        self._elected: frozenset[str] = frozenset()
        self.written = written_fields(module)
        for code in self.codes.values():
            self.build(code)

    def path_index(self, path: Path) -> int:
        self.paths.append(path)
        return len(self.paths) - 1

    def fail(self, kind: str, message: str) -> Stopped:
        path = self.paths[self._path]
        return Stopped(Finding(kind, path, message), path, message)

    def build(self, code: Code) -> None:
        function = code.function
        assigned = {s.target for s in statements(function) if isinstance(s, Assign)}
        loops = {s.var for s in statements(function) if isinstance(s, For)}
        opaque = {n for s in statements(function) if isinstance(s, Opaque) for n in s.writes}
        code.names = frozenset(assigned | loops | opaque | set(code.params) | set(code.consts))
        self._names = code.names
        self._elected = flags_of(function)
        self._kind = function.kind
        if (wrong := next(misuses(function), None)) is not None:
            self._path = self.path_index(wrong)
            raise self.fail("not_elected", WORDS)
        self._path = self.path_index((function.name,))
        code.option_fns = [(name, self.compile(value)) for name, value in function.options]
        self.block(code, function.body, (function.name,))
        self._path = self.path_index((function.name,))
        code.instrs.append(Instr(Kind.RETURN, self._path))

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
                emit(self.action(index, target, value))
            case Do(call):
                emit(self.action(index, None, call))
            case For(var, start, stop, step, body):
                loop = Instr(Kind.LOOP, index)
                loop.var = var
                follows = next_of(step)
                step = Num(1) if follows else step
                loop.args = [self.compile(e) for e in (start, stop, step)]
                emit(loop)
                top = len(code.instrs)
                self.block(code, body, (*path, "body"))
                repeat = Instr(Kind.NEXT, index)
                repeat.var = var
                repeat.jump = top
                repeat.fn = self.name(follows) if follows else None
                emit(repeat)
                loop.jump = len(code.instrs)
            case If(cond, then, other):
                branch = Instr(Kind.BRANCH, index)
                branch.fn = self.compile(cond)
                emit(branch)
                elected = is_one_thread(cond, self._elected)
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
                    halt = Instr(Kind.OPAQUE, index)
                    halt.var = text
                    emit(halt)

    def mark(self, code: Code, index: int, change: int) -> None:
        instr = Instr(Kind.ELECT, index)
        instr.elected = change
        code.instrs.append(instr)

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
            if value.fn in self.functions and not self.facts.is_pure(value.fn):
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


_KEPT: dict[tuple[int, Mode], tuple[Module, ProgramCompiler]] = {}
_KEPT_AT_MOST = 4  # a gate runs one module in two modes, and compares it with another


def kept_program(module: Module, mode: Mode) -> ProgramCompiler:
    """The module's code, made once for many runs; not for two runs at a time."""
    known, made = _KEPT.get((id(module), mode), (None, None))
    if made is None or known is not module:
        made = ProgramCompiler(module, mode)
        _KEPT[id(module), mode] = module, made
        if len(_KEPT) > _KEPT_AT_MOST:
            del _KEPT[next(iter(_KEPT))]
    for code in made.codes.values():
        for instr in code.instrs:
            instr.count = 0
    return made
