"""The registry of rivals: who they are, what their functions accept, how a recipe becomes a call.

What a function accepts is read from the installed function's signature when it runs. A rival is
absent because a parameter is not in that signature, because the call raised, or because its output
was wrong; a parameter that this registry has not heard of is named, so that "does not take it"
stands nowhere longer than it is true.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from engine.cuir.nodes import Num
from engine.worker.contests.around import AROUND, around
from engine.worker.contests.flex_source import NotExpressible, besides_softmax
from engine.worker.contests.own_arguments import cap_of, window_of
from engine.worker.contests.rivals import (
    LACKS,
    MISSING,
    UNREAD_SPEC,
    UNSAID,
    Absent,
    Problem,
    Taking,
    Way,
    linear_score,
    values_of,
)
from engine.worker.contests.ways import (
    CannotSay,
    fa3_ways,
    fa4_ways,
    flashinfer_ways,
    flex_ways,
    sdpa_ways,
)

# What a recipe may need of a function, in words.
NEEDS = {
    "scale": "a scale", "softcap": "a soft cap", "score": "a function of the score",
    "bias": "an additive bias", "causal": "a causal mask", "window": "a sliding window",
    "causal window": "a causal sliding window", "mask": "a mask function or a mask",
    "weights": "weights other than softmax's", "sink": "a sink in the softmax's sum",
    "output": "a gate or a factor on the output",
    "before": "what happens to q and k before their product",
    "head pairing": "another pairing of query and key heads",
}  # fmt: skip


@dataclass(frozen=True)
class Rival:
    """One rival.

    `function` is "module:attribute", `distribution` what pip calls it; `says` are the parameters
    that say each need of `NEEDS`; `other` are parameters that change nothing of what a forward
    computes from a recipe (inputs, layout, speed, gradients, further results). `ways` makes calls.
    `requires` are modules that must import beside.
    """

    name: str
    group: str
    distribution: str
    function: str
    says: Mapping[str, tuple[str, ...]]
    other: tuple[str, ...]
    ways: Callable[[Problem, Callable[..., Any]], list[Way]]
    requires: tuple[str, ...] = ()

    @property
    def known(self) -> frozenset[str]:
        """Every parameter that the registry knows the meaning of."""
        return frozenset(self.other).union(*self.says.values())


_SDPA = "torch.nn.functional:scaled_dot_product_attention"
_SDPA_SAYS = {
    "scale": ("scale",), "causal": ("is_causal",), "mask": ("attn_mask",), "bias": ("attn_mask",),
}  # fmt: skip
_SDPA_OTHER = ("query", "key", "value", "dropout_p", "enable_gqa")
_FLEX = "torch.nn.attention.flex_attention:flex_attention"
_FLEX_SAYS = {"scale": ("scale",), "score": ("score_mod",), "mask": ("block_mask",)}
_FLEX_OTHER = ("query", "key", "value", "enable_gqa", "kernel_options", "return_lse", "return_aux")

FLEX, FLEX_FLASH, FA4 = "FlexAttention", "FlexAttention FLASH", "FlashAttention-4"
FA3, FLASHINFER = "FlashAttention-3", "FlashInfer"

RIVALS: tuple[Rival, ...] = (
    *(
        Rival(name, "sdpa", "torch", _SDPA, _SDPA_SAYS, _SDPA_OTHER, partial(sdpa_ways, name))
        for name in ("SDPA FlashAttention-2", "SDPA cuDNN", "SDPA memory-efficient")
    ),
    Rival(
        FA4, "fa4", "flash-attn-4", "flash_attn.cute:flash_attn_func",
        {
            "scale": ("softmax_scale",), "softcap": ("softcap",), "causal": ("causal",),
            "window": ("window_size",), "causal window": ("window_size",),
            "score": ("score_mod", "aux_tensors"),
            "mask": ("mask_mod", "block_sparse_tensors", "aux_tensors"),
            "sink": ("learnable_sink",),
        },
        (
            "q", "k", "v", "qv", "gather_kv_indices", "num_splits", "pack_gqa", "deterministic",
            "score_mod_bwd", "aux_scalars", "block_sparse_tensors_bwd",
            "return_lse", "gather_bwd_recompute_p", "gather_bwd_token_chunk",
        ),
        fa4_ways,
    ),
    Rival(FLEX, "flex", "torch", _FLEX, _FLEX_SAYS, _FLEX_OTHER, partial(flex_ways, False)),
    Rival(
        FLEX_FLASH, "flex", "torch", _FLEX, _FLEX_SAYS, _FLEX_OTHER, partial(flex_ways, True),
        requires=("flash_attn.cute",),
    ),
    Rival(
        FA3, "fa3", "flash-attn-3", "flash_attn_interface:flash_attn_func",
        {
            "scale": ("softmax_scale",), "softcap": ("softcap",), "causal": ("causal",),
            "window": ("window_size",), "causal window": ("window_size",),
        },
        (
            "q", "k", "v", "qv", "q_descale", "k_descale", "v_descale", "attention_chunk",
            "num_splits", "pack_gqa", "deterministic", "sm_margin", "return_attn_probs",
        ),
        fa3_ways,
    ),
    Rival(
        FLASHINFER, "flashinfer", "flashinfer-python", "flashinfer:single_prefill_with_kv_cache",
        {
            "scale": ("sm_scale",), "softcap": ("logits_soft_cap",), "causal": ("causal",),
            "causal window": ("window_left", "causal"), "mask": ("custom_mask",),
        },
        (
            "q", "k", "v", "scale_q", "scale_k", "scale_v", "o_dtype", "packed_custom_mask",
            "kv_layout", "pos_encoding_mode", "use_fp16_qk_reduction", "rope_scale", "rope_theta",
            "backend", "return_lse", "kv_cache_sf",
        ),
        flashinfer_ways,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Need:
    """What a recipe needs: `name` in `NEEDS`, and what else says the same."""

    name: str
    alternatives: tuple[str, ...] = field(default=())

    @property
    def any_of(self) -> tuple[str, ...]:
        return (self.name, *self.alternatives)


def needs_of(problem: Problem) -> list[Need]:
    """What the recipe needs of a function, read from its values at these sizes."""
    recipe = problem.run.recipe
    assert recipe is not None
    out = [Need("scale"), *map(Need, besides_softmax(recipe))]
    linear, cap = linear_score(recipe.score), cap_of(recipe.score, values_of(problem))
    if cap is not None and cap[1] != 0.0:
        out.append(Need("softcap", ("score",)))
    elif linear is not None and linear[1] is not None:
        out.append(Need("score", ("bias",)))
    elif linear is None and cap is None:
        out.append(Need("score"))
    if recipe.keep == Num(True):
        return out
    window = window_of(problem.run, problem.inputs, problem.sizes, problem.mask)
    if window == (None, 0):
        out.append(Need("causal", ("causal window", "window", "mask")))
    elif window is not None and window != (None, None):
        first = ("causal window", "window") if window[1] == 0 else ("window",)
        out.append(Need(first[0], (*first[1:], "mask")))
    elif window is None:
        out.append(Need("mask"))
    return out


def lacking(rival: Rival, needs: Iterable[Need], parameters: Iterable[str]) -> list[Need]:
    """The needs that no parameter of a signature says."""
    have = set(parameters)

    def said(name: str) -> bool:
        wanted = rival.says.get(name)
        return wanted is not None and have.issuperset(wanted)

    return [need for need in needs if not any(said(name) for name in need.any_of)]


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters; of a builtin, from the head of its documentation."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        head = re.match(r"\s*\w+\((.*?)\)\s*->", function.__doc__ or "", re.DOTALL)
        names = re.findall(r"(?:^|,)\s*(\w+)\s*(?=[=,:]|$)", head[1]) if head else []
        return tuple(names)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return tuple(p.name for p in found if p.kind not in kinds)


def installed(rival: Rival) -> tuple[Callable[..., Any], str] | Absent:
    """The rival's function and version, or why it is not here."""
    module, _, name = rival.function.partition(":")
    for wanted in (*rival.requires, module):
        try:
            importlib.import_module(wanted)
        except ImportError as error:
            top = wanted.split(".")[0]
            lacks = (getattr(error, "name", None) or "").split(".")[0] in (top, "")
            words = f"{wanted} is not installed" if lacks else f"{wanted} does not import: {error}"
            return Absent(words, rival.name, MISSING)
    function = getattr(importlib.import_module(module), name, None)
    if function is None:
        return Absent(f"{module} has no {name}", rival.name, MISSING)
    return function, version_of(rival.distribution, module)


