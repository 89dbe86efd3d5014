"""What no model's edit may do, found in the module itself before anything runs.

The gates judge what a module computes on a deck. These checks look for ways to be right on a deck
only: sizes singled out, outputs read back, text that hides what it does. A name that means
something already is told here too: later it would be told at a line that has nothing to do with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Bool,
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
    Unary,
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
from engine.cuir.rewrite import map_expr, substitute
from engine.cuir.scalar import CONSTANTS, evaluate
from engine.cuir.static.calls import callee, fields_of, launched
from engine.cuir.static.host_constants import host_constants
from engine.cuir.static.kernel_names import CPP, CUDA
from engine.cuir.types import DTYPES
from engine.errors import CuirError
from engine.scalar_algebra.canonical import canonical
from engine.transfer.binding import SIZES
from engine.transfer.llm.answer import AnswerError, AnswerRefused

MOST_ROWS = 256  # of a tile that sizes are counted in: decks have sizes of several
FEW_TILES = 1024  # what a kernel's own constants may come to beside a size


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
    names = _names(module)
    for path, stmt in walk(module):
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                if _sets_a_size_against(node, names[str(path[0])], allowed):
                    yield str(path[0]), node


def _sets_a_size_against(node: Expr, names: _Names, allowed: Set[int]) -> bool:
    match node:
        case Compare(_, one, two) | Binary(_, one, two) if _is_truth(one) or _is_truth(two):
            return False  # each is looked at alone
        case Compare():
            usual = {0, 1}
        case Binary() | Call("min" | "max" | "abs" | "floor_div" | "floor_mod" | "ceil_div"):
            usual = {0, 1, 2}  # the next one, a half
        case _:
            return False
    few = FEW_TILES if free_names(node) & names.built_in else 0
    node = map_expr(names.in_numbers(node), _counted)
    if not any(names.are_sizes(e) for e in walk_expr(node)):
        return False
    try:
        # Without what is multiplied away, and numbers as what they come to.
        left = rebuild(node, lambda e: canonical(e, {}))
    except (ArithmeticError, TypeError, ValueError):
        return True  # numbers beside a size that nothing can compute
    if not names.are_sizes(left):
        return False  # a place beside the size: whose sides are tested, where it has any
    near = {m for n in allowed for m in (n - 1, n, n + 1, 2 * n, n // 2)} | usual
    numbers = {abs(n.value) for n in walk_expr(left) if isinstance(n, Num)} - near
    # A factor that is no whole number scales what becomes a float, and sets no bound.
    scaled = isinstance(node, Binary)
    return any(n > few and not (scaled and n % 1) for n in numbers)


def _is_truth(expr: Expr) -> bool:
    match expr:
        case Compare() | Bool() | Unary("not"):
            return True
        case Binary("&" | "|" | "^", left, right):
            return _is_truth(left) or _is_truth(right)
    return False


def _counted(node: Expr) -> Expr | None:
    """A size for the number of its tiles, and 1 for what is known when the kernel is compiled, such
    as a type's bytes: a divisor that excuses no number beside it."""
    match node:
        case Call("ceil_div", (size, Num(value))) if value <= MOST_ROWS:
            return map_expr(size, _counted)
        case Call(fn) if fn in BUILT:
            return Num(1)
    return None


@dataclass(slots=True)
class _Names:
    """A function's names that are numbers, of several the largest; names that are made of sizes and
    numbers alone; and of both those in which there is a number that the kernel is built for, such
    as the keys of a tile."""

    numbers: dict[str, int | float]
    built_in: set[str]
    sizes: set[str] = field(default_factory=set)

    def in_numbers(self, expr: Expr) -> Expr:
        return substitute(expr, {name: Num(value) for name, value in self.numbers.items()})

    def are_sizes(self, expr: Expr) -> bool:
        """Whether an expression without names of numbers is made of sizes, and of nothing else that
        only a run knows."""
        fields, names = _fields(expr), free_names(expr) - {"args"}
        steady = any(isinstance(n, Call) and n.fn in STEADY for n in walk_expr(expr))
        return fields <= set(SIZES) and names <= self.sizes and bool(fields or names) and not steady


def _names(module: Module) -> dict[str, _Names]:
    """By function: what its names are, by all that is assigned to them and that calls give them."""
    constants = host_constants(module)
    out = {
        f.name: _Names(dict(known), set(known))
        for f in module.functions
        for known in (constants if f.kind == "host" else {},)
    }
    pending = [given for given in _given(module) if given[1] not in out[given[0]].built_in]
    learnt = True
    while learnt:
        learnt = False
        for given in list(pending):
            function, name, value, caller = given
            to, of = out[function], out[caller]
            try:
                number = evaluate(value, of.numbers)
            except (CuirError, ArithmeticError, LookupError, TypeError, ValueError):
                if not of.are_sizes(of.in_numbers(value)):
                    continue
                to.sizes.add(name)
            else:
                to.numbers[name] = max(number, to.numbers.get(name, number))
            to.built_in |= {name} if free_names(value) & of.built_in else set()
            pending.remove(given)
            learnt = True
    return out


def _given(module: Module) -> Iterator[tuple[str, str, Expr, str]]:
    """A function, a name in it, what that is given, and the function whose words those are."""
    functions = {f.name: f for f in module.functions}
    for path, stmt in walk(module):
        at = str(path[0])
        if isinstance(stmt, Assign):
            yield at, stmt.target, stmt.value, at
        for node in (e for expr in stmt_exprs(stmt) for e in walk_expr(expr)):
            called = callee(node)
            if called is not None and called.name in functions:
                its = functions[called.name]
                names = (*(p.name for p in its.params), *its.consts)
                values = (*called.args, *called.consts)
                pairs = zip(names, values, strict=False)
                yield from ((its.name, name, value, at) for name, value in pairs)


def _fields(expr: Expr) -> set[str]:
    return {n.field for n in walk_expr(expr) if isinstance(n, Attr) and n.base == Name("args")}


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
    for added in proposed.fields:
        if added.name not in own and added.name in CPP | CUDA:
            raise AnswerError(
                f"class Args: no field can be called {added.name}, which is a word of C++ or CUDA; "
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
