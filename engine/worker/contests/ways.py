"""How a recipe becomes calls: for each rival's function, every way to say the recipe to it.

A way is kept only where its parameters are in the installed signature, and timed only after its
output was right; of several the fastest counts (`engine.worker.contests.registry`).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import tempfile
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.cuir.scalar import evaluate
from engine.worker.contests.cute_source import Cute, cute_source
from engine.worker.contests.flex_source import flex_source
from engine.worker.contests.own_arguments import Window, cap_of, window_of
from engine.worker.contests.rivals import (
    BACKENDS,
    Absent,
    Problem,
    Way,
    dense_mask,
    environment_of,
    linear_score,
    mask_axes,
    recipe_of,
    sdpa_call,
    values_of,
)
from engine.worker.problems.specrun import SpecRun

Function = Callable[..., Any]
Arguments = Mapping[str, Any]
# Of FlexAttention's kernel options, tried beside its own choice.
FLEX_OPTIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3},
    {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8, "num_stages": 2},
    {"USE_TMA": True},
)
BLOCK = 128


class CannotSay(Exception):
    """There is no call to make of this recipe, and why."""


# --- torch ---------------------------------------------------------------------------------------


def sdpa_ways(backend: str, problem: Problem, function: Function) -> list[Way]:
    """One back end: without a mask, causal, or with mask and bias as one dense tensor."""
    run, recipe = problem.run, recipe_of(problem.run)
    linear = linear_score(recipe.score)
    if linear is None:
        raise CannotSay("the score is no scaled dot product with a bias")
    scale = float(evaluate(linear[0], dict(environment_of(run, problem.inputs, problem.sizes))))
    made = partial(sdpa_call, run, BACKENDS[backend], scale)
    if linear[1] is None and problem.mask.kind != "other":
        causal = problem.mask.kind == "causal"
        uses = ("scale", "is_causal") if causal else ("scale",)
        return [Way("is_causal" if causal else "no mask", made(causal, None), uses)]
    dense = dense_mask(run, problem.inputs, problem.sizes, linear[1])
    if isinstance(dense, Absent):
        raise CannotSay(dense.reason)
    return [Way("a dense attn_mask", made(False, dense), ("scale", "attn_mask"))]


def flex_ways(flash: bool, problem: Problem, function: Function) -> list[Way]:
    """FlexAttention compiled for these sizes: its Triton template by several options, or FLASH."""
    run = problem.run
    mods = python_module(flex_source(recipe_of(run)).source, "flex")
    # All input sets share their extra inputs, so the mods and the block mask are made once.
    scale, score_mod, mask_mod = mods.mods(dict(problem.sizes), _tensors(problem))
    arguments = {
        "score_mod": score_mod,
        "block_mask": _block_mask(problem, mask_mod, BLOCK),
        "scale": float(scale),
    }
    uses = ("scale", "kernel_options", *(n for n, v in arguments.items() if v is not None))
    _room_for_compiled_calls()
    compiled = torch.compile(function, dynamic=False)
    options = ({"BACKEND": "FLASH"},) if flash else FLEX_OPTIONS
    return [
        Way(_words(each), _flex_call(run, compiled, {**arguments, "kernel_options": dict(each)}),
            tuple(dict.fromkeys(uses)))
        for each in options
    ]  # fmt: skip


def _flex_call(
    run: SpecRun, compiled: Function, arguments: Arguments
) -> Callable[[Mapping[str, Tensor]], Tensor]:
    def call(inputs: Mapping[str, Tensor]) -> Tensor:
        q, k, v = (run.canonical(inputs, role) for role in ("q", "k", "v"))
        out: Tensor = compiled(q, k, v, enable_gqa=q.size(1) != k.size(1), **arguments)
        return out

    return call


def _room_for_compiled_calls() -> None:
    """Every way and every shape is a compilation of one function; the compiler's limit is eight."""
    import torch._dynamo.config as config

    for name in ("recompile_limit", "cache_size_limit"):
        if hasattr(config, name):
            setattr(config, name, 128)


# --- FlashAttention ------------------------------------------------------------------------------


