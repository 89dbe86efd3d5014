"""Names that a new version of a module gives to what an old one has by another name.

Renaming what is local changes no program. So a wrong guess here costs a reader a question, and
never a wrong result: with the names of the new version, what only was renamed is equal to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.cuir.canonical import ARGS
from engine.cuir.matching import match_modules
from engine.cuir.nodes import (
    Assign,
    Call,
    Expr,
    For,
    Function,
    Lambda,
    Module,
    Name,
    Opaque,
    Param,
    Stmt,
    blocks,
    children,
    free_names,
    map_stmt_exprs,
    map_target,
    rebuild,
    stmt_exprs,
    walk,
    walk_expr,
    with_blocks,
)  # fmt: skip
from engine.cuir.static.facts import own_names, statements

BLANK = "%"  # stands in no parsed name


@dataclass(frozen=True, slots=True)
class Renaming:
    """New names by old ones: of functions, and inside each function by its old name."""

    functions: Mapping[str, str] = field(default_factory=dict)
    inside: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.functions) + sum(map(len, self.inside.values()))

    def of(self, function: str) -> Mapping[str, str]:
        """New names by old ones inside a function, told by its old name."""
        return self.inside.get(function, {})

    def __call__(self, module: Module) -> Module:
        """The module with the new names in place of the old ones."""
        made = (_renamed(f, self.functions, self.of(f.name)) for f in module.functions)
        return replace(module, functions=tuple(made))


def renaming(old: Module, new: Module, beside: Iterable[Module] = ()) -> Renaming:
    """How `new` calls what `old` has by names that `new` has no more.

    Statements are paired without regard to names, and each pair of statements is a vote for the
    pairs of names in it. A name that `beside` has too, modules that are to be renamed with `old`,
    is given to nothing else.
    """
    modules = (old, *beside)
    pairs = match_modules(_blanked(old), _blanked(new))
    functions: dict[str, str] = {}
    inside: dict[str, Mapping[str, str]] = {}
    taken = {f.name for module in modules for f in module.functions}
    for f in old.functions:
        found = pairs.get((f.name,))
        if found is None:
            continue
        g = new.function(str(found[0]))
        if g.name != f.name and g.name not in taken:
            functions[f.name] = g.name
        votes: Counter[tuple[str, str]] = Counter(
            zip([p.name for p in f.params], [p.name for p in g.params], strict=False)
        )
        if f.kind != "host":
            votes.update(zip(f.consts, g.consts, strict=False))
        at, to = dict(_walk(f)), dict(_walk(g))
        for before, after in pairs.items():
            if len(before) > 1 and before[0] == f.name:
                votes.update(_votes(at[before], to[after]))
        beside_f = [m.function(f.name) for m in modules if _has(m, f.name)]
        used = set().union(*map(_names, beside_f))
        caught = set().union(*map(_caught, beside_f))
        votes = Counter({pair: n for pair, n in votes.items() if pair not in caught})
        inside[f.name] = _chosen(votes, _locals(f) - _locals(g), _locals(g) - used)
    return Renaming(functions, {name: names for name, names in inside.items() if names})


def _has(module: Module, name: str) -> bool:
    return any(f.name == name for f in module.functions)


def _walk(function: Function) -> Iterator[tuple[Any, Stmt]]:
    return walk(Module((), (), (function,)))


def _chosen(votes: Counter[tuple[str, str]], gone: set[str], came: set[str]) -> dict[str, str]:
    """Pairs of a name that is gone and one that came, those with the most votes first."""
    out: dict[str, str] = {}
    for (a, b), _ in sorted(votes.items(), key=lambda item: (-item[1], item[0])):
        if a in gone and b in came:
            out[a] = b
            gone, came = gone - {a}, came - {b}
    return out


def _votes(a: Any, b: Any) -> Iterator[tuple[str, str]]:
    """The names that stand in the same places of two nodes."""
    if type(a) is not type(b):
        return
    match a, b:
        case Name(x), Name(y):
            yield x, y
        case Assign(x, _), Assign(y, _):
            yield x, y
        case For(x), For(y):
            yield x, y
    if isinstance(a, Stmt):
        mine, theirs = stmt_exprs(a), stmt_exprs(b)
    else:
        mine, theirs = children(a), children(b)
    if len(mine) == len(theirs):
        for one, other in zip(mine, theirs, strict=True):
            yield from _votes(one, other)


def _locals(function: Function) -> set[str]:
    """What the function names itself. The text of an opaque op is not understood, so names in it
    are not among them, nor are the host's compile-time names, which a specialisation binds."""
    held = {ARGS, *(function.consts if function.kind == "host" else ())}
    return own_names(function) - held - _opaque_names(function)


def _names(function: Function) -> set[str]:
    """Every name of the function's text that means something outside of a lambda."""
    out = {function.name} | own_names(function) | _opaque_names(function)
    for expr in _all_exprs(function):
        out |= free_names(expr) | {node.fn for node in walk_expr(expr) if isinstance(node, Call)}
    return out


def _opaque_names(function: Function) -> set[str]:
    opaque = (stmt for stmt in statements(function) if isinstance(stmt, Opaque))
    return {name for stmt in opaque for name in (*stmt.reads, *stmt.writes)}


def _caught(function: Function) -> set[tuple[str, str]]:
    """Pairs of a name that a lambda reads from outside and a parameter of it: the first cannot be
    called like the second."""
    lambdas = [e for x in _all_exprs(function) for e in walk_expr(x) if isinstance(e, Lambda)]
    return {(name, p) for made in lambdas for name in free_names(made) for p in made.params}


def _all_exprs(function: Function) -> list[Expr]:
    found = [value for _, value in function.options]
    for stmt in statements(function):
        found += stmt_exprs(stmt)
    return found


def _blanked(module: Module) -> Module:
    made = (_renamed(f, {}, dict.fromkeys(_locals(f), BLANK)) for f in module.functions)
    return replace(module, functions=tuple(made))


def _renamed(
    function: Function, functions: Mapping[str, str], names: Mapping[str, str]
) -> Function:
    def expr(node: Expr, bound: tuple[str, ...] = ()) -> Expr:
        inner = (*bound, *node.params) if isinstance(node, Lambda) else bound
        node = rebuild(node, lambda child: expr(child, inner))
        match node:
            case Name(id) if id not in bound:
                return Name(names.get(id, functions.get(id, id)))
            case Call(fn) if fn in functions:
                return replace(node, fn=functions[fn])
        return node

    def stmt(node: Stmt) -> Stmt:
        node = with_blocks(node, {branch: block(inner) for branch, inner in blocks(node)})
        return map_target(map_stmt_exprs(node, expr), lambda name: names.get(name, name))

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(stmt, body))

    return Function(
        function.kind,
        functions.get(function.name, function.name),
        tuple(Param(names.get(p.name, p.name), p.type) for p in function.params),
        tuple(names.get(c, c) for c in function.consts),
        tuple((key, expr(value)) for key, value in function.options),
        block(function.body),
    )
