"""What else computes the same function on this machine: eager PyTorch, SDPA, FlexAttention.

Each contestant is a call on one set of inputs that returns O as [B, Hq, Nq, Dv]. What cannot
compute this function is listed with the reason, never left out in silence.
"""

from __future__ import annotations

import hashlib
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.cuir.nodes import Binary, Expr, Name, Num, walk_expr
from engine.cuir.scalar import evaluate
from engine.gpu.worker.specrun import SpecRun
from engine.spec.oracle import environment
from engine.spec.recipe import Recipe

Contestant = Callable[[Mapping[str, Tensor]], Tensor]
DENSE_BYTES = 4 << 30
UNREAD_SPEC = "no rule reads this spec, so nothing says how this rival would compute it"
BACKENDS = {
    "SDPA FlashAttention-2": SDPBackend.FLASH_ATTENTION,
    "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
}


@dataclass(frozen=True)
class Absent:
    """A rival that does not take part, and why."""

    reason: str
    name: str = ""


@dataclass(frozen=True)
class Mask:
    """What is kept at one size: the pairs over all (b, h), and of which kind they are.

    Without a recipe the spec's own function is asked (`engine.gpu.worker.kept`); `pairs` is None
    where it does not say, and `kind` then why.
    """

    pairs: int | None
    kind: str  # full, causal, other


def mask_of(run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int]) -> Mask:
    """Count kept pairs by the recipe's predicate, in bands of rows; per head where it differs."""
    recipe = _recipe(run)
    names = {e.id for e in walk_expr(recipe.keep) if isinstance(e, Name)}
    by_head = _index_dependent(recipe, names)
    n_q, n_k = sizes["Nq"], sizes["Nk"]
    env = _environment(run, inputs, sizes)
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


def _recipe(run: SpecRun) -> Recipe:
    """For what takes part only where there is a recipe."""
    assert run.recipe is not None
    return run.recipe


def _index_dependent(recipe: Recipe, names: set[str]) -> bool:
    dims = {d for item in recipe.extra() if item.name in names for d in item.dims}
    return bool(names & {"b", "h"}) or bool(dims & {"B", "Hq", "Hkv"})


def _environment(
    run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int]
) -> dict[str, Any]:
    env: dict[str, Any] = dict(sizes)
    for item in _recipe(run).extra():
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
                if found is not None and found[1] is None and not _has(rest, "x"):
                    return found[0], rest
        case Binary("-", left, right) if not _has(right, "x"):
            found = linear_score(left)
            if found is not None and found[1] is None:
                return found[0], Binary("-", Num(0.0), right)
    return None


def _sizes_only(expr: Expr) -> bool:
    from engine.cuir.nodes import Index

    return not any(
        isinstance(e, Index) or (isinstance(e, Name) and e.id in ("x", "b", "h", "i", "j"))
        for e in walk_expr(expr)
    )


def _has(expr: Expr, name: str) -> bool:
    return any(isinstance(e, Name) and e.id == name for e in walk_expr(expr))


def sdpa_rivals(
    run: SpecRun, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], mask: Mask
) -> dict[str, Contestant | Absent]:
    """SDPA's fused back ends where the recipe is full or causal attention, else a dense mask."""
    out: dict[str, Contestant | Absent] = {}
    recipe = run.recipe
    if recipe is None:
        return {name: Absent(UNREAD_SPEC) for name in (*BACKENDS, "SDPA dense mask")}
    linear = linear_score(recipe.score)
    if recipe.weight is not None or linear is None:
        why = "SDPA is softmax of a scaled score, with a mask or bias alone"
        return {name: Absent(why) for name in (*BACKENDS, "SDPA dense mask")}
    scale = float(evaluate(linear[0], dict(_environment(run, inputs, sizes))))
    for name, backend in BACKENDS.items():
        if mask.kind == "other" or linear[1] is not None:
            out[name] = Absent("this back end takes no mask but the causal one, and no bias")
        else:
            out[name] = _sdpa(run, backend, scale, mask.kind == "causal", None)
    if mask.kind == "other" or linear[1] is not None:
        dense = dense_mask(run, inputs, sizes, linear[1])
        if isinstance(dense, Absent):
            out["SDPA dense mask"] = dense
        else:
            out["SDPA dense mask"] = _sdpa(run, SDPBackend.EFFICIENT_ATTENTION, scale, False, dense)
    return out


