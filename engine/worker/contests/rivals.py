"""Rivals at one problem: calls, what keeps one from taking part, and a recipe's masks and biases.

Each contestant is a call on one set of inputs that returns O as [B, Hq, Nq, Dv]. What cannot
compute this function is listed with the reason that the run established, never left out in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.cuir.nodes import Binary, Expr, Name, Num, names_in, walk_expr
from engine.cuir.scalar import evaluate
from engine.spec.recipes.recipe import Recipe
from engine.spec.reference.oracle import environment
from engine.worker.problems.specrun import SpecRun

Contestant = Callable[[Mapping[str, Tensor]], Tensor]
DENSE_BYTES = 4 << 30
UNREAD_SPEC = "no rule reads this spec, so nothing says how this rival would compute it"
BACKENDS = {
    "SDPA FlashAttention-2": SDPBackend.FLASH_ATTENTION,
    "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
    "SDPA memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
}
# Why a rival takes no part: its signature lacks what the recipe needs, its call raised, its output
# was wrong, it is not installed, or there is nothing to make a call of.
LACKS, RAISED, WRONG, MISSING, UNSAID = "lacks", "raised", "wrong", "not installed", "unsaid"


@dataclass(frozen=True)
class Absent:
    """A rival that does not take part, and why.

    `lacks` are what the recipe needs and no parameter of the function says; `parameters` are those
    that its signature had.
    """

    reason: str
    name: str = ""
    kind: str = UNSAID
    lacks: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """What a row of a result says of it."""
        out: dict[str, Any] = {"reason": self.reason, "kind": self.kind}
        if self.kind == LACKS:
            out |= {"lacks": list(self.lacks), "parameters": list(self.parameters)}
        return out


@dataclass(frozen=True)
class Way:
    """One way to call a rival's function: its words, and the parameters that it uses."""

    label: str
    call: Contestant
    uses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """What is computed: a recipe (or none) at sizes, with its extra inputs, and the mask's kind."""

    run: SpecRun
    inputs: Mapping[str, Tensor]
    sizes: Mapping[str, int]
    mask: Mask


def values_of(problem: Problem) -> dict[str, int | float]:
    """Every size and every input without dimensions, by name."""
    env = environment_of(problem.run, problem.inputs, problem.sizes)
    return {n: v for n, v in env.items() if isinstance(v, int | float)}


@dataclass
class Taking:
    """A rival that takes part: its ways, of which the best is timed, and those that fell out."""

    version: str
    ways: list[Way]
    out: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Mask:
    """What is kept at one size: the pairs over all (b, h), and of which kind they are.

    Without a recipe the spec's own function is asked (`engine.worker.contests.kept_pairs`);
    `pairs` is None where it does not say, and `kind` then why.
    """

    pairs: int | None
    kind: str  # full, causal, other


def mask_of(run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int]) -> Mask:
    """Count kept pairs by the recipe's predicate, in bands of rows; per head where it differs."""
    recipe = recipe_of(run)
    by_head = any(mask_axes(run))
    n_q, n_k = sizes["Nq"], sizes["Nk"]
    env = environment_of(run, inputs, sizes)
    heads = [(b, h) for b in range(sizes["B"]) for h in range(sizes["Hq"])] if by_head else [(0, 0)]
    pairs, full, causal = 0, True, n_q == n_k
    band = max(1, (1 << 26) // max(n_k, 1))
    j = torch.arange(n_k, device=run.device)[None, :]
    for b, h in heads:
        for first in range(0, n_q, band):
            i = torch.arange(first, min(first + band, n_q), device=run.device)[:, None]
            with torch.device(run.device):
                value = evaluate(recipe.keep, {**env, "b": b, "h": h, "i": i, "j": j})
            keep = torch.as_tensor(value, device=run.device).broadcast_to(i.shape[0], n_k)
            pairs += int(keep.sum())
            full = full and bool(keep.all())
            causal = causal and bool((keep == (j <= i)).all())
    if not by_head:
        pairs *= sizes["B"] * sizes["Hq"]
    return Mask(pairs, "full" if full else "causal" if causal else "other")


def recipe_of(run: SpecRun) -> Recipe:
    """For what takes part only where there is a recipe."""
    assert run.recipe is not None
    return run.recipe


def environment_of(
    run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int]
) -> dict[str, Any]:
    env: dict[str, Any] = dict(sizes)
    for item in recipe_of(run).extra():
        value = inputs[item.name]
        env[item.name] = value if item.dims else value.item()
    return env


