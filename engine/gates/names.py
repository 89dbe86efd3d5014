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
    walk,
    walk_expr,
)
from engine.cuir.scalar import CASTS, FUNCTIONS
from engine.gates.kinds import coordinates, parameters
from engine.gates.sizes import known_constants
from engine.transfer.rewrite import free_names, stmt_exprs

_COUNTED = frozenset({"block_id", "grid_dim", "warpgroup_id"}) | FUNCTIONS.keys() | CASTS.keys()


def constants_in(module: Module) -> dict[str, dict[str, Expr]]:
    """By function: the names that stand for one whole number throughout."""
    times = Counter((str(p[0]), s.target) for p, s in walk(module) if isinstance(s, Assign))
    changed = changed_in(module)
    return {
        function: {
            n: Num(v)
            for n, v in known.items()
            if times[function, n] < 2 and (function, n) not in changed
        }
        for function, known in known_constants(module).items()
    }


def changed_in(module: Module) -> frozenset[tuple[str, str]]:
    """By function: names that are more than one of a parameter, a constant, a loop's variable, a
    lambda's parameter and what is assigned; and variables of two loops (see `_counted_twice`). What
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
    return frozenset(key for key, many in times.items() if many > 1) | _counted_twice(module)


def _counted_twice(module: Module) -> frozenset[tuple[str, str]]:
    """By function: variables of two loops where one stands in the other, or where a name that hangs
    on what the one counts is read outside it, and so perhaps in the other."""
    loops = [(path, s) for path, s in walk(module) if isinstance(s, For)]
    times = Counter((str(path[0]), loop.var) for path, loop in loops)
    out: set[tuple[str, str]] = set()
    for path, loop in loops:
        key = str(path[0]), loop.var
        if times[key] < 2:
            continue
        function = [row for row in walk(module) if row[0][0] == path[0]]
        inner = [row for row in function if row[0][: len(path)] == path and row[0] != path]
        made = {loop.var}
        grown = True
        while grown:
            more = {
                s.target for _, s in inner if isinstance(s, Assign) and free_names(s.value) & made
            }
            grown = not more <= made
            made |= more
        once = Counter(s.target for _, s in function if isinstance(s, Assign))
        made = {name for name in made if once[name] == 1}
        outside = (
            free_names(e) for p, s in function if p[: len(path)] != path for e in stmt_exprs(s)
        )
        nested = any(isinstance(s, For) and s.var == loop.var for _, s in inner)
        if nested or any(names & made for names in outside):
            out.add(key)
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
