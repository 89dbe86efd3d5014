"""Reductions, norms and matmuls: expressions with bound variables (`sum_over`, `max_over`, ...)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.cuir.nodes import Expr, Name, Num
from engine.spec.expressions import build
from engine.spec.tracing.ops_support import Args, Handler, Kwargs, Unreadable, argument, dims_of
from engine.spec.tracing.symbolic import Indices, Sym

if TYPE_CHECKING:
    from engine.spec.tracing.trace import Trace

Body = Callable[[Expr], Expr]


def reduced(
    trace: Trace, fn: str, tensor: Any, dim: Any, keepdim: bool, out: Any,
    finish: Body | None = None, element: Body | None = None,
) -> Sym:  # fmt: skip
    """`fn` of a tensor's elements over some dimensions."""
    sym = trace.sym(tensor)
    dims = dims_of(dim, len(sym.shape))
    wide = [d for d in dims if sym.shape[d] != 1]
    names = {d: trace.variable(sym.shape[d]) for d in wide}

    def read(index: Indices) -> Expr:
        rest = iter(index)
        own: list[Expr] = []
        for d in range(len(sym.shape)):
            if d in dims:
                if keepdim:
                    next(rest)
                own.append(Name(names[d]) if d in names else build.ZERO)
            else:
                own.append(next(rest))
        value = sym.read(tuple(own))
        if element is not None:
            value = element(value)
        for d in reversed(wide):
            value = build.reduction(fn, names[d], sym.shape[d], value)
        return value if finish is None else finish(value)

    return Sym(tuple(out.shape), read, sym.deps)


