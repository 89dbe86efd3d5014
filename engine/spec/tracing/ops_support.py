"""What the op handlers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from engine.cuir.nodes import Expr
from engine.spec.tracing.symbolic import Indices, Sym

if TYPE_CHECKING:
    from engine.spec.tracing.trace import Trace

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[["Trace", Args, Kwargs, Any], "Sym | list[Sym | None] | None"]


class Unreadable(Exception):
    """A use of an op that its handler does not read; the result is known by its values only."""


def operand(trace: Trace, value: Any) -> Sym:
    """A tensor's twin, or a number as a tensor without dimensions."""
    if isinstance(value, torch.Tensor):
        return trace.sym(value)
    if isinstance(value, (bool, int, float)):
        number = trace.number(value)
        return Sym((), lambda index: number, frozenset())
    raise Unreadable


def argument(args: Args, kwargs: Kwargs, position: int, name: str, default: Any = None) -> Any:
    if position < len(args):
        return args[position]
    return kwargs.get(name, default)


def elementwise(
    trace: Trace, out: torch.Tensor, operands: list[Any], rule: Callable[..., Expr]
) -> Sym:
    """`rule` applied to the operands' elements, broadcast to the shape of `out`."""
    syms = [operand(trace, o) for o in operands]

    def read(index: Indices) -> Expr:
        return rule(*(s.broadcast(index) for s in syms))

    deps: frozenset[str] = frozenset().union(*(s.deps for s in syms))
    return Sym(tuple(out.shape), read, deps)


def dims_of(dim: Any, rank: int) -> list[int]:
    if dim is None:
        return list(range(rank))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return sorted(d % rank for d in dims) if dims else list(range(rank))
