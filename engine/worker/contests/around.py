"""What a recipe asks before and after its attention as PyTorch's ops, for rivals that lack it.

It is what a person has today: their own ops on q and k, an attention that somebody else wrote, and
their own ops on its output. They are printed as functions of the inputs with the sizes as numbers,
so that PyTorch's compiler makes one kernel of each; what is made is rounded to the element type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.cuir.nodes import Call, Expr, Index, Lambda, Name, names_in
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.cuir.scalar import evaluate
from engine.spec.python.signature import Signature
from engine.spec.recipes.recipe import OUTPUT, Input, Recipe, sums_over_heads
from engine.worker.contests.flex_source import NotExpressible, Writer, plain_heads
from engine.worker.contests.rivals import Contestant, Problem, Way, environment_of, recipe_of
from engine.worker.contests.ways import python_module

# What of a recipe can stand around an attention, by its name in the registry's needs.
AROUND = frozenset({"before", "output", "head pairing"})
AXES = {
    "q": ("b", "h", "i", "dd"), "k": ("b", "h", "j", "dd"), OUTPUT.id: ("b", "h", "i", "d"),
}  # fmt: skip
EXTENTS = {
    "q": ("B", "Hq", "Nq", "D"), "k": ("B", "Hkv", "Nk", "D"), OUTPUT.id: ("B", "Hq", "Nq", "Dv"),
}  # fmt: skip
FLOATS = ("T", "f16", "bf16", "f32")


@dataclass(frozen=True)
class Around:
    """A problem in two parts: `inside` is what a rival is asked for, on q and k that are ready;
    `ready` gives its inputs, [B, heads, rows, columns], and `changed` what its output becomes."""

    inside: Problem
    ready: Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
    changed: Callable[[Mapping[str, Tensor], Tensor], Tensor]

    def way(self, inner: Way) -> Way:
        """A rival's way of the inner problem, and PyTorch's ops around it."""

        def call(inputs: Mapping[str, Tensor]) -> Tensor:
            return self.changed(inputs, inner.call(self.ready(inputs)))

        return Way(f"{inner.label}, PyTorch's ops around it, compiled", call, inner.uses)


def around(problem: Problem) -> Around:
    """The problem without what happens before and after its attention, and that as compiled ops.

    Query heads that are paired otherwise than in groups get key heads of their own.

    Raises:
        NotExpressible: that has no form here, or the recipe combines two attentions.
    """
    run, recipe, sizes = problem.run, recipe_of(problem.run), problem.sizes
    if recipe.other is not None:
        raise NotExpressible("two attentions are combined, and one call has one")
    made = python_module(around_source(recipe, sizes), "around")
    functions: dict[str, Contestant] = {
        role: torch.compile(getattr(made, f"ready_{role}"), dynamic=False)
        for role, changes in (("q", recipe.q), ("k", recipe.k))
        if changes is not None
    }
    names = {role: run.role[role].name for role in ("q", "k", "v")}
    pairing = None if plain_heads(recipe.kv_head) else _pairing(problem)

    def ready(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        out = dict(inputs)
        for role, name in names.items():
            made = functions.get(role)
            value = run.canonical(inputs, role) if made is None else made(inputs)
            out[name] = value if pairing is None or role == "q" else value[:, pairing]
        return out

    inner = copy(run)
    own_order = tuple(
        Input(i.name, i.role, i.dtype, _order(i.role)) if i.role in names else i
        for i in recipe.inputs
    )
    inner.recipe = replace(
        recipe, inputs=own_order, q=None, k=None, output=OUTPUT, output_dims=_order("q"),
        kv_head=parse_expr("h // (Hq // Hkv)"),
    )  # fmt: skip
    inner.signature = Signature.of(inner.recipe)
    inner.role = {role: inner.signature.role(role) for role in names}
    heads = sizes if pairing is None else {**sizes, "Hkv": sizes["Hq"]}
    changed = getattr(made, "changed", None)
    return Around(
        Problem(inner, ready(problem.inputs), heads, problem.mask), ready,
        (lambda _, o: o) if changed is None else torch.compile(changed, dynamic=False),
    )  # fmt: skip


def _order(role: str) -> tuple[str, ...]:
    return {"q": EXTENTS["q"], "k": EXTENTS["k"], "v": (*EXTENTS["k"][:3], "Dv")}[role]


def _pairing(problem: Problem) -> Tensor:
    """The key head of each query head."""
    known = environment_of(problem.run, problem.inputs, problem.sizes)
    heads = torch.arange(problem.sizes["Hq"], device=problem.run.device)
    value = evaluate(recipe_of(problem.run).kv_head, {**known, "h": heads})
    return torch.as_tensor(value).to(torch.int64)


# --- what goes around as Python source ------------------------------------------------------------


def around_source(recipe: Recipe, sizes: Mapping[str, int]) -> str:
    """A module with `ready_q(inputs)` and `ready_k(inputs)`, [B, heads, rows, D], and
    `changed(inputs, o)`, [B, Hq, Nq, Dv], each where the recipe changes q, k or the output.

    Raises:
        NotExpressible: it changes them by something that has no form here.
    """
    lines = ['"""What goes around the attention of this recipe (generated)."""', "", "import torch"]
    for role, made in (("q", recipe.q), ("k", recipe.k)):
        if made is not None:
            lines += ["", "", *_function(f"ready_{role}(inputs)", recipe, sizes, role, made)]
    if recipe.output != OUTPUT:
        role = OUTPUT.id
        lines += [
            "", "", *_function(f"changed(inputs, {role})", recipe, sizes, role, recipe.output),
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _function(
    head: str, recipe: Recipe, sizes: Mapping[str, int], role: str, made: Expr
) -> list[str]:
    """The function that gives every element of q, k or the output what `made` says."""
    own = (
        role if role == OUTPUT.id else f"t_{next(i.name for i in recipe.inputs if i.role == role)}"
    )
    writer = _Around(recipe, role)
    value = writer.device(made)
    read = names_in(made)
    lines = [f"def {head}:"]
    lines += [
        f'    t_{i.name} = inputs["{i.name}"]'
        for i in recipe.inputs
        if i.name in read or f"t_{i.name}" == own
    ]
    lines += [f"    {name} = {sizes[name]}" for name in sorted(read & sizes.keys())]
    for place, (axis, extent) in enumerate(zip(AXES[role], EXTENTS[role], strict=True)):
        shape = ", ".join("-1" if n == place else "1" for n in range(4))
        lines.append(
            f"    {axis} = torch.arange({sizes[extent]}, device={own}.device).view({shape})"
        )
    lines += [f"    {name} = {text}" for text, name in writer.sums.items()]
    shape = ", ".join(str(sizes[n]) for n in EXTENTS[role])
    lines.append(f"    return ({value}).to({own}.dtype).expand({shape})")
    return lines


class _Around(Writer):
    """Expressions over the columns of rows: sums of them, and loads where an arm that a choice does
    not take reads beside the row."""

    def __init__(self, recipe: Recipe, role: str) -> None:
        tensors = {i.name for i in recipe.inputs if i.dims}
        scalars = {i.name for i in recipe.inputs if not i.dims}
        super().__init__(tensors, scalars, {n: n for n in ("b", "h", "i", "j", "d", "dd")})
        self.given = {*tensors, *scalars, *self.indices, OUTPUT.id}  # all but numbers
        self.floats = {i.name for i in recipe.inputs if i.dtype in FLOATS}
        self.dims = {i.name: i.dims for i in recipe.inputs}
        self.column = AXES[role][-1]
        self.role = role
        self.sums: dict[str, str] = {}  # the name of each sum by its text

    def name(self, id: str) -> str:
        return f"{id}.float()" if id == self.role == OUTPUT.id else super().name(id)

    def device(self, expr: Expr) -> str:
        match expr:
            case Index(Name(id), (Name(),)) if id == self.role == OUTPUT.id:
                return self.name(id)  # a sum's own column, which is the last axis as theirs is
            case Index(Name(id), index) if id in self.tensors:
                places = [
                    # A part of a row has fewer columns than the row: a number in its declaration.
                    self.device(at) if isinstance(at, Name) and not self.dims[id][axis].isdigit()
                    else f"({self.device(at)}) % t_{id}.size({axis})"
                    for axis, at in enumerate(index)
                ]  # fmt: skip
                load = f"t_{id}[{', '.join(places)}]"
                return f"{load}.float()" if id in self.floats else load
            case Call("sum_over" | "max_over" as fn, (Lambda((column,), body), extent)):
                return self.reduced(fn, column, body, extent)
            case Call() if not names_in(expr) & self.given:
                return self.host(expr)
        return super().device(expr)

    def reduced(self, fn: str, column: str, body: Expr, extent: Expr) -> str:
        """The name of a sum or maximum over columns, [..., 1]."""
        text = self.inline(fn, column, body, extent)
        return self.sums.setdefault(text, f"row_{len(self.sums)}")

    def inline(self, fn: str, column: str, body: Expr, extent: Expr) -> str:
        """A sum or maximum over columns as it is; over heads, where it is one of such sums."""
        whole = Call(fn, (Lambda((column,), body), extent))
        if self.column in names_in(body) or column not in names_in(body):
            raise NotExpressible(f"no form for {print_expr(whole)}")
        known = self.indices
        self.indices = {**known, column: column}
        match body:
            case Call(inner, (Lambda((own,), each), count)) if sums_over_heads(whole):
                text, axis, shape = self.inline(inner, own, each, count), 1, "(1, -1, 1, 1)"
            case _:
                text, axis, shape = self.device(body), -1, "(-1)"
        self.indices = known
        ends = "sum" if fn == "sum_over" else "amax"
        where = f"torch.arange({self.device(extent)}, device=b.device).view{shape}"
        return f"(lambda {column}: ({text}).{ends}({axis}, keepdim=True))({where})"
