"""What no model's edit may do, found in the module itself before anything runs.

The gates judge what a module computes on a deck. These checks look for ways to be right on a deck
only: sizes singled out, outputs read back, text that hides what it does. A name that means
something already is told here too: later it would be told at a line that has nothing to do with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Compare,
    Expr,
    For,
    Function,
    Module,
    Name,
    Num,
    Opaque,
    Path,
    free_names,
    rebuild,
    stmt_call,
    stmt_exprs,
    walk,
    walk_block,
    walk_expr,
)  # fmt: skip
from engine.cuir.ops.traits import (
    BUILT,
    FIELD_VIEWS,
    GLOBAL_WRITES,
    HINTS,
    LAUNCHES,
    PLACES,
    STEADY,
)
from engine.cuir.printer import print_expr
from engine.cuir.rewrite import map_expr
from engine.cuir.scalar import CONSTANTS
from engine.cuir.static.calls import fields_of, launched
from engine.cuir.static.kernel_names import CPP, CUDA
from engine.cuir.types import DTYPES
from engine.scalar_algebra.canonical import canonical
from engine.transfer.binding import SIZES
from engine.transfer.llm.answer import AnswerError, AnswerRefused

MOST_ROWS = 256  # of a tile that sizes are counted in: decks have sizes of several


def refuse_tricks(
    base: Module, proposed: Module, spec_numbers: Set[int], scratch: Set[str] = frozenset()
) -> None:
    """Raises `AnswerRefused` for the first trick. `spec_numbers` are integers that the spec names,
    which a size may be compared with; `scratch` are fields that one kernel fills for another."""
    old = [s for _, s in walk(base) if isinstance(s, Opaque)]
    for path, stmt in walk(proposed):
        if isinstance(stmt, Opaque) and stmt not in old:
            raise AnswerRefused(
                f"{path[0]} gets opaque text ({stmt.text[:40]!r}): an edit is made of CuIR ops; "
                "libraries and CUDA text cannot be called"
            )
    known = set(_singled_out(base, spec_numbers))
    for function, expr in _singled_out(proposed, spec_numbers):
        if (function, expr) not in known:
            raise AnswerRefused(
                f"{function} singles out sizes: `{print_expr(expr)}` sets a size against a number "
                "that the spec does not name"
            )
    outputs = (written(base) | written(proposed)) - scratch
    before = _reads(base, outputs)
    for name in sorted(_reads(proposed, outputs) - before):
        raise AnswerRefused(
            f"the edit reads the output `{name}`: what an earlier call left there is no input"
        )


# --- sizes ----------------------------------------------------------------------------------------


def _singled_out(module: Module, allowed: Set[int]) -> Iterator[tuple[str, Expr]]:
    """Comparisons, bounds, quotients and remainders of sizes alone with a number that nothing in
    the spec explains."""
    for function in module.functions:
        sizes = _size_names(function)
        for _, stmt in walk_block(function.body, (function.name,)):
            for expr in stmt_exprs(stmt):
                for node in walk_expr(expr):
                    if _sets_a_size_against(node, sizes, allowed):
                        yield function.name, node


def _sets_a_size_against(node: Expr, sizes: Set[str], allowed: Set[int]) -> bool:
    match node:
        case Compare():
            usual = {0, 1}
        case Binary() | Call("min" | "max" | "abs" | "floor_div" | "floor_mod" | "ceil_div"):
            usual = {0, 1, 2}  # the next one, a half
        case _:
            return False
    if not _fields(node) & set(SIZES) and not free_names(node) & sizes:
        return False
    node = map_expr(node, _counted)
    try:
        left = rebuild(node, lambda e: canonical(e, {}))  # without what is multiplied away
    except (ArithmeticError, TypeError, ValueError):
        return True  # numbers beside a size that nothing can compute
    fields, names = _fields(left), free_names(left) - {"args"}
    if not fields <= set(SIZES) or not names <= sizes or not (fields or names):
        return False
    if any(isinstance(n, Call) and n.fn in STEADY for n in walk_expr(left)):
        return False  # a block's number beside the size: whose sides are tested, where it has any
    numbers = {n.value for n in walk_expr(node) if isinstance(n, Num) and isinstance(n.value, int)}
    near = {m for n in allowed for m in (n - 1, n, n + 1, 2 * n, n // 2)}
    return bool(numbers - near - usual)


def _fields(expr: Expr) -> set[str]:
    return {n.field for n in walk_expr(expr) if isinstance(n, Attr) and n.base == Name("args")}


def _counted(node: Expr) -> Expr | None:
    """A size for the number of its tiles, and 1 for what is known when the kernel is compiled, such
    as a type's bytes: a divisor that excuses no number beside it."""
    match node:
        case Call("ceil_div", (size, Num(value))) if value <= MOST_ROWS:
            return map_expr(size, _counted)
        case Call(fn) if fn in BUILT:
            return Num(1)
    return None


