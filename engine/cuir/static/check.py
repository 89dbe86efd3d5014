"""Static checks: names, arity, types, layouts and limits, each reported at its op.

The host function is followed with its compile-time constants, so every launch fixes its kernel's
sizes; a kernel is followed once for each of its warpgroups. Both ways of a condition that depends
on the arguments are taken, and what they leave is joined; loops are followed until types settle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from engine.cuir.arch import WARPGROUP_THREADS, arch_of
from engine.cuir.findings import Finding
from engine.cuir.nodes import (
    Assign,
    Call,
    Do,
    Expr,
    For,
    Function,
    If,
    Module,
    Name,
    Num,
    Opaque,
    Path,
    Return,
    Stmt,
    Tuple,
    names_in,
    next_of,
    stmt_exprs,
    walk_block,
)
from engine.cuir.ops.spec import Mismatch, RuleContext
from engine.cuir.ops.traits import NAMED_BARRIERS, REALLOCATIONS
from engine.cuir.static.calls import is_launch, nested
from engine.cuir.static.elected import WORDS, misuses
from engine.cuir.static.facts import Facts
from engine.cuir.static.infer import Typer, WarpgroupTyper
from engine.cuir.static.infer_scalars import Scope, joined
from engine.cuir.static.launch_limits import Launch, number
from engine.cuir.types import (
    DTYPES,
    DTypeValue,
    KernelRef,
    ListType,
    Nothing,
    Scalar,
    TileType,
    Type,
    Unknown,
)
from engine.errors import InputError

_DEPTH = 32  # calls of calls that are followed


def check(module: Module) -> tuple[Finding, ...]:
    """Everything that is wrong with `module` before it runs, in the order of its text."""
    try:
        checker = _Checker(module)
    except InputError as error:
        where: Path = (module.functions[0].name,) if module.functions else ("",)
        return (Finding("not_on_arch", where, error.message),)
    return checker.run()


def names_at(module: Module, paths: Collection[Path]) -> Mapping[Path, Mapping[str, Type]]:
    """The types of the names that the statements at `paths` read, as far as they are known before
    a run; empty for a statement that nothing reaches.

    Raises:
        InputError: the module names no arch that is known.
    """
    checker = _Checker(module)
    checker.watched = {path: {} for path in paths}
    checker.run()
    return checker.watched


class _Checker:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.arch = arch_of(module)
        self.facts = Facts(module)
        self.findings: dict[tuple[str, Path], Finding] = {}
        self.spec: Scope = {name: _constant(value) for name, value in module.spec}
        self.visited: set[str] = set()
        self.path: Path = ()
        self.launch: Launch | None = None
        self.typer = Typer(module, RuleContext(self.arch), self.spec, self.call)
        self.depth = 0
        self.returned: list[Type] = []
        self.active: set[str] = set()
        self.watched: dict[Path, Scope] = {}

    def run(self) -> tuple[Finding, ...]:
        for function in self.module.functions:
            if function.kind == "host":
                scope: Scope = {p.name: Unknown() for p in function.params}
                for const in function.consts:
                    scope[const] = self.spec.get(const, Unknown())
                self.function(function, scope)
        # What no launch reaches is still checked, with nothing known about its constants.
        for function in self.module.functions:
            if function.name not in self.visited:
                names = (*(p.name for p in function.params), *function.consts)
                self.function(function, {name: Unknown() for name in names})
        for function in self.module.functions:
            for path in misuses(function):
                self.report("not_elected", path, WORDS)
            for path, message in nested(function, self.facts):
                self.report("unknown_op", path, message)
        order = {path: i for i, path in enumerate(_paths(self.module))}
        found = self.findings.values()
        return tuple(sorted(found, key=lambda f: order.get(f.path, -1)))

    def report(self, kind: str, path: Path, message: str, other: Path | None = None) -> None:
        self.findings.setdefault((kind, path), Finding(kind, path, message, (), other))

    # --- functions ---------------------------------------------------------------------------

    def function(self, function: Function, scope: Scope) -> Type:
        self.visited.add(function.name)
        outer, self.returned = self.returned, []
        path, kind = self.path, self.typer.kind
        self.typer.kind = function.kind
        try:
            self.block(function.body, (function.name,), scope)
            result: Type = Nothing()
            for position, value in enumerate(self.returned):
                result = value if position == 0 else _safe_join(result, value)
            return result
        finally:
            self.returned = outer
            self.path = path
            self.typer.kind = kind

    def call(self, function: Function, args: list[Type], consts: list[Type]) -> Type:
        if self.depth >= _DEPTH or function.name in self.active:
            return Unknown()
        scope: Scope = dict(zip((p.name for p in function.params), args, strict=True))
        scope.update(zip(function.consts, consts, strict=True))
        self.depth += 1
        self.active.add(function.name)
        try:
            return self.function(function, scope)
        finally:
            self.depth -= 1
            self.active.discard(function.name)

    # --- statements --------------------------------------------------------------------------

    def block(self, body: tuple[Stmt, ...], prefix: Path, scope: Scope) -> bool:
        """Follows the statements; False when the function has returned on every way."""
        for position, stmt in enumerate(body):
            if not self.stmt(stmt, (*prefix, position), scope):
                return False
        return True

    def stmt(self, stmt: Stmt, path: Path, scope: Scope) -> bool:
        self.path = path
        if path in self.watched:
            read = names_in(*stmt_exprs(stmt))
            self.watched[path] |= {name: scope[name] for name in scope if name in read}
        match stmt:
            case Assign(target, value):
                made, before = self.value(value, path, scope), scope.get(target)
                if (
                    isinstance(made, TileType) and isinstance(before, TileType)
                    and made.in_memory != before.in_memory  # C++ has two types for these
                ):  # fmt: skip
                    self.report("type_mismatch", path, f"{target} is {before} and cannot become "
                                f"{made}: give that a name of its own")  # fmt: skip
                scope[target] = made
            case Do(call):
                self.value(call, path, scope)
            case For(var, start, stop, step, body):
                self.loop(var, (start, stop, step), body, path, scope)
            case If(cond, then, other):
                return self.branch(cond, then, other, path, scope)
            case Return(value):
                kind = Nothing() if value is None else self.value(value, path, scope)
                self.returned.append(kind)
                return False
            case Opaque(_, _, writes, meaning):
                if meaning:
                    return self.block(meaning, (*path, "meaning"), scope)
                for name in writes:
                    scope[name] = Unknown()
        return True

    def value(self, expr: Expr, path: Path, scope: Scope) -> Type:
        """The expression's type; what is wrong with it is reported at `path`."""
        try:
            found = self.typer.type(expr, scope)
            if isinstance(expr, Call):
                self.resources(expr, found, path, scope)
            return found
        except Mismatch as wrong:
            self.report(wrong.kind, path, wrong.message)
        if isinstance(expr, Call) and is_launch(expr) and self.typer.kind == "host":
            # The launch is wrong; what it launches is still worth a look.
            try:
                self.run_kernel(expr, path, scope)
            except (Mismatch, KeyError, IndexError):
                return Unknown()
        return Unknown()

    def branch(
        self,
        cond: Expr,
        then: tuple[Stmt, ...],
        other: tuple[Stmt, ...],
        path: Path,
        scope: Scope,
    ) -> bool:
        test = self.value(cond, path, scope)
        known = test.value if isinstance(test, Scalar) else None
        if known is not None:
            taken = ("then", then) if known else ("other", other)
            return self.block(taken[1], (*path, taken[0]), scope)
        left, right = dict(scope), dict(scope)
        goes_on = [
            self.block(then, (*path, "then"), left),
            self.block(other, (*path, "other"), right),
        ]
        ways = [s for s, on in zip((left, right), goes_on, strict=True) if on]
        if not ways:
            return False
        scope.clear()
        scope.update(ways[0])
        if len(ways) == 2:
            self.merge(scope, right, path)
        return True

    def merge(self, scope: Scope, other: Scope, path: Path) -> None:
        for name in list(scope):
            if name not in other:
                continue  # defined on one way only: used there, or a finding at its use
            try:
                scope[name] = joined(scope[name], other[name])
            except Mismatch as wrong:
                self.report(wrong.kind, path, f"{name}: {wrong.message}")
                scope[name] = Unknown()
        for name in other:
            scope.setdefault(name, other[name])

    def loop(
        self,
        var: str,
        bounds: tuple[Expr, Expr, Expr],
        body: tuple[Stmt, ...],
        path: Path,
        scope: Scope,
    ) -> None:
        follows = next_of(bounds[2])
        ends = bounds if follows is None else (*bounds[:2], Name(follows))
        kinds = [self.value(e, path, scope) for e in ends]
        for kind in kinds:
            if isinstance(kind, Scalar) and kind.dtype not in ("i32", "i64"):
                self.report("type_mismatch", path, "a loop counts in whole numbers")
        step = kinds[2].value if isinstance(kinds[2], Scalar) else None
        assigned = {s.target for _, s in walk_block(body, ()) if isinstance(s, Assign)}
        if follows is None and step == 0:
            self.report("bad_value", path, "a loop with a step of 0")
        if follows is not None and follows not in assigned:
            self.report("bad_value", path, f"a loop that never sets {follows}, its next value")
        for name in assigned & set(scope):
            kind = scope[name]
            if isinstance(kind, Scalar):
                scope[name] = Scalar(kind.dtype)
        for _ in range(4):
            before = dict(scope)
            inner = dict(scope)
            inner[var] = Scalar("i32")
            self.block(body, (*path, "body"), inner)
            self.merge(scope, inner, path)
            if scope == before:
                break

    # --- limits ------------------------------------------------------------------------------

    def resources(self, call: Call, found: Type, path: Path, scope: Scope) -> None:
        if is_launch(call):
            self.run_kernel(call, path, scope)
            return
        if self.launch is not None:
            counted = call.args if call.fn in NAMED_BARRIERS | REALLOCATIONS else ()
            args = [self.typer.type(a, scope) for a in counted]
            self.launch.saw(call.fn, args, found, path, self.report)

    def run_kernel(self, call: Call, path: Path, scope: Scope) -> None:
        given = dict(call.kwargs)
        ref = self.typer.kernel_operand(call.args[0], scope)
        args = self.typer.type(_without_args(call.args[1]), scope)
        threads = number(self.typer.type(given["threads"], scope))
        if threads is not None and not 0 < threads <= self.arch.threads_block:
            threads = None  # reported; what follows goes once through the kernel for each warpgroup
        shared = number(self.typer.type(given["shared"], scope))
        assert isinstance(ref, KernelRef)
        function = self.module.function(ref.name)
        items = args.items if isinstance(args, ListType) else ()
        if len(items) != len(function.params):
            self.report(
                "launch_mismatch",
                path,
                f"{ref.name} takes {len(function.params)} operands, not {len(items)}",
            )
            return
        inner: Scope = dict(zip((p.name for p in function.params), items, strict=True))
        inner.update(
            {
                n: v
                for n, v in zip(function.consts, ref.consts, strict=True)
                if isinstance(v, (Scalar, DTypeValue, Unknown))
            }
        )
        options = {n: number(self.quiet(e, inner)) for n, e in function.options}
        bound = options.get("threads")
        if None not in (bound, threads) and bound != threads:
            self.report("launch_mismatch", path,
                        f"{threads} threads, and {ref.name} is compiled for {bound}")  # fmt: skip
        outer = (self.typer, self.launch)
        rounded = self.arch.async_tile and self.facts.by_async(ref.name)
        self.launch = launch = Launch(shared, self.arch.async_tile - 1 if rounded else 0)
        groups = threads // WARPGROUP_THREADS if threads and threads % WARPGROUP_THREADS == 0 else 0
        try:
            for group in (
                range(groups) if groups and self.facts.by_warpgroups(ref.name) else (None,)
            ):
                launch.group = group
                self.typer = WarpgroupTyper(
                    self.module, RuleContext(self.arch, threads), self.spec, self.call
                )
                self.typer.warpgroup = group
                self.function(function, dict(inner))
        finally:
            self.typer, self.launch = outer
        self.path = path
        launch.judge(self.arch, threads, options.get("min_blocks") or 1, groups, self.report)

    def quiet(self, expr: Expr, scope: Scope) -> Type:
        try:
            return self.typer.type(expr, scope)
        except Mismatch:
            return Unknown()


def _safe_join(a: Type, b: Type) -> Type:
    try:
        return joined(a, b)
    except Mismatch:
        return Unknown()


def _without_args(expr: Expr) -> Expr:
    """The launch's operands with `args` itself, which is no value, replaced by a number."""
    if isinstance(expr, Tuple):
        return Tuple(tuple(Num(0) if i == Name("args") else i for i in expr.items))
    return expr


def _constant(value: Expr) -> Type:
    match value:
        case Name(id) if id in DTYPES:
            return DTypeValue(DTYPES[id])
        case Num(number):
            kind = "bool" if isinstance(number, bool) else "i32"
            return Scalar("f32" if isinstance(number, float) else kind, number)
    return Unknown()


def _paths(module: Module) -> list[Path]:
    out: list[Path] = []
    for function in module.functions:
        out.append((function.name,))
        out += [path for path, _ in walk_block(function.body, (function.name,))]
    return out
