"""The recipe: what a spec asks of an attention kernel, read from its traced graph.

All expressions are CuIR expressions (engine.cuir.nodes) over these free names:
`x` (the dot product <q_i, k_j> of what q and k become, before any scale), `s` (the finished score,
in `weight` only), `o` and `d` (an element of the normalised output and its column, in `output` and
`Other.value` only), `o2` (an element of another attention's, in `Other.value` only), `b`, `h`, `i`,
`j` (batch, query head, query row, key row), the sizes `B`, `Hq`, `Hkv`, `Nq`, `Nk`, `D`, `Dv`, and
`Index(Name(input), ...)` loads of extra inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from engine.cuir.nodes import Call, Expr, Lambda, Name, names_in

AXES = (("B",), ("Hq", "Hkv"), ("Nq", "Nk"), ("D", "Dv"))
"""The dimensions of q, k, v and the output in the kernels' order, by their names."""
Role = Literal["q", "k", "v", "extra"]
EmptyRows = Literal["never", "nan", "mean", "zero", "spec-defined"]
Source = Literal["eager", "flex"]
LseBase = Literal["e", "2"]
OUTPUT, OTHER = Name("o"), Name("o2")
"""The normalised output's own element, and that of another attention."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input of the spec.

    `dims` are size names ("B", "Hq", "Nq", "D", ...) or "1" for a broadcast dimension, in the
    tensor's own order; empty for a scalar. `dtype` is "T" (the kernel's element type), "f32",
    "i32", "bool" or "i64".

    A derived input is no parameter of the spec: it is a table that the spec builds in ways that no
    expression says (a Python loop, a cumulative sum). Its values come from running the spec's own
    code, see `engine.spec.readings.derived_inputs`; `derive` says which value of which line.
    """

    name: str
    role: Role
    dtype: str
    dims: tuple[str, ...] = ()
    derive: str | None = None
    # The least and the greatest value of an integer, where the spec declares them: sizes may occur.
    between: tuple[str, str] | None = None
    # Of a table that the launch fills before the attention (rules.launches.position_tables): what
    # an element is, over b, h, its row and its place. No spec has one.
    made: Expr | None = None


@dataclass(frozen=True, slots=True)
class Other:
    """Another attention of the same score, mask, weights and v, and what both become together.

    `q` and `k` are the inputs that it multiplies, of q's and k's dimensions in any order; `k` may
    be that of the first. `value` is an expression over the elements `o` of the one and `o2` of the
    other one, both normalised.
    """

    q: str
    k: str
    value: Expr


def sums_over_heads(expr: Expr) -> bool:
    """Whether it is a sum over all heads, which is one of sums over the columns of each."""
    match expr:
        case Call("sum_over", (Lambda(_, Call("sum_over")), _)):
            return True
    return False


def places_of(dims: Sequence[str]) -> list[int | None]:
    """Where a tensor of the dimensions `dims` has those of `AXES`. The columns of a part of q or k
    are a number."""
    found = [next((n for n, d in enumerate(dims) if d in names), None) for names in AXES]
    if found[-1] is None:
        found[-1] = next((n for n, d in enumerate(dims) if d.isdigit() and d != "1"), None)
    return found


