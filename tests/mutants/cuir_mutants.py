"""Mechanical faults in CuIR: every single fault of the listed operators, wherever it can stand.

Nothing is chosen by hand: `drawn` takes them operator by operator in an order that a seed fixes.
CuIR is Python syntax, so a fault is a changed node of that tree, printed again.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache

RELATIONS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}  # fmt: skip
CONTRARIES: dict[type, type] = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt,
}  # fmt: skip
ARITHMETIC: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add, ast.FloorDiv),
    ast.FloorDiv: (ast.Mult, ast.Mod), ast.Mod: (ast.FloorDiv,), ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,), ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,),
}  # fmt: skip
FUNCTIONS = {
    "min": "max", "max": "min", "ceil_div": "floor_div", "floor_div": "ceil_div",
    "floor_mod": "floor_div", "row_max": "row_sum", "row_sum": "row_max", "least": "greatest",
    "greatest": "least", "exp2_approx": "exp", "gemm_async": "gemm_async_init",
    "gemm_async_init": "gemm_async", "named_sync": "named_arrive", "named_arrive": "named_sync",
    "arrive": "wait", "i32": "u32", "u32": "i32", "i64": "i32",
}  # fmt: skip
SIZES = ("B", "Hq", "Hkv", "Nq", "Nk")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: its operator, the line of the text, which function and statement that is, and the
    change in words; the faulty text."""

    operator: str
    line: int
    function: str
    statement: str
    words: str
    text: str

    def __str__(self) -> str:
        return f"{self.operator} at line {self.line}: {self.words}"


def drawn(text: str, count: int, seed: int) -> list[Mutant]:
    """`count` faults in the functions of a module's text, spread over the operators, the same for
    the same seed."""
    tree = ast.parse(text)
    by_operator: dict[str, list[tuple[int, list[ast.AST]]]] = {}
    for number, (function, node) in enumerate(_inside_functions(tree)):
        for operator, changed in _changes(node, _names_of(function)):
            by_operator.setdefault(operator, []).append((number, changed))
    chooser = random.Random(seed)
    for bucket in by_operator.values():
        chooser.shuffle(bucket)
    out: list[Mutant] = []
    while len(out) < count and any(by_operator.values()):
        for operator, bucket in by_operator.items():
            if bucket and len(out) < count:
                out.append(_made(tree, text, operator, *bucket.pop()))
    return out


def _made(
    tree: ast.Module, text: str, operator: str, number: int, changed: list[ast.AST]
) -> Mutant:
    function, node = next(pair for at, pair in enumerate(_inside_functions(tree)) if at == number)
    copy = deepcopy(tree)
    old = next(n for at, (_, n) in enumerate(_inside_functions(copy)) if at == number)
    _put(copy, old, deepcopy(changed))
    was = ast.unparse(node)
    now = "; ".join(ast.unparse(ast.fix_missing_locations(deepcopy(new))) for new in changed)
    words = f"{was.splitlines()[0]!r} -> {now.splitlines()[0]!r}"
    line = getattr(node, "lineno", function.lineno)
    statement = text.splitlines()[line - 1].strip()
    return Mutant(operator, line, function.name, statement, words, ast.unparse(copy) + "\n")


def _inside_functions(tree: ast.AST) -> Iterator[tuple[ast.FunctionDef, ast.AST]]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for stmt in function.body:
                for node in ast.walk(stmt):
                    yield function, node


@cache
def _names_of(function: ast.FunctionDef) -> tuple[tuple[str, ...], ...]:
    """Names that may stand in each other's place: what is alike in kind by where it is bound."""
    tiles = {
        n.targets[0].id
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
        and isinstance(n.value, ast.Call)
    }  # fmt: skip
    scalars = {
        n.targets[0].id
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    } | {n.target.id for n in ast.walk(function)
         if isinstance(n, ast.For) and isinstance(n.target, ast.Name)}  # fmt: skip
    scalars |= {a.arg for a in function.args.args if a.arg != "args" and "map" not in a.arg}
    consts = {a.arg for a in function.args.kwonlyargs} - {"T"}
    return tuple(tuple(sorted(group)) for group in (tiles, scalars - tiles, consts))


Change = tuple[str, list[ast.AST]]


