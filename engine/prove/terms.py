"""CuIR's whole numbers and conditions, and its device functions, as terms of the solver.

Whole numbers are exact here. That 32 bits hold them is a claim of its own: `Terms.visit` shows each
subexpression with its path condition to whoever makes it. Division truncates as in C and is defined
where its divisor is positive and, where that is no constant, its dividend is not negative:
`Terms.needs` lists what has to be shown for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import z3

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
    If,
    Index,
    Module,
    Name,
    Num,
    Return,
    Select,
    Stmt,
    Unary,
    next_of,
)
from engine.cuir.printer import print_expr
from engine.cuir.static.host_constants import constants_of
from engine.errors import CuirError
from engine.prove.solver import Condition, Whole

MAX_ROUNDS = 64  # of a loop between constants, which is unrolled

Value: TypeAlias = Any  # Whole | Condition
Path = tuple[Condition, ...]  # path condition: all of it holds where an expression is evaluated
# A name is a Value, the argument struct (a mapping by field), or a tensor that is read (a
# z3.FuncDeclRef of its indices).
Env = Mapping[str, Any]
Visit = Callable[[Expr, Value, Path], None]


class NotWhole(CuirError):
    """An expression that is no whole number and no condition: the solver has no term for it."""


@dataclass(frozen=True, slots=True)
class Need:
    """What must hold, under a path condition, for a term to say what the expression does."""

    expr: Expr
    path: Path
    claim: Condition


class Terms:
    """Expressions of one module as terms.

    Args:
        functions: the device functions that calls may name.
        constants: compile-time numbers by name (BM, BN, ...), see `constants_of`.
        visit: is shown each subexpression, its value and its path condition, inner ones first,
            those of called functions too.
    """

    def __init__(
        self,
        functions: Mapping[str, Function],
        constants: Mapping[str, Any],
        visit: Visit | None = None,
    ) -> None:
        self.functions, self.visit = functions, visit
        self.constants = {n: number(v) for n, v in constants.items() if isinstance(v, int)}
        self.needs: list[Need] = []
        self._calls: list[str] = []

    @staticmethod
    def of(module: Module, visit: Visit | None = None) -> Terms:
        """For a module, with the constants that its launcher gives it."""
        functions = module.devices
        return Terms(functions, constants_of(module), visit)

    def shown_to(self, visit: Visit) -> Terms:
        """The same module's terms, each of which is shown to `visit`."""
        out = Terms(self.functions, {}, visit)
        out.constants = self.constants
        return out

    def whole(self, expr: Expr, env: Env, path: Path = ()) -> Whole:
        """`expr` as a whole number. Raises `NotWhole`."""
        return as_whole(self.value(expr, env, path))

    def truth(self, expr: Expr, env: Env, path: Path = ()) -> Condition:
        """`expr` as a condition: a number is true where it is not 0. Raises `NotWhole`."""
        return as_truth(self.value(expr, env, path))

    def call(
        self, name: str, operands: Sequence[Any], params: Sequence[Value | int] = (),
        path: Path = (),
    ) -> Value:  # fmt: skip
        """What a device function gives. `operands` are values or the fields of the argument
        struct; `params` are its compile-time parameters. Raises `NotWhole`."""
        function = self.functions[name]
        names = [*(p.name for p in function.params), *function.consts]
        values = [*operands, *(number(p) if isinstance(p, int) else p for p in params)]
        if len(names) != len(values):
            raise NotWhole(f"{name} is called with another number of operands than it has")
        if name in self._calls:
            raise NotWhole(f"{name} calls itself")
        self._calls.append(name)
        try:
            returned = self._block(function.body, dict(zip(names, values, strict=True)), path)
        finally:
            self._calls.pop()
        if not returned:
            raise NotWhole(f"{name} returns no value")
        result = returned[-1][1]
        for condition, value in reversed(returned[:-1]):
            result = choice(condition, value, result)
        return result

    # --- expressions -------------------------------------------------------------------------

    def value(self, expr: Expr, env: Env, path: Path = ()) -> Value:
        """`expr` where `env` gives the values of its names. Raises `NotWhole`."""
        value = self._value(expr, env, path)
        if self.visit is not None:
            self.visit(expr, value, path)
        return value

    def _value(self, expr: Expr, env: Env, path: Path) -> Value:
        match expr:
            case Num(int() as constant):
                return number(constant)
            case Name(id):
                found = env.get(id, self.constants.get(id))
                if isinstance(found, z3.ExprRef):
                    return found
            case Attr(Name(base), field):
                fields = env.get(base)
                found = fields.get(field) if isinstance(fields, Mapping) else None
                if isinstance(found, z3.ExprRef):
                    return found
            case Unary("-", operand):
                return -self.whole(operand, env, path)
            case Unary("not", operand):
                return z3.Not(self.truth(operand, env, path))
            case Unary("~", operand):
                value = self.value(operand, env, path)
                return z3.Not(value) if z3.is_bool(value) else -value - 1
            case Binary(op, left, right):
                a, b = self.value(left, env, path), self.value(right, env, path)
                return self._binary(expr, op, a, b, path)
            case Compare(op, left, right):
                return compare(op, self.value(left, env, path), self.value(right, env, path))
            case Bool(op, left, right):
                a = self.truth(left, env, path)
                inner = (*path, a if op == "and" else z3.Not(a))
                b = self.truth(right, env, inner)
                return z3.And(a, b) if op == "and" else z3.Or(a, b)
            case Select(cond, then, other):
                test = self.truth(cond, env, path)
                a = self.value(then, env, (*path, test))
                return choice(test, a, self.value(other, env, (*path, z3.Not(test))))
            case Index(Name(id), index) if isinstance(env.get(id), z3.FuncDeclRef):
                return env[id](*(self.whole(i, env, path) for i in index))
            case Call(fn, args, (), params):
                return self._call(expr, fn, args, params, env, path)
        raise NotWhole(f"{print_expr(expr)} is no whole number that follows from sizes")

    def _call(
        self, expr: Expr, fn: str, args: tuple[Expr, ...], params: tuple[Expr, ...], env: Env,
        path: Path,
    ) -> Value:  # fmt: skip
        if fn in self.functions:
            struct = [
                env[a.id] if isinstance(a, Name) and isinstance(env.get(a.id), Mapping)
                else self.value(a, env, path)
                for a in args
            ]  # fmt: skip
            return self.call(fn, struct, [self.value(p, env, path) for p in params], path)
        values = [self.value(a, env, path) for a in args]
        match fn, [as_whole(v) for v in values]:
            case ("min", [a, b]):
                return z3.If(a <= b, a, b)
            case ("max", [a, b]):
                return z3.If(a >= b, a, b)
            case ("abs", [a]):
                return z3.If(a >= 0, a, -a)
            case ("ceil_div", [a, b]):  # as the kernels' header has it
                return self._quotient(expr, a + b - 1, b, path)
            case ("floor_div", [a, b]):
                self._positive(expr, b, path)
                return a / b
            case ("floor_mod", [a, b]):
                self._positive(expr, b, path)
                return a % b
            case (("int" | "i32" | "i64"), [a]):
                return a
            case ("bool", [_]):
                return as_truth(values[0])
        raise NotWhole(f"{print_expr(expr)} is no whole number that follows from sizes")

    def _binary(self, expr: Expr, op: str, left: Value, right: Value, path: Path) -> Value:
        if op in ("&", "|", "^") and z3.is_bool(left) and z3.is_bool(right):
            return {"&": z3.And, "|": z3.Or, "^": z3.Xor}[op](left, right)
        a, b = as_whole(left), as_whole(right)
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "//":
                return self._quotient(expr, a, b, path)
            case "%":
                return a - b * self._quotient(expr, a, b, path)
        known = constant_of(b)
        if op in ("<<", ">>") and known is not None and 0 <= known < 64:
            return a * 2**known if op == "<<" else a / 2**known
        if op == "&" and known is not None and known >= 0 and known & (known + 1) == 0:
            return a % (known + 1)  # the low bits, of a negative number too
        raise NotWhole(f"the solver has no term for {print_expr(expr)}")

    def _quotient(self, expr: Expr, dividend: Whole, divisor: Whole, path: Path) -> Whole:
        """C's quotient. By what is no constant, only of a dividend that is not negative: products
        are hard enough for the solver without a choice in them."""
        self._positive(expr, divisor, path)
        if constant_of(divisor) is not None:
            return truncated(dividend, divisor)
        self.needs.append(Need(expr, path, dividend >= 0))
        return dividend / divisor

    def _positive(self, expr: Expr, divisor: Whole, path: Path) -> None:
        known = constant_of(divisor)
        if known is None:
            self.needs.append(Need(expr, path, divisor > 0))
        elif known <= 0:
            raise NotWhole(f"{print_expr(expr)} divides by {known}")

    # --- statements --------------------------------------------------------------------------

    def _block(
        self, body: tuple[Stmt, ...], env: dict[str, Any], path: Path
    ) -> list[tuple[Condition, Value]]:
        """Runs statements: what they return, each under its condition. `env` is left as it is
        where nothing is returned."""
        returned: list[tuple[Condition, Value]] = []
        for stmt in body:
            here = (*path, *(z3.Not(condition) for condition, _ in returned))
            match stmt:
                case Assign(target, value):
                    env[target] = self.value(value, env, here)
                case Return(value) if value is not None:
                    returned.append((z3.BoolVal(True), self.value(value, env, here)))
                    return returned
                case If(cond, then, other):
                    test = self.truth(cond, env, here)
                    ways = ((test, then, dict(env)), (z3.Not(test), other, dict(env)))
                    for holds, inner, names in ways:
                        found = self._block(inner, names, (*here, holds))
                        returned += [(z3.And(holds, c), v) for c, v in found]
                    for name in {**ways[0][2], **ways[1][2]}:
                        a, b = (names.get(name) for _, _, names in ways)
                        env[name] = b if a is None else a if b is None or a is b else (
                            choice(test, a, b)
                        )  # fmt: skip
                case For(var, _, _, step, inner) if next_of(step) is None:
                    for now in self._rounds(stmt, env, here):
                        env[var] = number(now)
                        ended = [z3.Not(condition) for condition, _ in returned]
                        returned += [
                            (z3.And(*ended, c) if ended else c, v)
                            for c, v in self._block(inner, env, (*path, *ended))
                        ]
                case _:
                    kind = type(stmt).__name__.lower()
                    raise NotWhole(f"the solver has no term for a {kind} in a device function")
        return returned

    def _rounds(self, loop: For, env: Env, path: Path) -> range:
        ends = [constant_of(self.whole(e, env, path)) for e in (loop.start, loop.stop, loop.step)]
        first, end, step = ends
        if first is None or end is None or not step:
            raise NotWhole("a loop whose ends are not known at compile time")
        rounds = range(first, end, step)
        if len(rounds) > MAX_ROUNDS:
            raise NotWhole(f"a loop of {len(rounds)} rounds")
        return rounds