def fa4_ways(problem: Problem, function: Function) -> list[Way]:
    """Its own arguments where they say it, functions printed from the recipe, and both mixed."""
    cute, scores, masks = _fa4_mods(problem)
    ways = []
    for score_words, score, score_tensors in scores:
        for mask_words, mask, mask_tensors in masks:
            arguments = {**score, **mask, **_fa4_sink(problem)}
            if score_tensors or mask_tensors:
                # Both functions count the tensors in one order, so both are given all of them.
                arguments["aux_tensors"] = [_tensors(problem)[n] for n in cute.tensors]
            words = ", ".join(w for w in (score_words, mask_words) if w) or "no mask"
            ways.append(Way(words, _bshd_call(problem.run, function, arguments), tuple(arguments)))
    return ways


Part = tuple[str, dict[str, Any], tuple[str, ...]]


def _fa4_mods(problem: Problem) -> tuple[Cute, list[Part], list[Part]]:
    """The printed functions; every way to say score and mask: words, arguments, tensors read."""
    run, sizes = problem.run, problem.sizes
    recipe = recipe_of(run)
    values = values_of(problem)
    cute = cute_source(recipe, values)
    module = _file_module(cute.source) if cute.has_score or cute.has_mask else None
    own = cap_of(recipe.score, values)
    scores: list[Part] = []
    if own is not None and own[1] == 0.0:
        scores.append(("", {"softmax_scale": own[0]}, ()))
    elif own is not None:
        scores.append(("softcap", {"softmax_scale": own[0], "softcap": own[1]}, ()))
    if cute.has_score and (own is None or own[1] != 0.0):
        assert module is not None
        said = {"softmax_scale": cute.scale, "score_mod": module.score_mod}
        scores.append(("score_mod", said, cute.tensors))
    masks: list[Part] = []
    window = window_of(run, problem.inputs, sizes, problem.mask)
    if window is not None:
        masks.append((*_own_mask(window), ()))
    if window != (None, None):
        assert module is not None
        for columns in (BLOCK, 64) if sizes["D"] > 128 else (BLOCK,):
            said = {"mask_mod": module.mask_mod, **_fa4_blocks(problem, columns)}
            words = "mask_mod and block lists"
            masks.append((words if columns == BLOCK else f"{words} of {columns} keys", said,
                          cute.tensors))  # fmt: skip
    return cute, scores, masks


def _own_mask(window: Window) -> tuple[str, dict[str, Any]]:
    if window == (None, None):
        return "", {}
    if window == (None, 0):
        return "causal", {"causal": True}
    return "window_size", {"window_size": window}


def _fa4_sink(problem: Problem) -> dict[str, Any]:
    """The sink as FlashAttention-4 takes it: a bf16 logit per query head."""
    sink = recipe_of(problem.run).sink
    if sink is None:
        return {}
    names: dict[str, Any] = {**values_of(problem), **_tensors(problem)}
    heads = torch.arange(problem.sizes["Hq"], device=problem.run.device)
    value = torch.as_tensor(evaluate(sink, {**names, "h": heads}), device=problem.run.device)
    return {"learnable_sink": value.to(torch.bfloat16).expand(len(heads)).contiguous()}


def _fa4_blocks(problem: Problem, columns: int) -> dict[str, Any]:
    """The block lists of the recipe's predicate, as FlashAttention-4 takes them."""
    masked = replace(recipe_of(problem.run), sink=None)  # which the lists do not depend on
    mods = python_module(flex_source(masked).source, "flex")
    mask_mod = mods.mods(dict(problem.sizes), _tensors(problem))[2]
    block = _block_mask(problem, mask_mod, (BLOCK, columns))
    lists = importlib.import_module("flash_attn.cute.block_sparsity").BlockSparseTensorsTorch
    return {
        "block_sparse_tensors": lists(
            mask_block_cnt=block.kv_num_blocks, mask_block_idx=block.kv_indices,
            full_block_cnt=block.full_kv_num_blocks, full_block_idx=block.full_kv_indices,
            block_size=(BLOCK, columns),
        )
    }  # fmt: skip


def fa3_ways(problem: Problem, function: Function) -> list[Way]:
    """FlashAttention-3: a scale, a soft cap and a window are all that it takes."""
    own, window = _own(problem)
    arguments: dict[str, Any] = {"softmax_scale": own[0], "softcap": own[1]}
    if window == (None, 0):
        arguments["causal"] = True
    elif window != (None, None):
        arguments["window_size"] = tuple(-1 if side is None else side for side in window)
    call = _bshd_call(problem.run, function, arguments)
    return [Way("its own arguments", call, tuple(arguments))]


