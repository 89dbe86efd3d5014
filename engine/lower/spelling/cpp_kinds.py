"""What kind of value an expression has, as far as writing C++ needs it.

Kinds are those that `engine.cuir.ops.spelling` lists, with elements (`view:f32`, `tile:f32`) where
it has holes, and `?` for what cannot be told. The kind decides between `/` and a cast, between
`float` and `int` in a lambda, and between `sK[stage]` and `slope(h)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    For,
    Function,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Opaque,
    Return,
    Select,
    Stmt,
    Unary,
    rebuild,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.ops import OPS
from engine.cuir.ops.bind import bind
from engine.cuir.ops.spec import Mismatch
from engine.cuir.ops.traits import COUNTS
from engine.cuir.static import conversions
from engine.cuir.static.conversions import NUMBERS, UNSIGNED, promoted
from engine.lower.spelling.templates import Holes, Template, Templates

UNKNOWN = "?"
ARGS = "args"


def common(kinds: list[str]) -> str:
    """C++'s common type of scalars."""
    return conversions.common(kinds) or UNKNOWN


@dataclass(slots=True)
class Kinds:
    """The kinds of one function's names. `locals` are filled in program order."""

    templates: Templates
    fields: Mapping[str, str]
    results: Mapping[str, str]  # of the module's own functions
    locals: dict[str, str] = field(default_factory=dict)

    def has_kind(self, expr: Expr, kind: str) -> bool:
        return self.of(expr).split(":")[0] == kind

    def of(self, expr: Expr) -> str:
        """The kind of `expr` where it stands."""
        match expr:
            case Num(value):
                if isinstance(value, bool):
                    return "bool"
                if isinstance(value, int):
                    return "i32" if -(2**31) < value < 2**31 else "i64"
                return "f32"
            case Name(id):
                found = self.locals.get(id)
                if found is not None:
                    return found
                symbol = self.templates.names.get(id)
                return symbol.kind if symbol is not None else UNKNOWN
            case Attr(Name("args"), name):
                return self.fields.get(name, UNKNOWN)
            case Unary("not", _) | Compare() | Bool():
                return "bool"
            case Unary(_, operand):
                return common([self.of(operand)])
            case Binary("/", _, _):
                return "f32"
            case Binary("<<" | ">>", left, right):
                kinds = (self.of(left), self.of(right))
                return promoted(kinds[0]) if UNKNOWN not in kinds else UNKNOWN
            case Binary(_, left, right):
                return common([self.of(left), self.of(right)])
            case Select(_, then, other):
                kinds = (self.of(then), self.of(other))
                return kinds[0] if kinds[0] == kinds[1] else common(list(kinds))
            case Lambda():
                return "lambda"
            case Index(Name(id), _) if self.layout(id):
                return "layout"
            case Call() | Index():
                return self.op(expr)
        return UNKNOWN

    def stored(self, expr: Expr) -> str:
        """The kind of a variable or result that takes the value: CuIR's, which has a sign."""
        kind = self.of(expr)
        return self.of(_without_counts(expr)) if kind in UNSIGNED else kind

    def layout(self, id: str) -> bool:
        symbol = self.templates.names.get(id)
        return id not in self.locals and symbol is not None and symbol.kind == "layout"

    def op(self, expr: Call | Index) -> str:
        if isinstance(expr, Call) and not expr.kwargs:
            if expr.fn in self.results:
                return self.results[expr.fn]
            scalar = self.templates.scalars.get(expr.fn)
            if scalar is not None:
                kinds = [self.of(arg) for arg in expr.args]
                return scalar.kind if scalar.kind != "same" else common(kinds)
            if expr.fn in self.templates.casts and len(expr.args) == 1:
                return expr.fn
        found = self.templates.find(expr, self.has_kind)
        return self.result(*found) if found is not None else UNKNOWN

    def result(self, template: Template, holes: Holes) -> str:
        base, _, of = template.type.partition(":")
        if not of:
            return base
        if of in NUMBERS:
            return template.type
        value = holes[of.strip("{}")]
        assert not isinstance(value, tuple)
        if isinstance(value, Lambda):
            return f"{base}:{self.lambda_result(template, holes, value)}"
        if base == "view":
            # Elements of T are widened to float as they are read.
            name = value.id if isinstance(value, Name) else ""
            return f"view:{name if name in NUMBERS else 'f32'}"
        element = self.of(value).partition(":")[2] or UNKNOWN
        return element if base == "element" else f"{base}:{element}"

    def lambda_kinds(self, template: Template, holes: Holes, fn: Lambda) -> list[str]:
        """The kinds of the lambda's parameters: elements of its operands, then coordinates."""
        elements: list[str] = []
        for hole in template.elements:
            value = holes[hole]
            for operand in value if isinstance(value, tuple) else (value,):
                elements.append(self.of(operand).partition(":")[2] or "f32")
        elements = [e if e in NUMBERS else "f32" for e in elements]
        return (elements + ["i32"] * len(fn.params))[: len(fn.params)]

    def lambda_result(self, template: Template, holes: Holes, fn: Lambda) -> str:
        inside = self.inside(
            dict(zip(fn.params, self.lambda_kinds(template, holes, fn), strict=True))
        )
        kind = inside.stored(fn.body)
        return kind if kind in NUMBERS else "f32"

    def inside(self, more: Mapping[str, str]) -> Kinds:
        """The kinds inside a lambda with these parameters."""
        return Kinds(self.templates, self.fields, self.results, {**self.locals, **more})

    def learn(self, stmt: Stmt) -> None:
        """Takes in what a statement (not its blocks) says about names."""
        match stmt:
            case Assign(target, value):
                kind, known = self.stored(value), self.locals.get(target, UNKNOWN)
                if known == UNKNOWN:
                    self.locals[target] = kind
                elif known != kind and known in NUMBERS and kind in NUMBERS:
                    self.locals[target] = common([known, kind])
            case For(var):
                self.locals[var] = "i32"
            case Opaque(_, reads, writes):
                for name in (*reads, *writes):
                    self.locals.setdefault(name, UNKNOWN)


