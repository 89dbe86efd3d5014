"""Where a module calls its functions, and what those that only compute stand for.

A device function is asked where its callers ask it: under their conditions, with what they give it.
One that assigns scalars and returns is the expression that it returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from engine.cuir.nodes import (
    Assign,
    Call,
    Expr,
    If,
    Index,
    Lambda,
    Module,
    Path,
    Return,
    Select,
    Stmt,
    free_names,
    map_stmt_exprs,
    rebuild,
    stmt_exprs,
    walk_expr,
)
from engine.cuir.rewrite import map_blocks, substitute
from engine.cuir.scalar import CASTS, FUNCTIONS
from engine.cuir.static.calls import callee
from engine.gates.analysis.path_conditions import standings
from engine.gates.analysis.size_comparisons import MAX_NODES

MAX_WAYS = 64  # through one function


@dataclass(frozen=True, slots=True)
class Site:
    """One call: its statement, and what each parameter is given there."""

    path: Path
    given: Mapping[str, Expr]


def call_sites(module: Module) -> dict[str, tuple[Site, ...]]:
    """By function: its calls, launches of kernels among them."""
    functions = {f.name: f for f in module.functions}
    out: dict[str, tuple[Site, ...]] = {}
    for function in module.functions:
        for at in standings(function):
            nodes = [node for expr in stmt_exprs(at.stmt) for node in walk_expr(expr)]
            own = {p for n in nodes if isinstance(n, Lambda) for p in n.params}  # no names of ours
            for node in nodes:
                called = callee(node)
                if called is not None and called.name in functions:
                    params = (p.name for p in functions[called.name].params)
                    pairs = zip(params, called.args, strict=False)
                    given = {p: value for p, value in pairs if not free_names(value) & own}
                    site, known = Site(at.path, given), out.get(called.name, ())
                    if site not in known:
                        out[called.name] = (*known, site)
    return out


class Inline:
    """Puts what device functions return in the place of their calls, where that is an expression of
    what they are given."""

    def __init__(self, module: Module) -> None:
        self._functions = module.devices
        self._returned: dict[str, Expr | None] = {}
        self._ways = 0

    def __call__(self, expr: Expr) -> Expr:
        """`expr` without such calls; as it is where it would become a text of any length."""
        out = self._inlined(expr)
        return out if _is_short(out) else expr

    def module(self, module: Module) -> Module:
        """The module without such calls."""
        return replace(
            module,
            functions=tuple(
                replace(f, body=map_blocks(f.body, lambda b: tuple(map(self._statement, b))))
                for f in module.functions
            ),
        )

    def _statement(self, stmt: Stmt) -> Stmt:
        return map_stmt_exprs(stmt, self)

    def _inlined(self, expr: Expr) -> Expr:
        expr = rebuild(expr, self._inlined)
        match expr:
            case Call(fn, args, _, consts) if fn in self._functions:
                returned, function = self._of(fn), self._functions[fn]
                names = (*(p.name for p in function.params), *function.consts)
                if returned is not None and len(names) == len(args) + len(consts):
                    return substitute(returned, dict(zip(names, (*args, *consts), strict=True)))
        return expr

    def _of(self, name: str) -> Expr | None:
        if name not in self._returned:
            self._returned[name] = None  # one that calls itself
            self._ways = 0
            self._returned[name] = self._value(self._functions[name].body, {})
        return self._returned[name]

    def _value(self, body: tuple[Stmt, ...], names: Mapping[str, Expr]) -> Expr | None:
        """What a block returns; None where it does anything else."""
        names = dict(names)
        for position, stmt in enumerate(body):
            match stmt:
                case Assign(target, value):
                    made = self._scalar(value, names)
                    if made is None:
                        return None
                    names[target] = made
                case Return(value) if value is not None:
                    return self._scalar(value, names)
                case If(cond, then, other) if self._ways < MAX_WAYS:
                    self._ways += 1
                    rest = body[position + 1 :]
                    test = self._scalar(cond, names)
                    yes = self._value((*then, *rest), names)
                    no = self._value((*other, *rest), names)
                    if test is None or yes is None or no is None:
                        return None
                    return Select(test, yes, no)
                case _:
                    return None
        return None

    def _scalar(self, expr: Expr, names: Mapping[str, Expr]) -> Expr | None:
        made = self._inlined(substitute(expr, names))
        plain = all(
            not isinstance(n, Index | Lambda)
            and (not isinstance(n, Call) or n.fn in FUNCTIONS or n.fn in CASTS)
            for n in walk_expr(made)
        )
        return made if plain and _is_short(made) else None


def _is_short(expr: Expr) -> bool:
    return len(list(islice(walk_expr(expr), MAX_NODES + 1))) <= MAX_NODES
