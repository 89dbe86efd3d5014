"""When two CuIR modules count as equal, and where they first differ.

Equal means the same canonical print after the canonicalisations of `CANONICAL`, and no others. Each
keeps every value of every execution, bit for bit and in every mode; tests hold each to that by
evaluation. Local names take no part; ids and provenance are not in the trees at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.cuir.matching import shell, signature
from engine.cuir.nodes import (
    Assign,
    Bool,
    Compare,
    Expr,
    For,
    Function,
    Lambda,
    Module,
    Name,
    Num,
    Opaque,
    Param,
    Path,
    Stmt,
    Unary,
    blocks,
    map_stmt_exprs,
    map_target,
    rebuild,
    walk_block,
    with_blocks,
)
from engine.cuir.printer import first_line, print_expr, print_function

ARGS = "args"  # the argument struct's own name: fields are read from it and from nothing else


def map_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """`expr` with `change` made to every node, children first."""
    return change(rebuild(expr, lambda child: map_expr(child, change)))


# --- the canonicalisations of expressions ----------------------------------------------------


def compare_upwards(expr: Expr) -> Expr:
    """`a > b` is `b < a`, and `a >= b` is `b <= a`."""
    match expr:
        case Compare(">", left, right):
            return Compare("<", right, left)
        case Compare(">=", left, right):
            return Compare("<=", right, left)
    return expr


def chain_to_the_left(expr: Expr) -> Expr:
    """`a and (b and c)` is `(a and b) and c`; the same for `or`."""
    match expr:
        case Bool(op, left, Bool(inner, middle, right)) if op == inner:
            return chain_to_the_left(Bool(op, chain_to_the_left(Bool(op, left, middle)), right))
    return expr


def sign_in_the_literal(expr: Expr) -> Expr:
    """The negation of a number is the negative number."""
    match expr:
        case Unary("-", Num(value)) if not isinstance(value, bool):
            return Num(-value)
    return expr


def one_nan(expr: Expr) -> Expr:
    """`-nan` is `nan`: no result depends on the sign of a NaN."""
    if isinstance(expr, Num) and isinstance(expr.value, float) and math.isnan(expr.value):
        return Num(math.nan)
    return expr


# Applied to every node in this order, children first. With the renaming of locals, this is all.
CANONICAL: tuple[Callable[[Expr], Expr], ...] = (
    compare_upwards,
    chain_to_the_left,
    sign_in_the_literal,
    one_nan,
)


def canonical_expr(expr: Expr, names: Mapping[str, str] | None = None) -> Expr:
    """The canonical form; `names` renames locals, and lambda parameters become `%0`, `%1`..."""

    def rules(node: Expr) -> Expr:
        for rule in CANONICAL:
            node = rule(node)
        return node

    return map_expr(_rename(expr, names or {}, 0), rules)


def _rename(expr: Expr, names: Mapping[str, str], depth: int) -> Expr:
    # `%` stands in no parsed name, so a renamed local meets no constant, field or function.
    match expr:
        case Name(id):
            return Name(names.get(id, id))
        case Lambda(params, body):
            fresh = {p: f"%{depth + i}" for i, p in enumerate(params)}
            inner = _rename(body, {**names, **fresh}, depth + len(params))
            return Lambda(tuple(fresh.values()), inner)
    return rebuild(expr, lambda child: _rename(child, names, depth))


# --- functions and modules -------------------------------------------------------------------


def local_names(function: Function) -> dict[str, str]:
    """The new names of parameters and locals, numbered in the order in which they appear."""
    order = [p.name for p in function.params if p.name != ARGS]
    for _, stmt in walk_block(function.body, ()):
        match stmt:
            case Assign(target, _):
                order.append(target)
            case For(var):
                order.append(var)
            case Opaque(_, _, writes, _):
                order += writes
    fixed = set(function.consts)
    unique = [name for name in dict.fromkeys(order) if name not in fixed]
    # The text of an opaque op is not understood, so the names in it cannot be changed.
    held = {
        name
        for _, stmt in walk_block(function.body, ())
        if isinstance(stmt, Opaque)
        for name in (*stmt.reads, *stmt.writes)
    }
    return {name: f"%l{i}" for i, name in enumerate(unique) if name not in held}


def canonical_function(function: Function) -> Function:
    names = local_names(function)
    return replace(
        function,
        params=tuple(Param(names.get(p.name, p.name), p.type) for p in function.params),
        options=tuple((key, canonical_expr(value)) for key, value in function.options),
        body=_block(function.body, names),
    )


def _block(body: tuple[Stmt, ...], names: Mapping[str, str]) -> tuple[Stmt, ...]:
    return tuple(canonical_stmt(stmt, names) for stmt in body)


def canonical_stmt(stmt: Stmt, names: Mapping[str, str]) -> Stmt:
    """The canonical form; `names` renames locals, and lambda parameters are numbered."""
    inner = {branch: _block(body, names) for branch, body in blocks(stmt)}
    stmt = map_stmt_exprs(with_blocks(stmt, inner), lambda value: canonical_expr(value, names))
    return map_target(stmt, lambda name: names.get(name, name))


def without_lambda_names(module: Module) -> Module:
    """The module with every statement's canonical form; all names but lambda parameters stay."""
    return replace(
        module, functions=tuple(replace(f, body=_block(f.body, {})) for f in module.functions)
    )