def _without_counts(expr: Expr) -> Expr:
    counts = isinstance(expr, Call) and expr.fn in COUNTS
    return Num(0) if counts else rebuild(expr, _without_counts)


def module_kinds(module: Module, templates: Templates) -> dict[str, Kinds]:
    """The kinds of every function's names, by function. Names are told once per function."""
    fields = {f.name: f.type for f in module.fields}
    types = {name for name, value in module.spec if isinstance(value, Name)}
    results: dict[str, str] = {}
    out: dict[str, Kinds] = {}
    for function in module.functions:
        kinds = Kinds(templates, fields, results)
        for const in function.consts:
            kinds.locals[const] = "type" if const in types | type_consts(function) else "i32"
        for param in function.params:
            kinds.locals[param.name] = ARGS if param.name == ARGS else param.type or "i32"
        returned = UNKNOWN
        for _ in range(2):  # a later assignment may widen what an earlier one is read as
            for _, stmt in walk_block(function.body, ()):
                kinds.learn(stmt)
        for _, stmt in walk_block(function.body, ()):
            if isinstance(stmt, Return) and stmt.value is not None:
                kind = kinds.stored(stmt.value)
                if returned == UNKNOWN:
                    returned = kind
                elif kind != returned:
                    returned = common([returned, kind])
        results[function.name] = returned
        out[function.name] = kinds
    return out


def type_consts(function: Function) -> set[str]:
    """Constants that stand where only an element type can."""
    found: set[str] = set()

    def look(expr: Expr) -> None:
        spec = OPS.get(expr.fn) if isinstance(expr, Call) else None
        if spec is None or not isinstance(expr, Call):
            return
        try:
            bound = bind(spec, expr)
        except Mismatch:
            return
        for operand, value in zip(spec.operands, bound, strict=True):
            if operand.kind in ("dtype", "sized") and isinstance(value, Name):
                found.add(value.id)

    for _, stmt in walk_block(function.body, ()):
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                if isinstance(node, Call):
                    look(node)
    return found & set(function.consts)
