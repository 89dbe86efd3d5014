"""Tensors made from numbers, and reads through index tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from engine.cuir.nodes import Expr, Num
from engine.scalar_algebra.rewrite import FALSE, TRUE
from engine.spec.expressions import build
from engine.spec.tracing.ops_support import Args, Handler, Kwargs, Unreadable, argument
from engine.spec.tracing.symbolic import Indices, Sym, constant

if TYPE_CHECKING:
    from engine.spec.tracing.trace import Trace


def _uniform(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    """zeros, ones, full and their kin: one value everywhere, read off the result."""
    if not out.numel() or out.is_meta:
        return constant(tuple(out.shape), Num(0))
    value = out.reshape(-1)[0].item()
    return constant(tuple(out.shape), trace.number(value))


def _arange(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    if len(args) == 1:
        start, step = 0, kwargs.get("step", 1)
    else:
        start, step = args[0], argument(args, kwargs, 2, "step", 1)
    first, by = trace.number(start), trace.number(step)

    def read(index: Indices) -> Expr:
        value = index[0] if step == 1 else build.mul(index[0], by)
        return value if start == 0 else build.add(value, first)

    return Sym(tuple(out.shape), read, frozenset())


def _eye(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    yes, no = (TRUE, FALSE) if out.dtype == torch.bool else (Num(1), Num(0))
    return Sym(
        tuple(out.shape),
        lambda index: build.select(build.compare("==", index[0], index[1]), yes, no),
        frozenset(),
    )


CREATION: dict[str, Handler] = {
    **dict.fromkeys(
        ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
         "new_full", "scalar_tensor"), _uniform,
    ),
    "arange": _arange, "eye": _eye,
}  # fmt: skip


# --- gathering -----------------------------------------------------------------------------------


def _wrapped(size: int, expr: Expr) -> Expr:
    """Python's negative position, where it is written as one.

    A computed index that turns negative (`doc[q_idx + Nk - Nq]` for the rows before the first key)
    stays as it is: such rows are masked, and a load outside its tensor gives 0. If they are not,
    the recipe differs from the spec and is refused.
    """
    value = build.value_of(expr)
    return Num(int(value) + size) if value is not None and value < 0 else expr


def _indexed(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    """x[i0, :, i2]: index tensors broadcast together; apart, their dimensions come first."""
    tensor, positions = args[0], list(args[1])
    positions += [None] * (tensor.dim() - len(positions))
    given = [p for p in positions if p is not None]
    if any(p.dtype in (torch.bool, torch.uint8) for p in given):
        raise Unreadable
    sym = trace.sym(tensor)
    syms = [None if p is None else trace.sym(p) for p in positions]
    rank = max((p.dim() for p in given), default=0)
    places = [n for n, p in enumerate(positions) if p is not None]
    together = places == list(range(places[0], places[-1] + 1))
    first = places[0] if together else 0

    def read(index: Indices) -> Expr:
        shared = index[first : first + rank]
        rest = iter((*index[:first], *index[first + rank :]))
        own: list[Expr] = []
        for n, part in enumerate(syms):
            if part is None:
                own.append(next(rest))
            else:
                own.append(_wrapped(tensor.shape[n], part.broadcast(shared)))
        return sym.read(tuple(own))

    deps = sym.deps.union(*(s.deps for s in syms if s is not None))
    return Sym(tuple(out.shape), read, deps)


def _index_select(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    tensor, dim, positions = args[0], args[1] % max(1, args[0].dim()), args[2]
    sym, at = trace.sym(tensor), trace.sym(positions)

    def read(index: Indices) -> Expr:
        place = at.read((index[dim],) if at.shape else ())
        return sym.read((*index[:dim], place, *index[dim + 1 :]))

    return Sym(tuple(out.shape), read, sym.deps | at.deps)


def _gather(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    tensor, dim, positions = args[0], args[1] % args[0].dim(), args[2]
    sym, at = trace.sym(tensor), trace.sym(positions)

    def read(index: Indices) -> Expr:
        return sym.read((*index[:dim], at.read(index), *index[dim + 1 :]))

    return Sym(tuple(out.shape), read, sym.deps | at.deps)


def _embedding(trace: Trace, args: Args, kwargs: Kwargs, out: Any) -> Sym:
    table, at = trace.sym(args[0]), trace.sym(args[1])

    def read(index: Indices) -> Expr:
        return table.read((at.read(index[:-1]), index[-1]))

    return Sym(tuple(out.shape), read, table.deps | at.deps)


GATHERING: dict[str, Handler] = {
    "index": _indexed, "_unsafe_index": _indexed, "index_select": _index_select,
    "gather": _gather, "embedding": _embedding, "take_along_dim": _gather,
}  # fmt: skip