def version_of(distribution: str, module: str) -> str:
    """What is installed, by its distribution, else by the module's own word; empty if none says."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(importlib.import_module(module), "__version__", ""))


def take_part(rival: Rival, problem: Problem) -> Taking | Absent:
    """The rival's ways at this problem, or why it has none; nothing has run yet."""
    if problem.run.recipe is None:
        return Absent(UNREAD_SPEC, rival.name, UNSAID)
    found = installed(rival)
    if isinstance(found, Absent):
        return found
    function, version = found
    parameters = parameters_of(function)
    lacks = lacking(rival, needs_of(problem), parameters)
    try:
        parts = around(problem) if AROUND & {need.name for need in lacks} else None
        asked = problem if parts is None else parts.inside
        if lacks := lacking(rival, needs_of(asked), parameters):
            return absent(rival, version, lacks, parameters)
        ways = rival.ways(asked, function)
        if parts is not None:
            ways = [parts.way(way) for way in ways]
    except (CannotSay, NotExpressible) as error:
        return Absent(str(error), rival.name, UNSAID)
    taking = Taking(version, [])
    for way in ways:
        if missing := [name for name in way.uses if name not in parameters]:
            taking.out.append(f"{way.label}: no parameter {', '.join(missing)}")
        else:
            taking.ways.append(way)
    if not taking.ways:
        return Absent("; ".join(taking.out), rival.name, LACKS, (), parameters)
    return taking


def absent(
    rival: Rival, version: str, lacks: Iterable[Need], parameters: tuple[str, ...]
) -> Absent:
    """That the signature says nothing of some needs; what it has that is not known is named."""
    needs = tuple(need.name for need in lacks)
    words = ", ".join(NEEDS[name] for name in needs)
    name = rival.function.partition(":")[2]
    reason = f"{name} ({rival.distribution} {version}) has no parameter for {words}"
    if unknown := unjudged(rival, parameters):
        reason += (
            f"; not judged: {', '.join(unknown)} (say what they mean in "
            "engine/worker/contests/registry.py)"
        )
    return Absent(reason, rival.name, LACKS, needs, parameters)


def unjudged(rival: Rival, parameters: Iterable[str]) -> list[str]:
    """Parameters of a signature whose meaning the registry does not know."""
    return [name for name in parameters if name not in rival.known]
