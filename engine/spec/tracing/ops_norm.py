"""Norms as ATen has them: a vector's length, and layer norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from engine.cuir.nodes import Expr, Name, Num
from engine.spec.expressions import build
from engine.spec.tracing.ops_reduce import reduced
from engine.spec.tracing.ops_support import Args, Handler, Kwargs, Unreadable, argument
from engine.spec.tracing.symbolic import Indices, Sym

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
