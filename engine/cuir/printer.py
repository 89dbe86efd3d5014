"""The canonical print of CuIR: one text per tree, valid Python syntax."""

from __future__ import annotations

import math
from collections.abc import Mapping

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Do,
    Expr,
    For,
    Function,
    If,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Opaque,
    Path,
    Return,
    Select,
    Slice,
    Stmt,
    Str,
    Tuple,
    Unary,
)  # fmt: skip

LONGEST = 60  # letters of a text that is cut
INDENT = "    "

# Binding strengths, as in Python's grammar; a child prints in parentheses when it binds weaker.
_LAMBDA, _SELECT, _OR, _AND, _NOT, _COMPARE = range(6)
_BINARY = {
    "|": 6, "^": 7, "&": 8, "<<": 9, ">>": 9,
    "+": 10, "-": 10, "*": 11, "/": 11, "//": 11, "%": 11,
}  # fmt: skip
_UNARY, _ATOM = 12, 14


def print_number(value: int | float | bool) -> str:
    """Shortest text that parses back to the same literal."""
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
    return repr(value)


def print_expr(expr: Expr, strength: int = 0) -> str:
    """`expr` as text, parenthesised when its context binds tighter than `strength` allows."""
    text, own = _expr(expr)
    return f"({text})" if own < strength else text


def negated(operand: Expr) -> Num | None:
    """A minus before a literal is part of the literal, as the parser reads it."""
    if isinstance(operand, Unary) and operand.op == "-":
        inner = negated(operand.operand)
        return None if inner is None else Num(-inner.value)
    if isinstance(operand, Num) and not isinstance(operand.value, bool):
        return Num(-operand.value)
    return None


def _expr(expr: Expr) -> tuple[str, int]:
    match expr:
        case Num(value):
            text = print_number(value)
            return text, _UNARY if text.startswith("-") else _ATOM
        case Str(value):
            return repr(value), _ATOM
        case Name(id):
            return id, _ATOM
        case Attr(base, field):
            return f"{print_expr(base, _ATOM)}.{field}", _ATOM
        case Call(fn, args, kwargs, params):
            head = f"{fn}[{', '.join(map(print_expr, params))}]" if params else fn
            items = [print_expr(a) for a in args]
            items += [f"{name}={print_expr(value)}" for name, value in kwargs]
            return f"{head}({', '.join(items)})", _ATOM
        case Slice(start):
            return f"{print_expr(start)}:", 0
        case Index(base, index):
            return f"{print_expr(base, _ATOM)}[{', '.join(map(print_expr, index))}]", _ATOM
        case Unary("not", operand):
            return f"not {print_expr(operand, _NOT)}", _NOT
        case Unary("-", operand) if (folded := negated(operand)) is not None:
            return _expr(folded)
        case Unary(op, operand):
            return f"{op}{print_expr(operand, _UNARY)}", _UNARY
        case Binary(op, left, right):
            own = _BINARY[op]
            return f"{print_expr(left, own)} {op} {print_expr(right, own + 1)}", own
        case Compare(op, left, right):
            return (
                f"{print_expr(left, _COMPARE + 1)} {op} {print_expr(right, _COMPARE + 1)}",
                _COMPARE,
            )
        case Bool(op, left, right):
            own = _AND if op == "and" else _OR
            return f"{print_expr(left, own)} {op} {print_expr(right, own + 1)}", own
        case Select(cond, then, other):
            parts = (print_expr(then, _OR), print_expr(cond, _OR), print_expr(other, _SELECT))
            return f"{parts[0]} if {parts[1]} else {parts[2]}", _SELECT
        case Lambda(params, body):
            return f"lambda {', '.join(params)}: {print_expr(body)}", _LAMBDA
        case Tuple(items):
            return f"[{', '.join(map(print_expr, items))}]", _ATOM
    raise TypeError(f"not a CuIR expression: {expr!r}")


def first_line(stmt: Stmt) -> str:
    """A statement without what is inside it."""
    return print_stmts((stmt,), 0, (), {})[0]


def cut(text: str) -> str:
    """A text of one line, no longer than is read at a glance."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def print_stmts(
    body: tuple[Stmt, ...], depth: int, path: Path, ids: Mapping[Path, str]
) -> list[str]:
    pad = INDENT * depth
    if not body:
        return [f"{pad}pass"]
    lines: list[str] = []
    for position, stmt in enumerate(body):
        here = (*path, position)
        mark = f"  #@{ids[here]}" if here in ids else ""
        match stmt:
            case Assign(target, value):
                lines.append(f"{pad}{target} = {print_expr(value)}{mark}")
            case Do(call):
                lines.append(f"{pad}{print_expr(call)}{mark}")
            case For(var, start, stop, step, inner):
                bounds = [print_expr(start), print_expr(stop)]
                if step != Num(1):
                    bounds.append(print_expr(step))
                if step == Num(1) and start == Num(0):
                    bounds = bounds[1:]
                lines.append(f"{pad}for {var} in range({', '.join(bounds)}):{mark}")
                lines += print_stmts(inner, depth + 1, (*here, "body"), ids)
            case If(cond, then, other):
                lines.append(f"{pad}if {print_expr(cond)}:{mark}")
                lines += print_stmts(then, depth + 1, (*here, "then"), ids)
                if other:
                    lines.append(f"{pad}else:")
                    lines += print_stmts(other, depth + 1, (*here, "other"), ids)
            case Return(value):
                lines.append(f"{pad}return{'' if value is None else ' ' + print_expr(value)}{mark}")
            case Opaque(text, reads, writes, meaning):
                head = f"opaque({text!r}, reads={list(reads)!r}, writes={list(writes)!r})"
                if meaning:
                    lines.append(f"{pad}with {head}:{mark}")
                    lines += print_stmts(meaning, depth + 1, (*here, "meaning"), ids)
                else:
                    lines.append(f"{pad}{head}{mark}")
    return lines


def print_function(function: Function, ids: Mapping[Path, str] | None = None) -> str:
    ids = ids or {}
    options = ", ".join(f"{k}={print_expr(v)}" for k, v in function.options)
    params = [p.name if p.type is None else f"{p.name}: {p.type}" for p in function.params]
    if function.consts:
        params += ["*", *function.consts]
    mark = f"  #@{ids[(function.name,)]}" if (function.name,) in ids else ""
    head = f"@{function.kind}({options})" if options else f"@{function.kind}"
    lines = [head, f"def {function.name}({', '.join(params)}):{mark}"]
    return "\n".join(lines + print_stmts(function.body, 1, (function.name,), ids))


def print_module(module: Module, ids: Mapping[Path, str] | None = None) -> str:
    """Canonical text of `module`, newline-terminated; `ids` appends `#@id` to statements."""
    binding = ", ".join(f"{k}={print_expr(v)}" for k, v in module.spec)
    fields = [f"{INDENT}{f.name}: {f.type}" for f in module.fields] or [f"{INDENT}pass"]
    parts = [f"specialisation({binding})", "\n".join(["class Args:", *fields])]
    parts += [print_function(f, ids) for f in module.functions]
    return "\n\n\n".join(parts) + "\n"
