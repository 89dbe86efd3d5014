"""The recipe: what a spec asks of an attention kernel, read from its traced graph.

All expressions are CuIR expressions (engine.cuir.nodes) over these free names:
`x` (the dot product <q_i, k_j> of what q and k become, before any scale), `s` (the finished score,
in `weight` only), `b`, `h`, `i`, `j` (batch, query head, query row, key row), the sizes `B`, `Hq`,
`Hkv`, `Nq`, `Nk`, `D`, `Dv`, and `Index(Name(input), ...)` loads of extra inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.cuir.nodes import Expr, Name, walk_expr

Role = Literal["q", "k", "v", "extra"]
EmptyRows = Literal["never", "nan", "mean", "zero", "spec-defined"]
Source = Literal["eager", "flex"]


@dataclass(frozen=True, slots=True)
class Input:
    """One input of the spec.

    `dims` are size names ("B", "Hq", "Nq", "D", ...) or "1" for a broadcast dimension, in the
    tensor's own order; empty for a scalar. `dtype` is "T" (the kernel's element type), "f32",
    "i32", "bool" or "i64".

    A derived input is no parameter of the spec: it is a table that the spec builds in ways that no
    expression says (a Python loop, a cumulative sum). Its values come from running the spec's own
    code, see `engine.spec.derived`; `derive` says which value of which line.
    """

    name: str
    role: Role
    dtype: str
    dims: tuple[str, ...] = ()
    derive: str | None = None
    # The least and the greatest value of an integer, where the spec declares them: sizes may occur.
    between: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing the spec asks for, in plain words, with the spec lines that caused it (1-based)."""

    kind: str  # scale, softcap, bias, mask, heads, normaliser, layout, empty_rows, ...
    words: str
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the kernel must compute.

    O[b, h, i] = sum_j w(i, j) V[b, kv_head(h), j] / norm(i), with s(i, j) = score and only kept j.
    Softmax (`weight is None`): w = exp(s - max), norm = sum_j w, LSE = max + ln(norm).
    Otherwise w = weight(s), norm = 1, and there is no LSE.
    """

    source: Source
    inputs: tuple[Input, ...]
    score: Expr
    keep: Expr
    weight: Expr | None
    kv_head: Expr
    output_dims: tuple[str, ...]
    empty_rows: EmptyRows
    output_factor: Expr | None = None  # multiplies O per row, e.g. 1 / Nk; None is 1
    # Sizes that the spec declares equal by giving them one name, such as Nq == Nk.
    constraints: tuple[Expr, ...] = ()
    clauses: tuple[Clause, ...] = field(default=())
    # What an element of q becomes before the product, over b, h, i and its column dd; of k, over b,
    # j, dd and its own head h. Loads of q and k have the dimensions of the inputs, in their order;
    # `sum_over(lambda c: ..., n)` and `max_over` run over columns. None: the element itself.
    q: Expr | None = None
    k: Expr | None = None

    def expressions(self) -> tuple[Expr, ...]:
        """What is computed per element or per row."""
        parts = (self.q, self.k, self.score, self.keep, self.weight, self.output_factor)
        return tuple(part for part in parts if part is not None)

    def extra(self) -> tuple[Input, ...]:
        """The extra inputs that the kernel reads; others only go into derived tables."""
        parts = (*self.expressions(), self.kv_head)
        used = {
            e.id
            for part in parts
            for e in walk_expr(part) if isinstance(e, Name)
        }  # fmt: skip
        return tuple(i for i in self.inputs if i.role == "extra" and i.name in used)
