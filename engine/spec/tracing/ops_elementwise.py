"""Elementwise ATen ops as scalar expressions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from engine.cuir.nodes import Binary, Call, Expr, Num
from engine.scalar_algebra.kinds import kind_of
from engine.spec.expressions import build
from engine.spec.tracing.ops_support import Args, Handler, Kwargs, Unreadable, argument, elementwise
from engine.spec.tracing.symbolic import Sym

if TYPE_CHECKING:
    from engine.spec.tracing.trace import Trace

Rule = Callable[..., Expr]


def _numbers(rule: Rule) -> Handler:
    """A rule over numbers; truth values count as 1 and 0, and a bool result is a truth value."""

    def handle(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
        def apply(*values: Expr) -> Expr:
            return rule(*(build.as_number(v, trace.kinds) for v in values))

        tensors = [a for a in args if a is not None]
        return elementwise(trace, out, tensors, apply)

    return handle


def _truths(rule: Rule) -> Handler:
    def handle(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
        def apply(*values: Expr) -> Expr:
            return rule(*(build.as_truth(v, trace.kinds) for v in values))

        return elementwise(trace, out, list(args), apply)

    return handle


def _bits(op: str, truths: Rule) -> Handler:
    """`&`, `|`, `^`, `~`: logic on truth values, bits on integers."""

    def handle(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
        if out.dtype == torch.bool:
            return _truths(truths)(trace, args, kwargs, out)  # type: ignore[return-value]
        if op == "~":
            return elementwise(trace, out, list(args), lambda a: build.sub(Num(-1), a))
        return elementwise(
            trace, out, list(args),
            lambda *ab: Binary(op, *(build.as_number(e, trace.kinds) for e in ab)),
        )  # fmt: skip

    return handle


def _scaled_sum(sign: Rule, reverse: bool = False) -> Handler:
    """add, sub, rsub: self +- alpha * other."""

    def handle(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
        alpha = argument(args, kwargs, 2, "alpha", 1)
        by = trace.number(alpha)
        truth = out.dtype == torch.bool

        def apply(a: Expr, b: Expr) -> Expr:
            if truth:
                return build.either(build.as_truth(a, trace.kinds), build.as_truth(b, trace.kinds))
            a, b = build.as_number(a, trace.kinds), build.as_number(b, trace.kinds)
            if reverse:
                a, b = b, a
                return sign(a, b) if alpha == 1 else sign(a, build.mul(b, by))
            return sign(a, b if alpha == 1 else build.mul(b, by))

        return elementwise(trace, out, [args[0], args[1]], apply)

    return handle


def _multiply(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    if out.dtype == torch.bool:
        return _truths(build.both)(trace, args, kwargs, out)  # type: ignore[return-value]
    return _numbers(build.mul)(trace, args, kwargs, out)  # type: ignore[return-value]


def _floor_divide(trace: Trace, a: Expr, b: Expr) -> Expr:
    if "float" not in (kind_of(a, trace.kinds), kind_of(b, trace.kinds)):
        return build.call("floor_div", a, b)
    value = build.value_of(b)
    if kind_of(a, trace.kinds) == "int" and value is not None and float(value).is_integer():
        return build.call("floor_div", a, Num(int(value)))
    return build.call("floor", build.div(a, b))


def _divide(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    mode = kwargs.get("rounding_mode")

    def apply(a: Expr, b: Expr) -> Expr:
        a, b = build.as_number(a, trace.kinds), build.as_number(b, trace.kinds)
        if mode is None:
            return build.div(a, b)
        if mode == "floor":
            return _floor_divide(trace, a, b)
        if "float" not in (kind_of(a, trace.kinds), kind_of(b, trace.kinds)):
            return Binary("//", a, b)
        raise Unreadable

    return elementwise(trace, out, [args[0], args[1]], apply)


def _floor_divided(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    return elementwise(trace, out, [args[0], args[1]], lambda a, b: _floor_divide(trace, a, b))


def _remainder(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    def apply(a: Expr, b: Expr) -> Expr:
        if "float" not in (kind_of(a, trace.kinds), kind_of(b, trace.kinds)):
            return build.call("floor_mod", a, b)
        return build.sub(a, build.mul(b, _floor_divide(trace, a, b)))

    return elementwise(trace, out, [args[0], args[1]], apply)


def _power(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    return _numbers(build.power)(trace, args[:2], kwargs, out)  # type: ignore[return-value]


def _clamp(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    low = argument(args, kwargs, 1, "min")
    high = argument(args, kwargs, 2, "max")
    present = [v for v in (low, high) if v is not None]

    def apply(a: Expr, *limits: Expr) -> Expr:
        queue = list(limits)
        if low is not None:
            a = build.call("max", a, queue.pop(0))
        if high is not None:
            a = build.call("min", a, queue.pop(0))
        return a

    return elementwise(trace, out, [args[0], *present], apply)


def _where(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    if len(args) != 3:
        raise Unreadable

    def apply(c: Expr, a: Expr, b: Expr) -> Expr:
        if out.dtype != torch.bool:
            a, b = build.as_number(a, trace.kinds), build.as_number(b, trace.kinds)
        return build.select(build.as_truth(c, trace.kinds), a, b)

    return elementwise(trace, out, list(args), apply)


def _masked_fill(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    tensor, mask, value = args[0], args[1], argument(args, kwargs, 2, "value")

    def apply(a: Expr, m: Expr, v: Expr) -> Expr:
        if out.dtype == torch.bool:
            v = build.as_truth(v, trace.kinds)
        return build.select(build.as_truth(m, trace.kinds), v, a)

    return elementwise(trace, out, [tensor, mask, value], apply)


def _copy(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    """clone, _to_copy: the same values, in the kind of the result."""
    return elementwise(trace, out, [args[0]], _cast(trace, args[0], out))


def _copied(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    """copy_(self, src)."""
    return elementwise(trace, out, [args[1]], _cast(trace, args[1], out))


def _filled(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    source = argument(args, kwargs, 1, "value")
    return elementwise(trace, out, [source], _cast(trace, source, out))


def _zeroed(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    return elementwise(trace, out, [0], _cast(trace, 0, out))


def _cast(trace: Trace, source: Any, out: Any) -> Rule:
    def apply(a: Expr) -> Expr:
        if out.dtype == torch.bool:
            return build.as_truth(a, trace.kinds)
        a = build.as_number(a, trace.kinds)
        if not out.dtype.is_floating_point and kind_of(a, trace.kinds) == "float":
            if isinstance(source, torch.Tensor) and not trace.sym(source).deps:
                # A rounded formula turns over at the last bit: constants count by their values.
                raise Unreadable
            return build.call("int", a)
        value = build.value_of(a)
        if value is not None and out.dtype.is_floating_point:
            return Num(float(value))
        return a

    return apply


def _addcmul(op: Rule) -> Handler:
    def handle(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
        value = Num(kwargs.get("value", 1))
        return elementwise(
            trace, out, list(args[:3]),
            lambda a, b, c: build.add(a, build.mul(value, op(b, c))),
        )  # fmt: skip

    return handle


def _lerp(a: Expr, b: Expr, w: Expr) -> Expr:
    return build.add(a, build.mul(w, build.sub(b, a)))


def _gelu(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    if kwargs.get("approximate", "none") == "tanh":

        def apply(x: Expr) -> Expr:
            cube = build.mul(x, build.mul(x, x))
            inner = build.mul(
                Num(math.sqrt(2 / math.pi)), build.add(x, build.mul(Num(0.044715), cube))
            )
            return build.mul(build.mul(Num(0.5), x), build.add(Num(1.0), Call("tanh", (inner,))))
    else:

        def apply(x: Expr) -> Expr:
            inner = Call("erf", (build.div(x, Num(math.sqrt(2.0))),))
            return build.mul(build.mul(Num(0.5), x), build.add(Num(1.0), inner))

    return elementwise(trace, out, [args[0]], apply)


def _softplus(x: Expr) -> Expr:
    return build.call("log", build.add(Num(1.0), build.call("exp", x)))


def _log_sigmoid(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> list[Sym | None]:
    """(log sigmoid, a buffer for the backward pass)."""
    value = elementwise(trace, out[0], [args[0]], lambda a: build.neg(_softplus(build.neg(a))))
    return [value, None]


def _function(name: str) -> Handler:
    return _numbers(lambda a: build.call(name, a))


def _comparison(op: str) -> Handler:
    def handle(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
        def apply(a: Expr, b: Expr) -> Expr:
            if kind_of(a, trace.kinds) == "bool" == kind_of(b, trace.kinds) and op in ("==", "!="):
                return (
                    build.select(b, a, build.negate(a))
                    if op == "=="
                    else build.select(b, build.negate(a), a)
                )
            return build.compare(
                op, build.as_number(a, trace.kinds), build.as_number(b, trace.kinds)
            )

        return elementwise(trace, out, list(args[:2]), apply)

    return handle


def _not_finite(kind: str) -> Handler:
    def handle(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
        def apply(a: Expr) -> Expr:
            if kind == "isnan":
                return Call("isnan", (a,))
            low = build.compare("==", a, Num(-math.inf))
            high = build.compare("==", a, Num(math.inf))
            return {"isneginf": low, "isposinf": high, "isinf": build.either(low, high)}[kind]

        return elementwise(trace, out, [args[0]], apply)

    return handle


def _nan_to_num(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    return elementwise(trace, out, [args[0]], lambda a: Call("nan_to_num", (a,)))


def _isfinite(a: Expr) -> Expr:
    return build.compare("<", build.call("abs", a), Num(math.inf))


def _relu(a: Expr) -> Expr:
    return build.call("max", a, Num(0.0))


def _silu(a: Expr) -> Expr:
    return build.mul(a, build.call("sigmoid", a))


def _sign(a: Expr) -> Expr:
    return build.select(build.compare(">", a, Num(0)), Num(1), build.select(
        build.compare("<", a, Num(0)), Num(-1), Num(0)))  # fmt: skip


def _xor(a: Expr, b: Expr) -> Expr:
    return build.select(b, build.negate(a), a)


def _maximum(a: Expr, b: Expr) -> Expr:
    return build.call("max", a, b)


def _minimum(a: Expr, b: Expr) -> Expr:
    return build.call("min", a, b)


def _trunc(a: Expr) -> Expr:
    return build.call("int", a)


ELEMENTWISE: dict[str, Handler] = {
    "add": _scaled_sum(build.add),
    "sub": _scaled_sum(build.sub),
    "rsub": _scaled_sum(build.sub, reverse=True),
    "mul": _multiply,
    "div": _divide,
    "floor_divide": _floor_divided,
    "remainder": _remainder,
    "pow": _power,
    "square": _numbers(lambda a: build.mul(a, a)),
    "neg": _numbers(build.neg),
    "reciprocal": _numbers(lambda a: build.div(Num(1.0), a)),
    "addcmul": _addcmul(build.mul),
    "addcdiv": _addcmul(build.div),
    "lerp": _numbers(_lerp),
    **{name: _function(name) for name in (
        "exp", "exp2", "log", "log2", "tanh", "sigmoid", "erf", "sqrt", "rsqrt", "abs", "floor",
        "ceil", "sin", "cos",
    )},
    "expm1": _numbers(lambda a: build.sub(build.call("exp", a), Num(1.0))),
    "log1p": _numbers(lambda a: build.call("log", build.add(Num(1.0), a))),
    "trunc": _numbers(_trunc),
    "sign": _numbers(_sign),
    "relu": _numbers(_relu),
    "silu": _numbers(_silu),
    "gelu": _gelu,
    "softplus": _numbers(_softplus),
    "log_sigmoid_forward": _log_sigmoid,
    "maximum": _numbers(_maximum),
    "minimum": _numbers(_minimum),
    "fmax": _numbers(_maximum),
    "fmin": _numbers(_minimum),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda t, a, k, o: _clamp(t, (a[0], None, a[1]), {}, o),
    "hardtanh": _clamp,
    "where": _where,
    "masked_fill": _masked_fill,
    "eq": _comparison("=="), "ne": _comparison("!="), "lt": _comparison("<"),
    "le": _comparison("<="), "gt": _comparison(">"), "ge": _comparison(">="),
    "logical_and": _truths(build.both),
    "logical_or": _truths(build.either),
    "logical_xor": _truths(_xor),
    "logical_not": _truths(build.negate),
    "bitwise_and": _bits("&", build.both), "__and__": _bits("&", build.both),
    "bitwise_or": _bits("|", build.either), "__or__": _bits("|", build.either),
    "bitwise_xor": _bits("^", _xor), "__xor__": _bits("^", _xor),
    "bitwise_not": _bits("~", build.negate),
    "isnan": _not_finite("isnan"), "isinf": _not_finite("isinf"),
    "isneginf": _not_finite("isneginf"), "isposinf": _not_finite("isposinf"),
    "isfinite": _numbers(_isfinite),
    "nan_to_num": _nan_to_num,
    "clone": _copy, "_to_copy": _copy, "contiguous": _copy,
    "copy": _copied, "fill": _filled, "zero": _zeroed,
}  # fmt: skip
