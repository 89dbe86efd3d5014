"""Where C++ would compute without a sign what CuIR computes with one, an `i32(..)` comes.

`blockIdx`, `gridDim` and `sizeof` are unsigned in C++. What is stored in an `int` need only be
right modulo 2^32, so sums and products on their way there stay as they are; so do operations among
counts alone, which are never below 0. Everywhere else each of the three is cast. The lifter reads
exactly what this writes: it refuses every other use of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.cuir.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Lambda,
    Select,
    Tuple,
    Unary,
    rebuild,
)
from engine.cuir.ops.traits import COUNTS
from engine.cuir.static.conversions import RING, UNSIGNED, never_negative
from engine.lower.spelling.cpp_kinds import Kinds, common


@dataclass(frozen=True, slots=True)
class Signs:
    """Casts the counts in the expressions of one function, or of one lambda."""

    kinds: Kinds
    params: dict[str, tuple[str | None, ...]]  # of the module's functions

    def stored(self, expr: Expr, kind: str | None) -> Expr:
        """`expr` where it is converted to `kind`."""
        return self.loose(expr) if kind == "i32" else self.exact(expr)

    def loose(self, expr: Expr) -> Expr:
        """`expr` where its value modulo 2^32 is enough."""
        return self.walk(expr, True)

    def strict(self, expr: Expr) -> Expr:
        """`expr` where its value has a sign."""
        return self.walk(expr, False)

    def exact(self, expr: Expr) -> Expr:
        """`expr` where its value is read, on its own."""
        return self.walk(expr, never_negative(expr))

    def together(self, *exprs: Expr) -> tuple[Expr, ...]:
        """Operands that C++ converts to one type and then compares, divides or chooses from."""
        counts = all(map(never_negative, exprs))
        return tuple(self.walk(e, counts) for e in exprs)

    def walk(self, expr: Expr, loose: bool) -> Expr:
        match expr:
            case Call(fn) if fn in COUNTS:
                return expr if loose else Call("i32", (expr,))
            case Binary(op, left, right) if op in RING:
                kind = common([self.kinds.of(left), self.kinds.of(right)])
                return Binary(op, *(self.part(e, kind, loose) for e in (left, right)))
            case Binary("<<", left, right):
                return Binary("<<", self.walk(left, loose), self.exact(right))
            case Binary(">>", left, right):
                return Binary(">>", self.exact(left), self.exact(right))
            case Binary(op, left, right):
                return Binary(op, *self.together(left, right))
            case Compare(op, left, right):
                return Compare(op, *self.together(left, right))
            case Bool(op, left, right):
                return Bool(op, self.exact(left), self.exact(right))
            case Unary(op, operand):
                return Unary(op, self.exact(operand) if op == "not" else self.walk(operand, loose))
            case Select(cond, then, other):
                kind = common([self.kinds.of(then), self.kinds.of(other)])
                ways = (self.part(e, kind, loose) for e in (then, other))
                return Select(self.exact(cond), *ways)
            case Call() | Index():
                return self.call(expr)
            case Tuple():
                return rebuild(expr, self.strict)
        return rebuild(expr, self.loose)

    def part(self, expr: Expr, kind: str, loose: bool) -> Expr:
        """An operand that C++ converts to `kind` before it adds, multiplies or chooses."""
        own = self.kinds.of(expr)
        if own in UNSIGNED and own != kind and (loose or kind not in UNSIGNED):
            return self.exact(expr)
        return self.walk(expr, loose)

    def call(self, expr: Call | Index) -> Expr:
        if isinstance(expr, Call) and not expr.kwargs:
            operands = self.operands(expr)
            if operands is not None:
                params = tuple(map(self.loose, expr.params))
                return Call(expr.fn, operands, (), params)
        found = self.kinds.templates.find(expr, self.kinds.has_kind)

        def child(node: Expr) -> Expr:
            if isinstance(node, Lambda) and found is not None:
                kinds = self.kinds.lambda_kinds(*found, node)
                inside = self.kinds.inside(dict(zip(node.params, kinds, strict=True)))
                return Lambda(node.params, Signs(inside, self.params).strict(node.body))
            if isinstance(node, Tuple) and isinstance(expr, Call) and node not in expr.args:
                return rebuild(node, self.loose)  # operands of `at(..)` and `dim3(..)`
            if found is not None and found[0].wants(node, found[1]) == "f32":
                return self.exact(node)
            return self.loose(node)

        return rebuild(expr, child)

    def operands(self, expr: Call) -> tuple[Expr, ...] | None:
        """Those of a cast, a scalar function or a function of the module; None of an op."""
        if expr.fn in self.params:
            wanted = self.params[expr.fn]
            same = len(wanted) == len(expr.args)
            return tuple(map(self.stored, expr.args, wanted)) if same else expr.args
        if expr.fn in (*self.kinds.templates.casts, "int", "float"):
            to_int = expr.fn in ("i32", "int")
            return tuple(self.stored(e, "i32" if to_int else None) for e in expr.args)
        scalar = self.kinds.templates.scalars.get(expr.fn)
        if scalar is None or scalar.arity != len(expr.args):
            return None
        if scalar.kind == "same":
            return tuple(map(self.strict, expr.args))  # C++ has none that mixes signs
        return tuple(self.stored(e, scalar.kind) for e in expr.args)
