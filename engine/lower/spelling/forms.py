"""Which assignment declares a variable, and how: C++ has block scopes, CuIR has none."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Expr,
    For,
    Function,
    Index,
    Lambda,
    Name,
    Num,
    Path,
    Stmt,
    blocks,
    names_in,
    rebuild,
    stmt_exprs,
    walk_expr,
)
from engine.cuir.ops.traits import BUILT
from engine.cuir.printer import print_stmts
from engine.errors import LowerError
from engine.lower.spelling.cpp_kinds import Kinds


@dataclass(frozen=True, slots=True)
class Form:
    """How an assignment is written. `constant`: C++ must know the value when it compiles."""

    declares: bool
    reassigned: bool = False
    constant: bool = False


def forms(function: Function, kinds: Kinds) -> dict[Path, Form]:
    """The form of every assignment of `function`, by path.

    Raises `LowerError` for a name that is read outside of the block that declares it.
    """
    walker = _Forms(function, kinds)
    walker.block(function.body, (function.name,))
    return {
        path: Form(declares, name in walker.again.get(path, ()), walker.is_constant(name, value))
        for path, (declares, name, value) in walker.found.items()
    }


class _Forms:
    def __init__(self, function: Function, kinds: Kinds) -> None:
        self.function = function
        self.kinds = kinds
        self.assigned = {s.target for s in _all(function.body) if isinstance(s, Assign)}
        self.loops = {s.var for s in _all(function.body) if isinstance(s, For)}
        self.outer = {p.name: None for p in function.params} | dict.fromkeys(function.consts)
        self.scopes: list[dict[str, Path | None]] = [dict(self.outer)]
        self.found: dict[Path, tuple[bool, str, Expr]] = {}
        self.again: dict[Path, set[str]] = {}
        self.in_templates = template_names(function, kinds)

    def block(self, body: tuple[Stmt, ...], at: Path) -> None:
        for position, stmt in enumerate(body):
            path = (*at, position)
            for expr in stmt_exprs(stmt):
                self.reads(expr, stmt, frozenset())
            if isinstance(stmt, Assign):
                self.assign(stmt, path)
            for branch, inner in blocks(stmt):
                self.scopes.append({stmt.var: None} if isinstance(stmt, For) else {})
                self.block(inner, (*path, branch))
                self.scopes.pop()

    def assign(self, stmt: Assign, path: Path) -> None:
        for scope in reversed(self.scopes):
            if stmt.target in scope:
                declared = scope[stmt.target]
                if declared is not None:
                    self.again.setdefault(declared, set()).add(stmt.target)
                self.found[path] = (False, stmt.target, stmt.value)
                return
        self.scopes[-1][stmt.target] = path
        self.found[path] = (True, stmt.target, stmt.value)

    def reads(self, expr: Expr, stmt: Stmt, hidden: frozenset[str]) -> None:
        if isinstance(expr, Lambda):
            hidden |= set(expr.params)
        if isinstance(expr, Name) and expr.id not in hidden:
            local = expr.id in self.assigned or expr.id in self.loops
            if local and not any(expr.id in scope for scope in self.scopes):
                text = print_stmts((stmt,), 0, ("",), {})[0]
                raise LowerError(
                    f"in {self.function.name}, `{text}` reads {expr.id} outside of the block that "
                    "assigns it, where C++ no longer knows it",
                    fix=f"assign {expr.id} before that block, or use `a if c else b`",
                )

        def child(node: Expr) -> Expr:
            self.reads(node, stmt, hidden)
            return node

        rebuild(expr, child)

    def is_constant(self, name: str, value: Expr) -> bool:
        return name in self.in_templates and self.compiles(value)

    def compiles(self, value: Expr) -> bool:
        """Whether the value is known when C++ compiles: no argument, no thread, no memory."""
        known = set(self.function.consts) | self.in_templates
        for node in walk_expr(value):
            match node:
                case Attr() | Index() | Lambda():
                    return False
                case Name(id) if id in self.kinds.locals and id not in known:
                    return False
                case Call(fn) if fn not in _AT_COMPILE_TIME:
                    return False
        return True


_AT_COMPILE_TIME = BUILT | {"ceil_div", "i32", "i64", "f32", "bool"}


def template_names(function: Function, kinds: Kinds) -> set[str]:
    """Names that stand between `<` and `>` in C++."""
    found: set[str] = set()

    def take(expr: Expr) -> None:
        found.update(names_in(expr))

    for stmt in _all(function.body):
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                if isinstance(node, Call):
                    for param in node.params:
                        take(param)
                if isinstance(node, Call | Index):
                    for child in in_template(node, kinds):
                        take(child)
    # What a constant is made of must be a constant too.
    values = {s.target: s.value for s in _all(function.body) if isinstance(s, Assign)}
    pending = list(found)
    while pending:
        value = values.get(pending.pop(), Num(0))
        for node in walk_expr(value):
            if isinstance(node, Name) and node.id in values and node.id not in found:
                found.add(node.id)
                pending.append(node.id)
    return found


def in_template(expr: Call | Index, kinds: Kinds) -> list[Expr]:
    """The operands of `expr` that C++ writes between `<` and `>`."""
    if isinstance(expr, Index) and isinstance(expr.base, Name):
        id = expr.base.id
        if kinds.layout(id) or id in kinds.results:
            return list(expr.index)
    match = kinds.templates.find(expr, kinds.has_kind)
    if match is None:
        return []
    template, holes = match
    out: list[Expr] = []
    for piece in template.pieces:
        if piece.hole and piece.place == "template" and piece.hole in holes:
            value = holes[piece.hole]
            out += value if isinstance(value, tuple) else (value,)
    return out


def _all(body: tuple[Stmt, ...]) -> list[Stmt]:
    out: list[Stmt] = []
    for stmt in body:
        out.append(stmt)
        for _, inner in blocks(stmt):
            out += _all(inner)
    return out