def bare_rivals(run: SpecRun, mask: Mask, d: int) -> dict[str, Contestant]:
    """The fused kernels of the same mask and nothing more, beside a spec that no rule reads.

    They compute something else than the spec, so their output is not compared: they show what the
    mask alone costs, and by that what the rest of the spec may.
    """
    if mask.kind not in ("full", "causal"):
        return {}
    causal = mask.kind == "causal"
    return {
        f"bare {mask.kind}, {name}": _sdpa(run, backend, d**-0.5, causal, None)
        for name, backend in BACKENDS.items()
    }


def _sdpa(
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
    recipe = _recipe(run)
    q, k, v = (run.canonical(inputs, role) for role in ("q", "k", "v"))
    with torch.device(run.device):
        env = environment(recipe, inputs, q, k, v)
        used = {e.id for x in (recipe.keep, bias) if x for e in walk_expr(x) if isinstance(e, Name)}
        by_head = _index_dependent(recipe, used)
        count = (sizes["B"] * sizes["Hq"] if by_head else 1) * sizes["Nq"] * sizes["Nk"]
        if count * 10 > DENSE_BYTES:
            return Absent(f"the dense mask has {count:,} elements")
        keep = torch.as_tensor(evaluate(recipe.keep, env))
        value: Any = 0.0 if bias is None else evaluate(bias, env)
        full = torch.where(keep, torch.as_tensor(value, dtype=torch.float32), float("-inf"))
    return full.to(q.dtype).broadcast_to(*full.shape[:-2], sizes["Nq"], sizes["Nk"]).contiguous()


def flex_rival(
    run: SpecRun,
    source: str | None,
    reason: str,
    inputs: Mapping[str, Tensor],
    sizes: Mapping[str, int],
) -> Contestant | Absent:
    """FlexAttention compiled for these sizes, with a block mask made beforehand."""
    if source is None:
        return Absent(f"not expressible: {reason}")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    module = _module(source)
    compiled = torch.compile(flex_attention, dynamic=False)
    # All input sets share their extra inputs, so the mods and the block mask are made once.
    tensors = {
        i.name: t.float() if (t := inputs[i.name]).dtype == torch.float64 else t
        for i in _recipe(run).extra()
    }
    scale, score_mod, mask_mod = module.mods(dict(sizes), tensors)
    block = None
    if mask_mod is not None:
        by_b, by_h = _mask_axes(run)
        block = create_block_mask(
            mask_mod, sizes["B"] if by_b else None, sizes["Hq"] if by_h else None,
            sizes["Nq"], sizes["Nk"], device=str(run.device),
        )  # fmt: skip

    def call(inputs: Mapping[str, Tensor]) -> Tensor:
        q, k, v = (run.canonical(inputs, role) for role in ("q", "k", "v"))
        out: Tensor = compiled(
            q, k, v, score_mod=score_mod, block_mask=block, scale=float(scale),
            enable_gqa=q.size(1) != k.size(1),
        )  # fmt: skip
        return out

    return call


def _module(source: str) -> types.ModuleType:
    """The generated mods as a module: the compiler looks globals up by the module's name."""
    name = f"cubridge_flex_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return module


def _mask_axes(run: SpecRun) -> tuple[bool, bool]:
    recipe = _recipe(run)
    names = {e.id for e in walk_expr(recipe.keep) if isinstance(e, Name)}
    dims = {d for item in recipe.extra() if item.name in names for d in item.dims}
    return "b" in names or "B" in dims, "h" in names or bool(dims & {"Hq", "Hkv"})