def _sum(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    dim = argument(args, kwargs, 1, "dim")
    keepdim = argument(args, kwargs, 2, "keepdim", False)
    return reduced(trace, "sum_over", args[0], dim, keepdim, out,
                    element=lambda e: build.as_number(e, trace.kinds))  # fmt: skip


def _mean(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    dim = argument(args, kwargs, 1, "dim")
    keepdim = argument(args, kwargs, 2, "keepdim", False)
    count = args[0].numel() // max(1, out.numel())
    return reduced(
        trace, "sum_over", args[0], dim, keepdim, out, lambda v: build.div(v, Num(count))
    )


def _max(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Any:
    if isinstance(out, tuple):  # values and positions
        dim = argument(args, kwargs, 1, "dim")
        keepdim = argument(args, kwargs, 2, "keepdim", False)
        return [reduced(trace, "max_over", args[0], dim, keepdim, out[0]), None]
    if len(args) > 1:
        raise Unreadable
    return reduced(trace, "max_over", args[0], None, False, out)


def _amax(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    dim = argument(args, kwargs, 1, "dim", [])
    return reduced(
        trace, "max_over", args[0], dim, argument(args, kwargs, 2, "keepdim", False), out
    )


def _amin(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    dim = argument(args, kwargs, 1, "dim", [])
    keepdim = argument(args, kwargs, 2, "keepdim", False)
    return reduced(
        trace, "max_over", args[0], dim, keepdim, out, finish=build.neg, element=build.neg
    )


def _quantified(fn: str) -> Handler:
    def handle(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
        dim = argument(args, kwargs, 1, "dim")
        keepdim = argument(args, kwargs, 2, "keepdim", False)
        return reduced(trace, fn, args[0], dim, keepdim, out,
                        element=lambda e: build.as_truth(e, trace.kinds))  # fmt: skip

    return handle


def _logsumexp(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    keepdim = argument(args, kwargs, 2, "keepdim", False)
    return reduced(
        trace, "sum_over", args[0], args[1], keepdim, out,
        finish=lambda v: build.call("log", v), element=lambda e: build.call("exp", e),
    )  # fmt: skip


def _softmax(log: bool) -> Handler:
    """exp(s) / sum exp(s): the subtracted row maximum cancels, so it is not written."""

    def handle(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
        sym = trace.sym(args[0])
        dim = args[1] % max(1, len(sym.shape))
        extent = sym.shape[dim]
        name = trace.variable(extent)

        def read(index: Indices) -> Expr:
            inner = build.call("exp", sym.read((*index[:dim], Name(name), *index[dim + 1 :])))
            total = build.reduction("sum_over", name, extent, inner)
            if log:
                return build.sub(sym.read(index), build.call("log", total))
            return build.div(build.call("exp", sym.read(index)), total)

        return Sym(tuple(out.shape), read, sym.deps)

    return handle


def _product(trace: Trace, a: Any, b: Any, out_shape: tuple[int, ...]) -> Sym:
    """a[..., i, r] * b[..., r, j] summed over r, for equal leading dimensions."""
    left, right = trace.sym(a), trace.sym(b)
    extent = left.shape[-1]
    name = trace.variable(extent)

    def read(index: Indices) -> Expr:
        r: Expr = Name(name) if extent != 1 else build.ZERO
        lead = index[: len(left.shape) - 2]
        x = left.read((*lead, index[len(lead)], r))
        y = right.read((*lead, r, index[-1]))
        value = build.mul(build.as_number(x, trace.kinds), build.as_number(y, trace.kinds))
        return value if extent == 1 else build.reduction("sum_over", name, extent, value)

    return Sym(out_shape, read, left.deps | right.deps)


def _matmul(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    return _product(trace, args[0], args[1], tuple(out.shape))


def _vector(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    """mv and dot."""
    left, right = trace.sym(args[0]), trace.sym(args[1])
    extent = left.shape[-1]
    name = trace.variable(extent)

    def read(index: Indices) -> Expr:
        value = build.mul(left.read((*index, Name(name))), right.read((Name(name),)))
        return build.reduction("sum_over", name, extent, value)

    return Sym(tuple(out.shape), read, left.deps | right.deps)


def _added_matmul(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    """addmm and baddbmm: beta * input + alpha * (a @ b)."""
    beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
    base, product = trace.sym(args[0]), _product(trace, args[1], args[2], tuple(out.shape))

    def read(index: Indices) -> Expr:
        value = build.mul(product.read(index), Num(alpha))
        if beta == 0:
            return value
        return build.add(build.mul(base.broadcast(index), Num(beta)), value)

    return Sym(tuple(out.shape), read, product.deps | (base.deps if beta else frozenset()))


REDUCING: dict[str, Handler] = {
    "sum": _sum, "mean": _mean, "max": _max, "amax": _amax, "amin": _amin,
    "any": _quantified("any_over"), "all": _quantified("all_over"),
    "logsumexp": _logsumexp, "_softmax": _softmax(False), "_log_softmax": _softmax(True),
    "mm": _matmul, "bmm": _matmul, "mv": _vector, "dot": _vector,
    "addmm": _added_matmul, "baddbmm": _added_matmul,
}  # fmt: skip


if TYPE_CHECKING:
    from engine.spec.tracing.trace import Trace


def _square(e: Expr) -> Expr:
    return build.mul(e, e)


def _length(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    """The 1-, 2- and maximum norms over some dimensions."""
    order = argument(args, kwargs, 1, "ord", 2)
    dim = argument(args, kwargs, 2, "dim")
    keepdim = argument(args, kwargs, 3, "keepdim", False)
    if order not in (1, 2, math.inf):
        raise Unreadable
    return reduced(
        trace, "max_over" if order == math.inf else "sum_over", args[0], dim, keepdim, out,
        finish=(lambda v: build.call("sqrt", v)) if order == 2 else None,
        element=_square if order == 2 else (lambda e: build.call("abs", e)),
    )  # fmt: skip


def _layer_norm(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> list[Sym | None]:
    """native_layer_norm: (x - mean) / sqrt(variance + eps) * weight + bias over the last
    dimensions, and two results that only a backward pass reads."""
    sym = trace.sym(args[0])
    shape, weight, bias, eps = args[1:5]
    first = len(sym.shape) - len(shape)
    count = Num(math.prod(shape))
    of_mean, of_variance = ([trace.variable(n) for n in shape] for _ in range(2))

    def over(names: list[str], lead: Indices, element: Any) -> Expr:
        """The mean of `element` over the last dimensions."""
        value: Expr = element((*lead, *map(Name, names)))
        for name, extent in reversed(list(zip(names, shape, strict=True))):
            value = build.reduction("sum_over", name, extent, value)
        return build.div(value, count)

    def read(index: Indices) -> Expr:
        lead = index[:first]
        mean = over(of_mean, lead, sym.read)
        variance = over(of_variance, lead, lambda at: _square(build.sub(sym.read(at), mean)))
        root = build.call("rsqrt", build.add(variance, trace.number(eps)))
        value = build.mul(build.sub(sym.read(index), mean), root)
        if weight is not None:
            value = build.mul(value, trace.sym(weight).read(index[first:]))
        return value if bias is None else build.add(value, trace.sym(bias).read(index[first:]))

    deps = sym.deps.union(*(trace.sym(t).deps for t in (weight, bias) if t is not None))
    return [Sym(tuple(out[0].shape), read, deps), None, None]


NORMS: dict[str, Handler] = {"linalg_vector_norm": _length, "native_layer_norm": _layer_norm}
