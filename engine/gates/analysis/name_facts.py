"""What the text alone says of a module's names: constants, what changes, places, loaded data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from engine.cuir.nodes import (
    Assign,
    Call,
    Expr,
    For,
    Index,
    Lambda,
    Module,
    Num,
    free_names,
    stmt_exprs,
    walk,
    walk_block,
    walk_expr,
)
from engine.cuir.ops.traits import STEADY
from engine.cuir.scalar import CASTS, FUNCTIONS
from engine.gates.analysis.float_expressions import coordinates, parameters
from engine.gates.analysis.size_comparisons import known_constants

_COUNTED = STEADY | FUNCTIONS.keys() | CASTS.keys()


def constants_in(module: Module) -> dict[str, dict[str, Expr]]:
    """By function: the names that stand for one whole number throughout."""
    assigned = [(str(p[0]), s) for p, s in walk(module) if isinstance(s, Assign)]
    times = Counter((function, s.target) for function, s in assigned)
    many = {key for key, count in times.items() if count > 1} | changed_in(module)
    grown = True
    while grown:  # what is made of one that is several is several
        more = {
            (function, s.target)
            for function, s in assigned
            if any((function, name) in many for name in free_names(s.value))
        }
        grown = not more <= many
        many |= more
    return {
        function: {n: Num(v) for n, v in known.items() if (function, n) not in many}
        for function, known in known_constants(module).items()
    }


def changed_in(module: Module) -> frozenset[tuple[str, str]]:
    """By function: names that are more than one of a parameter, a constant, a loop's variable, a
    lambda's parameter and what is assigned; and variables of loops in loops of the same name. What
    they are hangs on where they are asked, so nothing is said of them."""
    kinds = [
        {(f.name, p.name) for f in module.functions for p in f.params},
        {(f.name, name) for f in module.functions for name in f.consts},
        {(str(p[0]), s.target) for p, s in walk(module) if isinstance(s, Assign)},
        {(str(p[0]), s.var) for p, s in walk(module) if isinstance(s, For)},
        {
            (str(path[0]), name)
            for path, stmt in walk(module)
            for expr in stmt_exprs(stmt)
            for node in walk_expr(expr)
            if isinstance(node, Lambda)
            for name in node.params
        },
    ]
    times = Counter(key for kind in kinds for key in kind)
    out = {key for key, many in times.items() if many > 1}
    for path, loop in walk(module):
        if isinstance(loop, For):
            inner = walk_block(loop.body, ())
            if any(isinstance(s, For) and s.var == loop.var for _, s in inner):
                out.add((str(path[0]), loop.var))
    return frozenset(out)


def places_in(module: Module) -> dict[tuple[str, str], tuple[str, ...]]:
    """By function and name of a lambda's coordinate: the sizes that it stays below. One that stands
    alone may be a row or a key, unless the function has a pair with its name."""
    pairs: dict[tuple[str, str], tuple[str, ...]] = {}
    alone: dict[tuple[str, str], tuple[str, ...]] = {}
    for path, stmt in walk(module):
        function = str(path[0])
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                match coordinates(node) if isinstance(node, Call) else ():
                    case (row, key):
                        for name, size in ((row, "Nq"), (key, "Nk")):
                            known = pairs.get((function, name), ())
                            pairs[function, name] = tuple(dict.fromkeys((*known, size)))
                    case (name,):
                        alone[function, name] = ("Nq", "Nk")
    return alone | pairs


def data_in(
    module: Module, scalars: Mapping[str, Mapping[str, Expr]]
) -> frozenset[tuple[str, str]]:
    """Names whose values only a run knows: what is loaded, and elements of tiles."""
    out: set[tuple[str, str]] = set()
    for path, stmt in walk(module):
        function = str(path[0])
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                if isinstance(node, Call):
                    out |= {(function, p) for p, tile in parameters(node).items() if tile}
        if isinstance(stmt, Assign) and stmt.target not in scalars.get(function, {}):
            whole = all(
                not isinstance(n, Index) and (not isinstance(n, Call) or n.fn in _COUNTED)
                for n in walk_expr(stmt.value)
            )
            if not whole:
                out.add((function, stmt.target))
    return frozenset(out)
