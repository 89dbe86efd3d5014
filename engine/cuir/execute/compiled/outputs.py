"""Which fields a program writes, read from its text."""

from __future__ import annotations

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Expr,
    Index,
    Module,
    Name,
    Select,
    Stmt,
    stmt_call,
    walk,
)  # fmt: skip
from engine.cuir.ops.traits import FIELD_VIEWS, GLOBAL_WRITES
from engine.cuir.static.calls import callee, fields_of


def written_fields(module: Module) -> frozenset[str]:
    """Fields of the argument struct that some kernel may write."""
    names: dict[tuple[str, str], set[str]] = {}
    steps = [(str(path[0]), stmt) for path, stmt in walk(module)]
    changed = True
    while changed:
        changed = False
        for function, stmt in steps:
            for target, fields in _flow(module, function, stmt, names):
                known = names.setdefault(target, set())
                if not fields <= known:
                    known |= fields
                    changed = True
    out: set[str] = set()
    for function, stmt in steps:
        call = stmt_call(stmt)
        if call is not None and call.fn in GLOBAL_WRITES and call.args:
            out |= _fields(call.args[0], function, names)
    return frozenset(out)


def _fields(expr: Expr, function: str, names: dict[tuple[str, str], set[str]]) -> set[str]:
    match expr:
        case Index(base, _):
            return _fields(base, function, names)
        case Attr() | Select():
            return {*fields_of(expr)}
        case Name(id):
            return set(names.get((function, id), ()))
        case Call(fn, args, _, _) if fn in FIELD_VIEWS and args:
            return _fields(args[0], function, names)
    return set()


def _flow(
    module: Module, function: str, stmt: Stmt, names: dict[tuple[str, str], set[str]]
) -> list[tuple[tuple[str, str], set[str]]]:
    """What this statement makes names stand for: by assignment, or as a callee's parameters."""
    out = []
    if isinstance(stmt, Assign):
        out.append(((function, stmt.target), _fields(stmt.value, function, names)))
    call = stmt_call(stmt)
    if call is None:
        return out
    called = callee(call)
    for other in module.functions:
        if called is not None and other.name == called.name:
            for param, arg in zip(other.params, called.args, strict=False):
                out.append(((other.name, param.name), _fields(arg, function, names)))
    return [(target, fields) for target, fields in out if fields]
