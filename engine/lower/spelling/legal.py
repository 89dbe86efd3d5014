"""CuIR rewritten so that C++ says the same: C++'s implicit conversions written out.

`legal(module)` is what is lowered and what the lowered text is compared with. It changes no value:
every rule only writes down a conversion that CuIR makes anyway. On a lifted module it is the
identity. The rules:

1. `float(x)` and `int(x)` are `f32(x)` and `i32(x)`.
2. `/` on two whole numbers divides floats: both are cast to f32.
3. A function of floats gets floats; `min`, `max` and `abs` get operands of one kind.
4. A number that stands for a truth value is compared with 0.
5. `rcp(x)`, which C++ has not, is `1.0 / x`.
6. An argument, a returned value and an assigned value have the kind of the parameter, the function
   and the variable.
7. `block_id`, `grid_dim` and `sizeof`, which C++ counts without a sign, are `i32(..)` wherever it
   would compare, divide, choose or widen without one: everywhere but in sums and products on their
   way to an `int`, and among counts alone.
"""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import (
    Assign,
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
    Num,
    Return,
    Select,
    Stmt,
    Unary,
    blocks,
    rebuild,
    with_blocks,
)
from engine.cuir.static.conversions import INTEGERS, NUMBERS, UNSIGNED
from engine.lower.spelling.cpp_kinds import Kinds, common, module_kinds
from engine.lower.spelling.signs import Signs
from engine.lower.spelling.templates import Templates, default_templates

_ALIASES = {"float": "f32", "int": "i32"}


def legal(module: Module, templates: Templates | None = None) -> Module:
    """The module with every conversion written out."""
    table = templates or default_templates()
    kinds = module_kinds(module, table)
    params = {f.name: tuple(p.type for p in f.params) for f in module.functions}
    functions = tuple(_Legal(kinds[f.name], params).function(f) for f in module.functions)
    return replace(module, functions=functions)


def converted(expr: Expr, have: str, want: str | None) -> Expr:
    """`expr` of kind `have` as a `want`."""
    if want not in NUMBERS or have not in NUMBERS or have == want:
        return expr
    if have in UNSIGNED and want == "i32":
        return expr  # CuIR's own kind of it
    if isinstance(expr, Num) and not isinstance(expr.value, bool):
        if want == "f32":
            return Num(float(expr.value))
        if want == "i64":
            return expr
    if want == "bool":
        return Compare("!=", expr, Num(0.0 if have == "f32" else 0))
    return Call(want, (expr,))


class _Legal:
    def __init__(self, kinds: Kinds, params: dict[str, tuple[str | None, ...]]) -> None:
        self.kinds = kinds
        self.params = params
        self.signs = Signs(kinds, params)

    def function(self, function: Function) -> Function:
        options = tuple(
            (key, self.expr(self.signs.loose(value), self.kinds)) for key, value in function.options
        )
        result = self.kinds.results.get(function.name)
        return replace(function, options=options, body=self.block(function.body, result))

    def block(self, body: tuple[Stmt, ...], result: str | None) -> tuple[Stmt, ...]:
        return tuple(self.stmt(stmt, result) for stmt in body)

    def stmt(self, stmt: Stmt, result: str | None) -> Stmt:
        inner = {branch: self.block(body, result) for branch, body in blocks(stmt)}
        stmt = with_blocks(stmt, inner)
        kinds = self.kinds
        match stmt:
            case Assign(target, value):
                want = kinds.locals.get(target)
                value = self.expr(self.signs.stored(value, want), kinds)
                return Assign(target, converted(value, kinds.of(value), want))
            case Do(call):
                done = self.expr(self.signs.strict(call), kinds)
                assert isinstance(done, Call)
                return Do(done)
            case For(var, start, stop, step):
                signs = self.signs
                start, stop, step = signs.loose(start), signs.strict(stop), signs.loose(step)
                start, stop, step = (self.expr(e, kinds) for e in (start, stop, step))
                return For(var, start, stop, step, stmt.body)
            case If(cond):
                return replace(
                    stmt, cond=self.truth(self.expr(self.signs.exact(cond), kinds), kinds)
                )
            case Return(value) if value is not None:
                value = self.expr(self.signs.stored(value, result), kinds)
                return Return(converted(value, kinds.of(value), result))
        return stmt

    def truth(self, expr: Expr, kinds: Kinds) -> Expr:
        return converted(expr, kinds.of(expr), "bool")

    def expr(self, expr: Expr, kinds: Kinds) -> Expr:
        if isinstance(expr, Call | Index):
            return self.op(expr, kinds)
        expr = rebuild(expr, lambda child: self.expr(child, kinds))
        match expr:
            case Unary("not", operand):
                return Unary("not", self.truth(operand, kinds))
            case Bool(op, left, right):
                return Bool(op, self.truth(left, kinds), self.truth(right, kinds))
            case Select(cond, then, other):
                return Select(self.truth(cond, kinds), then, other)
            case Binary("/", left, right):
                have = (kinds.of(left), kinds.of(right))
                if all(kind in INTEGERS for kind in have):
                    left, right = (
                        converted(e, k, "f32") for e, k in zip((left, right), have, strict=True)
                    )
                return Binary("/", left, right)
        return expr

    def op(self, expr: Call | Index, kinds: Kinds) -> Expr:
        found = kinds.templates.find(expr, kinds.has_kind)

        def child(node: Expr) -> Expr:
            if isinstance(node, Lambda) and found is not None:
                template, holes = found
                own = dict(zip(node.params, kinds.lambda_kinds(template, holes, node), strict=True))
                return Lambda(node.params, self.expr(node.body, kinds.inside(own)))
            value = self.expr(node, kinds)
            want = None if found is None else found[0].wants(node, found[1])
            return converted(value, kinds.of(value), want)

        done = rebuild(expr, child)
        if not isinstance(done, Call) or done.kwargs:
            return done
        if done.fn in self.params:
            wanted = self.params[done.fn]
            if len(wanted) == len(done.args):
                return replace(done, args=self.arguments(done.args, wanted, kinds))
            return done
        if done.params:
            return done
        if done.fn == "rcp" and len(done.args) == 1:
            return Binary("/", Num(1.0), done.args[0])
        if done.fn in _ALIASES and len(done.args) == 1:
            return Call(_ALIASES[done.fn], done.args)
        scalar = kinds.templates.scalars.get(done.fn)
        if scalar is None or scalar.arity != len(done.args):
            return done
        have = [kinds.of(a) for a in done.args]
        same = common(have)
        # An i64 given to an int would lose bits: it stays, and lifting does not give it back.
        kind = same if scalar.kind == "same" else scalar.kind
        narrows = kind == scalar.kind == "i32"
        wanted = tuple(None if narrows and h == "i64" else kind for h in have)
        args = self.arguments(done.args, wanted, kinds)
        if same == "i64":  # C++ chooses a function by its operands: a literal is an int
            args = tuple(Call("i64", (a,)) if kinds.of(a) == "i32" else a for a in args)
        return replace(done, args=args)

    @staticmethod
    def arguments(
        args: tuple[Expr, ...], wanted: tuple[str | None, ...], kinds: Kinds
    ) -> tuple[Expr, ...]:
        pairs = zip(args, wanted, strict=True)
        return tuple(converted(arg, kinds.of(arg), want) for arg, want in pairs)
