"""Integer products that leave 32 bits: exact when CuIR runs, wrong in the kernel's `int`.

Every index, size and table entry counts as at most the largest length that the deck reaches, so
what is found here overflows at sizes that the gates themselves run. What somebody wrote with a free
hand is held to more: `engine.gates.products`.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.nodes import (
    Attr,
    Binary,
    Call,
    Expr,
    Lambda,
    Module,
    Name,
    Num,
    Path,
    Unary,
    walk,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.gates.deck import MAX_CONSTANT
from engine.transfer.rewrite import stmt_exprs

LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Overflow:
    """The op and why, in words."""

    path: Path
    message: str


def overflow(module: Module) -> Overflow | None:
    """The first integer expression of row and key indices that 32 bits cannot hold."""
    sizes = {f.name for f in module.fields if f.type == "i32"}
    devices = {f.name for f in module.functions if f.kind == "device"}
    for path, stmt in walk(module):
        for expr in stmt_exprs(stmt):
            parts = [n.body for n in walk_expr(expr) if isinstance(n, Lambda)]
            known = {"i", "j"}
            if path[0] in devices:
                parts.append(expr)
                known = {p.name for p in module.function(str(path[0])).params} | {"last"}
            for node in (n for part in parts for n in walk_expr(part)):
                found = _bound(node, known, sizes)
                if found is not None and found > LARGEST:
                    words = f"{print_expr(node)} is more than 32 bits hold at {MAX_CONSTANT} rows"
                    return Overflow(path, words)
    return None


def _bound(expr: Expr, known: set[str], sizes: set[str]) -> int | None:
    """The largest magnitude of an integer expression; None where that is not known."""

    def go(inner: Expr) -> int | None:
        return _bound(inner, known, sizes)

    match expr:
        case Num(int() as value):
            return abs(int(value))
        case Name(id) if id in known:
            return MAX_CONSTANT
        case Attr(Name("args"), field) if field in sizes:
            return MAX_CONSTANT
        case Unary("-", operand):
            return go(operand)
        case Binary("+" | "-" | "*" | "<<" as op, left, right):
            a, b = go(left), go(right)
            if a is None or b is None:
                return None
            return a * b if op == "*" else a + b if op != "<<" else a << min(b, 64)
        case Binary("//", left, _) | Call("floor_div", (left, _)):
            return go(left)
        case Binary("%", _, right) | Call("floor_mod", (_, right)):
            return go(right)
        case Call("min" | "max", (left, right)):
            a, b = go(left), go(right)
            return None if a is None or b is None else max(a, b)
    return None
