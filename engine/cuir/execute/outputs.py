"""Which fields a program writes, read from its text."""

from __future__ import annotations

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Do,
    Expr,
    Index,
    Module,
    Name,
    Return,
    Stmt,
    Tuple,
    walk,
)  # fmt: skip

_WRITES = dict.fromkeys(
    ("copy", "store", "store_rows", "tma_store", "put", "compact", "put_bits", "claim"), 0
)  # op -> the place of what it writes among its operands
_VIEWS = ("gmem", "tensor_map", "row_map")


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
        call = _call(stmt)
        if call is not None and call.fn in _WRITES and call.args:
            out |= _fields(call.args[_WRITES[call.fn]], function, names)
    return frozenset(out)


def _call(stmt: Stmt) -> Call | None:
    match stmt:
        case Do(call):
            return call
        case Assign(_, Call() as call) | Return(Call() as call):
            return call
    return None


def _fields(expr: Expr, function: str, names: dict[tuple[str, str], set[str]]) -> set[str]:
    match expr:
        case Index(base, _):
            return _fields(base, function, names)
        case Attr(_, field):
            return {field}
        case Name(id):
            return set(names.get((function, id), ()))
        case Call(fn, args, _, _) if fn in _VIEWS and args:
            return _fields(args[0], function, names)
    return set()


def _flow(
    module: Module, function: str, stmt: Stmt, names: dict[tuple[str, str], set[str]]
) -> list[tuple[tuple[str, str], set[str]]]:
    """What this statement makes names stand for: by assignment, or as a callee's parameters."""
    out = []
    if isinstance(stmt, Assign):
        out.append(((function, stmt.target), _fields(stmt.value, function, names)))
    call = _call(stmt)
    if call is None:
        return out
    callee, args = call.fn, call.args
    if call.fn == "run" and len(args) == 2 and isinstance(args[1], Tuple):
        match args[0]:
            case Index(Name(id), _) | Name(id):
                callee, args = id, args[1].items
    for other in module.functions:
        if other.name == callee:
            for param, arg in zip(other.params, args, strict=False):
                out.append(((callee, param.name), _fields(arg, function, names)))
    return [(target, fields) for target, fields in out if fields]
