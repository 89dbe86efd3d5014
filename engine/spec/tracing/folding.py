"""Which constants of a trace are formulas and which are tables.

What reads no q, k or v is known by its values, whatever ops made it. A formula is better where
one size's formula is every size's; else the value itself becomes a table that the spec's own code
builds again before a launch (`engine.spec.readings.derived_inputs`). A table is cut where it is
smallest: relative positions by the difference of row and key, not for each pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import torch

from engine.cuir.nodes import Call, Expr, Index, Name, Num, walk_expr
from engine.scalar_algebra.rewrite import contains
from engine.spec.expressions import build
from engine.spec.tracing.symbolic import Sym

if TYPE_CHECKING:
    from engine.spec.tracing.trace import Trace

DIFFERENCE = "by difference"
SUMS = frozenset((
    "sum", "mean", "amax", "amin", "max", "min", "prod", "mm", "bmm", "mv", "dot", "any", "all",
    "logsumexp", "_softmax",
))  # fmt: skip


class Tables(Enum):
    """What becomes a table, beside what no rule reads."""

    FORMULAS = "formulas"  # nothing more
    LATE = "late"  # sums over constants, and constants where they meet a float input
    EARLY = "early"  # vectors of floats too, where they meet another dimension
    # Every float that no input gives, where it meets one; sums over inputs other than q, k and v;
    # and what Python decides by their values.
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Place:
    """A constant where it meets a float input: which one, which of its dimensions vary, and
    whether the two of them only by their difference."""

    line: int | None
    count: int
    tables: Tables
    dims: tuple[int, ...]
    difference: bool

    @property
    def base(self) -> str:
        return f"{self.line}:constant:{self.count}:"

    @property
    def key(self) -> str:
        dims = ".".join(map(str, self.dims))
        return f"{self.base}{self.tables.value}:{dims}{f':{DIFFERENCE}' * self.difference}"


def tables_of(key: str) -> Tables:
    """How the trace was made that a derived input's key is from."""
    return next((t for t in Tables if f":{t.value}" in key), Tables.FORMULAS)


def cut(value: torch.Tensor, key: str) -> torch.Tensor | None:
    """The table that `key` asks for in a constant; None where it varies by more than that."""
    _, _, dims = key.partition(f"{tables_of(key).value}:")
    places, _, by = dims.partition(":")
    kept = [int(d) for d in places.split(".") if d]
    for d in reversed(range(value.dim())):
        if d not in kept:
            value = value.select(d, 0)
    return along_difference(value) if by == DIFFERENCE else value.clone()


def along_difference(value: torch.Tensor) -> torch.Tensor | None:
    """t with value[a, b] = t[b - a + rows - 1]; None where no such t exists."""
    rows, columns = value.shape
    if not rows or not columns:
        return None
    line = torch.cat((value[:, 0].flip(0), value[0, 1:]))
    place = torch.arange(columns) - torch.arange(rows)[:, None] + rows - 1
    same = line[place]
    equal = (same == value) | (same != same) & (value != value)
    return line if bool(equal.all()) else None


def folded(trace: Trace, tensor: torch.Tensor, sym: Sym, line: int | None, *, meets: str) -> Sym:
    """A constant among the operands of an op: its formula, or a table of its values.

    `meets` is what the op brings it together with: a "float" input, "an input" of which every float
    becomes a table, other "dimensions", or "nothing" new. It is counted in any case, so that a
    table is found again at other sizes.
    """
    count = trace.count(line, "constant")
    if trace.wanted:
        base = f"{line}:constant:{count}:"
        for key in trace.wanted:
            if key.startswith(base):
                trace.capture(key, cut(tensor.detach(), key))
        return sym
    if meets == "nothing":
        return sym
    probes = tuple(build.probe(n) for n in range(len(sym.shape)))
    expr = sym.read(probes)
    dims = tuple(n for n, probe in enumerate(probes) if contains(expr, probe))
    if not dims or isinstance(expr, Index):
        return sym
    value = tensor.detach()
    for d in reversed(range(value.dim())):
        if d not in dims:
            value = value.select(d, 0)
    differences = along_difference(value) if len(dims) == 2 else None
    rank = len(dims) if differences is None else 1
    if meets == "an input":
        better = tensor.dtype.is_floating_point
    elif meets == "dimensions":
        better = rank == 1 and tensor.dtype.is_floating_point
    else:
        better = _better(trace, expr, rank)
    if not better:
        return sym
    place = Place(line, count, trace.tables, dims, differences is not None)
    table = value if differences is None else differences
    leaf = trace.leaf(table, "a constant", frozenset(), sym.line or line, place.key)

    def read(index: tuple[Expr, ...]) -> Expr:
        own = tuple(index[d] for d in dims)
        if differences is not None:
            own = (build.add(build.sub(own[1], own[0]), Num(value.shape[0] - 1)),)
        return leaf.read(own)

    return Sym(sym.shape, read, frozenset(), line)


def is_of_angle(expr: Expr) -> bool:
    """A sine or cosine: many instructions for each element, and far from exact at large angles."""
    return isinstance(expr, Call) and expr.fn in ("sin", "cos")


def _better(trace: Trace, expr: Expr, rank: int) -> bool:
    """Whether a table of `rank` dimensions is better than a formula: that sums up over constants,
    is of angles, or reads tables itself that are no smaller."""
    if any(build.is_reduction(e) or is_of_angle(e) for e in walk_expr(expr)):
        return True
    read = [
        len(e.index) for e in walk_expr(expr)
        if isinstance(e, Index) and isinstance(e.base, Name) and e.base.id in trace.leaves
    ]  # fmt: skip
    return rank <= max(read, default=0)