def in_kernel_order(dims: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The dimensions of q, k, v or the output in the kernels' order; `names` are what those are
    called that the tensor lacks."""
    places = zip(places_of(dims), names, strict=True)
    return tuple(name if place is None else dims[place] for place, name in places)


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing the spec asks for, in plain words, with the spec lines that caused it (1-based)."""

    kind: str  # scale, softcap, bias, mask, heads, normaliser, layout, empty_rows, ...
    words: str
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the kernel must compute.

    o[b, h, i] = sum_j w(i, j) V[b, kv_head(h), j] / norm(i), with s(i, j) = score and only kept j.
    Softmax (`weight is None`): w = exp(s), norm = sum_j w + exp(sink), LSE = ln(norm). The sink is
    a logit over b, h and i that takes part in the sum and has no value (attention sinks; 0 is the
    softmax that adds one).
    Otherwise w = weight(s), norm = 1, and there is no LSE.
    With an `other` attention o is what its value makes of both. O[b, h, i, d] = output, an
    expression over o[b, h, i, d].
    """

    source: Source
    inputs: tuple[Input, ...]
    score: Expr
    keep: Expr
    weight: Expr | None
    kv_head: Expr
    output_dims: tuple[str, ...]  # heads and columns apart also where the spec merges them
    empty_rows: EmptyRows
    sink: Expr | None = None
    # What a softmax's weight is multiplied by after its row is normalised, over b, h, i and j.
    late: Expr | None = None
    output: Expr = OUTPUT
    # The base of the log-sum-exp that the spec returns as its second output; None: it returns none.
    lse: LseBase | None = None
    lse_dims: tuple[str, ...] = ("B", "Hq", "Nq")  # in the spec's order
    merged: bool = False  # whether the spec returns the last two of `output_dims` as one dimension
    # Sizes that the spec declares equal by giving them one name, such as Nq == Nk.
    constraints: tuple[Expr, ...] = ()
    clauses: tuple[Clause, ...] = field(default=())
    # What an element of q becomes before the product, over b, h, i and its column dd; of k, over b,
    # j, dd and its own head h. Loads of q and k have the dimensions of the inputs, in their order;
    # `sum_over(lambda c: ..., n)` and `max_over` run over columns, a sum of sums over heads and the
    # columns of each (`sums_over_heads`). None: the element itself. Where
    # D columns are joined from parts, the input that is q or k is the first part alone, with the
    # number of its own columns for D.
    q: Expr | None = None
    k: Expr | None = None
    other: Other | None = None

    def expressions(self) -> tuple[Expr, ...]:
        """What is computed per element or per row."""
        parts = (self.q, self.k, self.score, self.keep, self.weight, self.late, self.sink,
                 self.output)  # fmt: skip
        tables = (i.made for i in self.inputs)
        others = () if self.other is None else (self.other.value,)
        return tuple(part for part in (*parts, *others, *tables) if part is not None)

    def mapped(self, change: Callable[[Expr], Expr]) -> Recipe:
        """The recipe with `change` made to each of `expressions` and to the map of heads."""

        def optional(expr: Expr | None) -> Expr | None:
            return None if expr is None else change(expr)

        return replace(
            self,
            inputs=tuple(replace(i, made=optional(i.made)) for i in self.inputs),
            q=optional(self.q),
            k=optional(self.k),
            score=change(self.score),
            keep=change(self.keep),
            weight=optional(self.weight),
            kv_head=change(self.kv_head),
            late=optional(self.late),
            sink=optional(self.sink),
            output=change(self.output),
            other=self.other and replace(self.other, value=change(self.other.value)),
        )

    @property
    def returned_dims(self) -> tuple[str, ...]:
        """`output_dims` as the spec returns them."""
        if not self.merged:
            return self.output_dims
        return (*self.output_dims[:-2], "*".join(self.output_dims[-2:]))

    @property
    def changes_operands(self) -> bool:
        """Whether something happens to q or k before their product."""
        return self.q is not None or self.k is not None

    @property
    def changes_output(self) -> bool:
        """Whether something happens to O after it is normalised."""
        return self.output != OUTPUT or self.other is not None

    def alone(self, other: bool = False) -> Recipe:
        """One attention's own recipe, of the two that are combined: its normalised output."""
        inputs = self.inputs
        if other and self.other is not None:
            roles: dict[str, Role] = {i.name: i.role for i in inputs if i.role == "v"}
            roles |= {self.other.q: "q", self.other.k: "k"}
            inputs = tuple(replace(i, role=roles.get(i.name, "extra")) for i in inputs)
        return replace(self, inputs=inputs, output=OUTPUT, other=None)

    def extra(self) -> tuple[Input, ...]:
        """The extra inputs that the kernel reads; others only go into derived tables."""
        parts = (*self.expressions(), self.kv_head)
        used = set(names_in(*parts))
        used |= set() if self.other is None else {self.other.q, self.other.k}
        return tuple(i for i in self.inputs if i.role == "extra" and i.name in used)


def describe(recipe: Recipe) -> list[str]:
    """One line per clause, with the spec's lines that caused it."""
    return [_line(clause) for clause in recipe.clauses]


def _line(clause: Clause) -> str:
    if not clause.lines:
        return clause.words
    return f"{clause.words} ({at_lines(clause.lines)})"


def at_lines(lines: Sequence[int]) -> str:
    """Lines by number, `line 3` or `lines 3, 5`."""
    return f"line{'s' * (len(lines) != 1)} {', '.join(map(str, lines))}"