def flashinfer_ways(problem: Problem, function: Function) -> list[Way]:
    """FlashInfer's prefill, one call per sequence: its own arguments, or the mask as a tensor."""
    run, sizes = problem.run, problem.sizes
    cap = cap_of(recipe_of(run).score, values_of(problem))
    if cap is None:
        raise CannotSay("the score is no scaled dot product, capped or not")
    base: dict[str, Any] = {"sm_scale": cap[0], "logits_soft_cap": cap[1] or None}
    window = window_of(run, problem.inputs, sizes, problem.mask)
    if window in ((None, None), (None, 0)):
        arguments = {**base, "causal": window == (None, 0)}
        label = "its own arguments"
    elif window is not None and window[1] == 0:
        arguments = {**base, "causal": True, "window_left": window[0]}
        label = "window_left"
    elif any(mask_axes(run)):
        raise CannotSay("custom_mask is one for all heads, and here sequences or heads differ")
    else:
        mods = python_module(flex_source(recipe_of(run)).source, "flex")
        keep = mods.mods(dict(sizes), _tensors(problem))[2]
        i, j = (torch.arange(sizes[n], device=run.device) for n in ("Nq", "Nk"))
        zero = torch.zeros((), dtype=torch.int32, device=run.device)
        arguments = {**base, "custom_mask": keep(zero, zero, i[:, None], j[None, :])}
        label = "custom_mask"

    def call(inputs: Mapping[str, Tensor]) -> Tensor:
        q, k, v = (run.canonical(inputs, role).transpose(1, 2) for role in ("q", "k", "v"))
        rows = [function(q[b], k[b], v[b], **arguments) for b in range(q.size(0))]
        return torch.stack(rows).transpose(1, 2)

    return [Way(f"{label}, a call per sequence", call, tuple(arguments))]


def _own(problem: Problem) -> tuple[tuple[float, float], Window]:
    cap = cap_of(recipe_of(problem.run).score, values_of(problem))
    window = window_of(problem.run, problem.inputs, problem.sizes, problem.mask)
    if cap is None or window is None:
        raise CannotSay("a scale, a soft cap and a window do not say this recipe")
    return cap, window


def _bshd_call(
    run: SpecRun, function: Function, arguments: Arguments
) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """A function that takes and gives [B, N, H, D], and may give more beside O."""

    def call(inputs: Mapping[str, Tensor]) -> Tensor:
        q, k, v = (run.canonical(inputs, role).transpose(1, 2) for role in ("q", "k", "v"))
        out = function(q, k, v, **arguments)
        o: Tensor = out[0] if isinstance(out, tuple) else out
        return o.transpose(1, 2)

    return call


# --- what several use ----------------------------------------------------------------------------


def _tensors(problem: Problem) -> dict[str, Tensor]:
    return {
        i.name: t.float() if (t := problem.inputs[i.name]).dtype == torch.float64 else t
        for i in recipe_of(problem.run).extra()
    }


def _block_mask(problem: Problem, mask_mod: Function | None, block: int | tuple[int, int]) -> Any:
    if mask_mod is None:
        return None
    from torch.nn.attention.flex_attention import create_block_mask

    by_b, by_h = mask_axes(problem.run)
    sizes = problem.sizes
    return create_block_mask(
        mask_mod, sizes["B"] if by_b else None, sizes["Hq"] if by_h else None,
        sizes["Nq"], sizes["Nk"], device=str(problem.run.device), BLOCK_SIZE=block,
    )  # fmt: skip


def _words(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items()) or "its own options"


def python_module(source: str, kind: str) -> types.ModuleType:
    """Generated source as a module: the compiler looks globals up by the module's name."""
    name = f"cubridge_{kind}_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        module = types.ModuleType(name)
        sys.modules[name] = module
        exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return sys.modules[name]


def _file_module(source: str) -> types.ModuleType:
    """Generated source as a module in a file: CuTe DSL reads its functions' source text."""
    name = f"cubridge_cute_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        path = Path(tempfile.mkdtemp(prefix="cubridge-")) / f"{name}.py"
        path.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
