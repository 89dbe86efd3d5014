"""Symbolic tensors: each traced tensor as a function from index expressions to a scalar expression.

Views are kept as views (a map of indices to the base), so that writing in place through a slice
changes the base, and every later read of any view sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.cuir.nodes import Expr
from engine.spec.expressions import build
from engine.spec.expressions.build import ZERO

if TYPE_CHECKING:
    import torch

Indices = tuple[Expr, ...]
Read = Callable[[Indices], Expr]
Inverse = Callable[[Indices], tuple[Expr, Indices]]


@dataclass(eq=False, slots=True)
class Sym:
    """What a tensor holds: its shape, how to read an element, and the inputs it depends on."""

    shape: tuple[int, ...]
    read_raw: Read
    deps: frozenset[str]
    line: int | None = None
    memo: dict[Indices, Expr] = field(default_factory=dict)

    def read(self, index: Indices) -> Expr:
        if index not in self.memo:
            self.memo[index] = self.read_raw(index)
        return self.memo[index]

    def broadcast(self, index: Indices) -> Expr:
        """Element of this tensor broadcast to a shape of `len(index)` dimensions."""
        skip = len(index) - len(self.shape)
        own = tuple(
            ZERO if extent == 1 else part
            for extent, part in zip(self.shape, index[skip:], strict=True)
        )
        return self.read(own)


@dataclass(eq=False, slots=True)
class View:
    """How a view's indices reach its base, and back (a condition and the view's indices)."""

    base: torch.Tensor
    forward: Callable[[Indices], Indices]
    inverse: Inverse | None


@dataclass(eq=False, slots=True)
class Tracked:
    """One live tensor of the trace: either its own contents or a view of another."""

    tensor: torch.Tensor  # held, so that its id stays its own
    sym: Sym | None
    view: View | None = None


def size_name(dimension: str) -> str:
    """The size of a dimension as a name in a trace; no Python name can clash with it."""
    return f"%size {dimension}"


def is_size_name(name: str) -> bool:
    return name.startswith("%size ")


def constant(shape: tuple[int, ...], value: Expr) -> Sym:
    return Sym(shape, lambda index: value, frozenset())


def groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of dimensions of equal product that a reshape maps onto each other."""
    out: list[tuple[list[int], list[int]]] = []
    a = b = 0
    while a < len(old) or b < len(new):
        left, right = [], []
        product_left = product_right = 1
        if a < len(old):
            left.append(a)
            product_left = old[a]
            a += 1
        if b < len(new):
            right.append(b)
            product_right = new[b]
            b += 1
        while product_left != product_right:
            if (product_left < product_right and a < len(old)) or b >= len(new):
                left.append(a)
                product_left *= old[a]
                a += 1
            else:
                right.append(b)
                product_right *= new[b]
                b += 1
        out.append((left, right))
    return out


def reshape_index(
    index: Indices, source: tuple[int, ...], target: tuple[int, ...], extents: dict[str, int]
) -> Indices:
    """Indices into `target`'s shape become indices into `source`'s, both row-major."""
    out: list[Expr] = [ZERO] * len(source)
    for from_dims, to_dims in groups(source, target):
        wide = [d for d in from_dims if source[d] != 1]
        given = [d for d in to_dims if target[d] != 1]
        if len(wide) == 1 and len(given) == 1:
            out[wide[0]] = index[given[0]]
            continue
        flat: Expr = ZERO
        for d in given:
            flat = build.index_expr(
                build.index_poly(flat).scaled(target[d]) + build.index_poly(index[d])
            )
        for d in reversed(wide[1:]):
            flat, out[d] = build.divmod_index(flat, source[d], extents)
        if wide:
            out[wide[0]] = flat
    return tuple(out)