def linear_score(score: Expr) -> tuple[Expr, Expr | None] | None:
    """(c, bias) of a score x * c + bias whose c is over sizes; None for any other score."""
    match score:
        case Name("x"):
            return Num(1.0), None
        case Binary("*", Name("x"), c) | Binary("*", c, Name("x")) if _sizes_only(c):
            return c, None
        case Binary("/", Name("x"), c) if _sizes_only(c):
            return Binary("/", Num(1.0), c), None
        case Binary("+", left, right):
            for first, rest in ((left, right), (right, left)):
                found = linear_score(first)
                if found is not None and found[1] is None and "x" not in names_in(rest):
                    return found[0], rest
        case Binary("-", left, right) if "x" not in names_in(right):
            found = linear_score(left)
            if found is not None and found[1] is None:
                return found[0], Binary("-", Num(0.0), right)
    return None


def _sizes_only(expr: Expr) -> bool:
    from engine.cuir.nodes import Index

    loads = any(isinstance(e, Index) for e in walk_expr(expr))
    return not loads and not {"x", "b", "h", "i", "j"} & names_in(expr)


def bare_rivals(run: SpecRun, mask: Mask, d: int) -> dict[str, Contestant]:
    """SDPA's fused kernels of the same mask and nothing more, beside a spec that no rule reads.

    They compute something else than the spec, so their output is not compared: they show what the
    mask alone costs, and by that what the rest of the spec may.
    """
    if mask.kind not in ("full", "causal"):
        return {}
    causal = mask.kind == "causal"
    return {
        f"bare {mask.kind}, {name}": sdpa_call(run, backend, d**-0.5, causal, None)
        for name, backend in list(BACKENDS.items())[:2]
    }


def sdpa_call(
    run: SpecRun, backend: SDPBackend, scale: float, causal: bool, bias: Tensor | None
) -> Contestant:
    def call(inputs: Mapping[str, Tensor]) -> Tensor:
        q, k, v = (run.canonical(inputs, role) for role in ("q", "k", "v"))
        if bias is not None and q.size(1) != k.size(1):
            group = q.size(1) // k.size(1)
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, is_causal=causal, scale=scale,
                enable_gqa=q.size(1) != k.size(1),
            )  # fmt: skip

    return call


def dense_mask(
    run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], bias: Expr | None
) -> Tensor | Absent:
    """Bias and mask as one additive tensor that broadcasts to [B, Hq, Nq, Nk]."""
    recipe = recipe_of(run)
    q, k, v = (run.canonical(inputs, role) for role in ("q", "k", "v"))
    with torch.device(run.device):
        env = environment(recipe, inputs, q, k, v)
        by_b, by_h = _axes(recipe, names_in(recipe.keep, *([bias] if bias else [])))
        each = (sizes["B"] if by_b else 1) * (sizes["Hq"] if by_h else 1)
        count = each * sizes["Nq"] * sizes["Nk"]
        if count * 10 > DENSE_BYTES:
            return Absent(f"the dense mask has {count:,} elements")
        keep = torch.as_tensor(evaluate(recipe.keep, env))
        value: Any = 0.0 if bias is None else evaluate(bias, env)
        full = torch.where(keep, torch.as_tensor(value, dtype=torch.float32), float("-inf"))
    return full.to(q.dtype).broadcast_to(*full.shape[:-2], sizes["Nq"], sizes["Nk"]).contiguous()


def mask_axes(run: SpecRun) -> tuple[bool, bool]:
    """Whether the mask differs from batch to batch, and from head to head."""
    recipe = recipe_of(run)
    return _axes(recipe, names_in(recipe.keep))


def _axes(recipe: Recipe, names: frozenset[str]) -> tuple[bool, bool]:
    dims = {d for item in recipe.extra() if item.name in names for d in item.dims}
    return "b" in names or "B" in dims, "h" in names or bool(dims & {"Hq", "Hkv"})