def canonical(module: Module) -> Module:
    """The module with the canonicalisations made. Paths stay what they were."""
    spec = tuple(sorted((key, canonical_expr(value)) for key, value in module.spec))
    return Module(spec, module.fields, tuple(map(canonical_function, module.functions)))


def equal(a: Module, b: Module) -> bool:
    """Whether the canonical forms are the same."""
    return canonical(a) == canonical(b)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place, in reading order, at which two modules are not equal.

    `path` leads to the op in both modules (in one of them nothing may stand there). `left` and
    `right` are the two texts, with the names of their own modules; empty where nothing stands.
    """

    path: Path
    left: str
    right: str
    message: str

    def __str__(self) -> str:
        return self.message


def first_difference(a: Module, b: Module) -> Difference | None:
    """The first op in which `a` and `b` differ after canonicalisation, or None when equal."""
    x, y = canonical(a), canonical(b)
    if x == y:
        return None
    if x.spec != y.spec:
        return _difference(("specialisation()",), _spec_text(a), _spec_text(b))
    for i in range(max(len(x.fields), len(y.fields))):
        if x.fields[i : i + 1] != y.fields[i : i + 1]:
            sides = [f"{f.name}: {f.type}" for m in (a, b) for f in m.fields[i : i + 1] or ()]
            left = sides[0] if i < len(a.fields) else ""
            right = sides[-1] if i < len(b.fields) else ""
            return _difference(("Args", i), left, right)
    names = ([f.name for f in a.functions], [f.name for f in b.functions])
    if names[0] != names[1]:
        missing = [n for n in names[0] if n not in names[1]]
        extra = [n for n in names[1] if n not in names[0]]
        name = (missing or extra or names[0])[0]
        return _difference((name,), ", ".join(names[0]), ", ".join(names[1]))
    for f, g, cf, cg in zip(a.functions, b.functions, x.functions, y.functions, strict=True):
        if signature(cf) != signature(cg):
            return _difference((f.name,), _head_text(f), _head_text(g))
        found = _first_in_block(f.body, g.body, cf.body, cg.body, (f.name,))
        if found is not None:
            return found
    raise AssertionError("unequal modules without a difference")


def _first_in_block(
    a: tuple[Stmt, ...],
    b: tuple[Stmt, ...],
    ca: tuple[Stmt, ...],
    cb: tuple[Stmt, ...],
    at: Path,
) -> Difference | None:
    for i in range(max(len(a), len(b))):
        path = (*at, i)
        if ca[i : i + 1] == cb[i : i + 1]:
            continue
        if i >= len(a) or i >= len(b) or shell(ca[i]) != shell(cb[i]):
            left = _stmt_text(a[i]) if i < len(a) else ""
            right = _stmt_text(b[i]) if i < len(b) else ""
            return _difference(path, left, right)
        w, x, y, z = (dict(blocks(s)) for s in (a[i], b[i], ca[i], cb[i]))
        for name in w:
            found = _first_in_block(w[name], x[name], y[name], z[name], (*path, name))
            if found is not None:
                return found
    return None


def _difference(path: Path, left: str, right: str) -> Difference:
    where = path[0] if len(path) > 1 else "the module"
    if not right:
        message = f"in {where}, only the first has `{left}`"
    elif not left:
        message = f"in {where}, only the second has `{right}`"
    else:
        message = f"in {where}, `{left}` is `{right}` in the second"
    return Difference(path, left, right, message)


def _stmt_text(stmt: Stmt) -> str:
    return first_line(shell(stmt))


def _head_text(function: Function) -> str:
    return " ".join(print_function(signature(function)).split("\n")[:2])


def _spec_text(module: Module) -> str:
    return ", ".join(f"{key}={print_expr(value)}" for key, value in module.spec)