def number(value: int | bool) -> Value:
    """A literal as a term."""
    return z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(value)


def as_whole(value: Value) -> Whole:
    """A condition is 0 or 1 where a number is asked for."""
    return z3.If(value, z3.IntVal(1), z3.IntVal(0)) if z3.is_bool(value) else value


def as_truth(value: Value) -> Condition:
    """A number is true where it is not 0."""
    return value if z3.is_bool(value) else value != 0


def choice(test: Condition, then: Value, other: Value) -> Value:
    """`then` where `test` holds, else `other`."""
    if z3.is_bool(then) != z3.is_bool(other):
        then, other = as_whole(then), as_whole(other)
    return z3.If(test, then, other)


def compare(op: str, left: Value, right: Value) -> Condition:
    if not (z3.is_bool(left) and z3.is_bool(right) and op in ("==", "!=")):
        left, right = as_whole(left), as_whole(right)
    match op:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
        case "==":
            return left == right
        case _:
            return left != right


def truncated(a: Whole, b: Whole) -> Whole:
    """C's quotient, of a positive divisor."""
    return z3.If(a >= 0, a / b, -((-a) / b))


def constant_of(term: Value) -> int | None:
    """The number that a term is, if it is one whatever the sizes are."""
    known = z3.simplify(term)
    return known.as_long() if z3.is_int_value(known) else None


def names_in(term: Value) -> set[str]:
    """The names of a term: sizes, and what stands for any number."""
    found: set[str] = set()
    pending, seen = [term], set[int]()
    while pending:
        node = pending.pop()
        if node.get_id() in seen:
            continue
        seen.add(node.get_id())
        if z3.is_const(node) and node.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found.add(node.decl().name())
        pending += node.children()
    return found