def _size_names(function: Function) -> set[str]:
    """Locals that are made of sizes and numbers alone."""
    out: set[str] = set()
    for _, stmt in walk_block(function.body, (function.name,)):
        if not isinstance(stmt, Assign):
            continue
        fields = {n.field for n in walk_expr(stmt.value) if isinstance(n, Attr)}
        names = set(free_names(stmt.value)) - {"args"}
        if fields <= set(SIZES) and (fields or names) and names <= out:
            out.add(stmt.target)
    return out


# --- outputs --------------------------------------------------------------------------------------


def _views(module: Module) -> dict[tuple[str, str], str]:
    """(function, name) -> the field that the name is a view or a tensor map of."""
    out: dict[tuple[str, str], str] = {}
    for path, stmt in walk(module):
        match stmt:
            case Assign(target, Call(fn, (what, *_))) if fn in FIELD_VIEWS and fields_of(what):
                out[str(path[0]), target] = fields_of(what)[-1]
    for path, stmt in walk(module):
        found = launched(stmt_call(stmt))
        if found is not None:
            params = [p.name for f in module.functions if f.name == found.name for p in f.params]
            for param, actual in zip(params, found.args, strict=False):
                if isinstance(actual, Name) and (str(path[0]), actual.id) in out:
                    out[found.name, param] = out[str(path[0]), actual.id]
    return out


def written(module: Module) -> set[str]:
    """Fields that some statement writes."""
    views = _views(module)
    out: set[str] = set()
    for path, stmt in walk(module):
        call = stmt_call(stmt)
        if call is not None and call.fn in GLOBAL_WRITES and call.args:
            for node in walk_expr(call.args[0]):
                if isinstance(node, Name) and (str(path[0]), node.id) in views:
                    out.add(views[str(path[0]), node.id])
    return out


def _reads(module: Module, fields: Set[str]) -> set[str]:
    """Which of `fields` some statement reads."""
    views = _views(module)
    out: set[str] = set()
    for path, stmt in walk(module):
        call = stmt_call(stmt)
        exprs: tuple[Expr, ...] = stmt_exprs(stmt)
        if call is not None and call.fn in GLOBAL_WRITES and call.args:
            exprs = call.args[1:]
        elif call is not None and call.fn in FIELD_VIEWS | LAUNCHES | HINTS:
            exprs = ()
        for expr in exprs:
            out |= {f for f in _named(expr, path, views) if f in fields}
    return out


def _named(expr: Expr, path: Path, views: dict[tuple[str, str], str]) -> Iterator[str]:
    for node in walk_expr(expr):
        if isinstance(node, Name) and (str(path[0]), node.id) in views:
            yield views[str(path[0]), node.id]


def refuse_names(base: Module, proposed: Module) -> None:
    """Raises `AnswerError` for the first name that is taken."""
    own = {f.name for f in base.fields}
    for field in proposed.fields:
        if field.name not in own and field.name in CPP | CUDA:
            raise AnswerError(
                f"class Args: no field can be called {field.name}, which is a word of C++ or CUDA; "
                "give it another name, and say in a ```bind line what fills it"
            )
    functions = {f.name: f for f in base.functions}
    for function in proposed.functions:
        before = functions.get(function.name)
        old = Counter(() if before is None else _assigned(before))
        for name, count in Counter(_assigned(function)).items():
            means = _meaning(name, function, before)
            if means is not None and count > old[name]:
                raise AnswerError(
                    f"{function.name}: `{name}` is {means} there; a new variable needs a name of "
                    "its own"
                )


def _assigned(function: Function) -> Iterator[str]:
    for _, stmt in walk_block(function.body, (function.name,)):
        if isinstance(stmt, Assign):
            yield stmt.target
        elif isinstance(stmt, For):
            yield stmt.var


def _meaning(name: str, function: Function, before: Function | None) -> str | None:
    """What a name means in a function already, where it may not mean anything else."""
    if name == "args":
        return "the argument struct"
    if name in CONSTANTS or name in DTYPES or name in ("success", "inf", "nan"):
        return "a word of CuIR"
    if name in function.consts:
        return "a compile-time constant"
    if name in {p.name for p in function.params}:
        return "a parameter"
    body = () if before is None else walk_block(before.body, (before.name,))
    for _, stmt in body:
        match stmt:
            case Assign(target, Call(fn, _)) if target == name and fn in PLACES:
                return f"what `{name} = {fn}...` says"
    return None