def _changes(node: ast.AST, names: tuple[tuple[str, ...], ...]) -> Iterator[Change]:
    match node:
        case ast.Constant(value=bool()) | ast.Constant(value=str()):
            return
        case ast.Constant(value=int(value)):
            yield from (
                ("off by one", [ast.Constant(value + d)]) for d in (1, -1) if value + d >= 0
            )
            if value > 1:
                yield "constant", [ast.Constant(2 * value)]
        case ast.Constant(value=float(value)):
            yield "constant", [ast.Constant(value + 0.5)]
        case ast.Compare(left, [op], [right]):
            for table, operator in ((RELATIONS, "relation"), (CONTRARIES, "contrary")):
                if type(op) in table:
                    yield operator, [ast.Compare(left, [table[type(op)]()], [right])]
            yield "swapped operands", [ast.Compare(right, [op], [left])]
        case ast.BinOp(left, op, right):
            for other in ARITHMETIC.get(type(op), ()):
                yield "arithmetic", [ast.BinOp(left, other(), right)]
            yield from (("dropped term", [side]) for side in (left, right))
            if isinstance(op, ast.Sub | ast.FloorDiv | ast.Mod):
                yield "swapped operands", [ast.BinOp(right, op, left)]
        case ast.BoolOp(op, values):
            other_op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "logic", [ast.BoolOp(other_op, values)]
            for gone in range(len(values)):
                rest = [v for n, v in enumerate(values) if n != gone]
                yield "dropped term", [rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)]
        case ast.UnaryOp(_, operand):
            yield "negation", [operand]
        case ast.IfExp(test, body, other):
            yield "branch", [ast.IfExp(test, other, body)]
            yield from (("dropped term", [side]) for side in (body, other))
        case ast.Call(ast.Name(fn), args, keywords):
            if fn in FUNCTIONS:
                yield "function", [ast.Call(ast.Name(FUNCTIONS[fn]), args, keywords)]
            for at in range(len(args) - 1):
                if not isinstance(args[at + 1], ast.Lambda | ast.List):
                    order = [*args[:at], args[at + 1], args[at], *args[at + 2 :]]
                    yield "swapped operands", [ast.Call(ast.Name(fn), order, keywords)]
        case ast.Attribute(ast.Name("args"), field) if field in SIZES:
            other_field = SIZES[(SIZES.index(field) + 1) % len(SIZES)]
            pair = {"Nq": "Nk", "Nk": "Nq", "Hq": "Hkv", "Hkv": "Hq"}.get(field, other_field)
            yield "name", [ast.Attribute(ast.Name("args"), pair)]
        case ast.Name(id, ast.Load()):
            for group in names:
                if id in group and len(group) > 1:
                    yield "name", [ast.Name(group[(group.index(id) + 1) % len(group)])]
                    yield "name", [ast.Name(group[group.index(id) - 1])]
        case ast.If(test, body, other):
            yield "negation", [ast.If(ast.UnaryOp(ast.Not(), test), body, other)]
            yield "unconditional", list(body)
            yield "dropped statement", list(other) or [ast.Pass()]
        case ast.For(target, ast.Call(ast.Name("range"), args), body):
            shifted = [*args[:-1], ast.BinOp(args[-1], ast.Sub(), ast.Constant(1))]
            if len(args) < 3:
                loop = ast.Call(ast.Name("range"), shifted, [])
                yield "off by one", [ast.For(target, loop, body, [])]
        case ast.Expr(ast.Call()):
            yield "dropped statement", [ast.Pass()]
            yield "doubled statement", [node, node]
        case ast.Assign(targets=[ast.Name(name)], value=value):
            reads = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
            if name in reads:
                yield "dropped statement", [ast.Pass()]
                yield "doubled statement", [node, node]


def _put(tree: ast.AST, old: ast.AST, new: list[ast.AST]) -> None:
    """`old` replaced by `new` where it stands in `tree`; a block left empty loses what holds it."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new[0])
                ast.fix_missing_locations(tree)
                return
            if isinstance(value, list) and any(item is old for item in value):
                at = next(n for n, item in enumerate(value) if item is old)
                value[at : at + 1] = new
                if len(value) > 1:
                    value[:] = [item for item in value if not isinstance(item, ast.Pass)] or value
                ast.fix_missing_locations(tree)
                return
