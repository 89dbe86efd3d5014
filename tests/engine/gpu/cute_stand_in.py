"""FlashAttention-4 and the part of CuTe DSL that printed functions use, made of torch.

Values of one lane are tensors of one element; the functions mean what CuTe DSL's mean.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor


class Memory:
    """A tensor in registers or in global memory: elements by index, `load` as a value."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.element_type = tensor.dtype

    def __getitem__(self, at: Any) -> Tensor:
        return self.tensor[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self.tensor[at] = value

    def load(self) -> Tensor:
        return self.tensor.clone()


def where(cond: Tensor, then: Tensor, other: Tensor) -> Tensor:
    assert isinstance(then, Tensor) and isinstance(other, Tensor) and then.dtype == other.dtype
    return torch.where(cond, then, other)


def _math(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def call(x: Tensor, fastmath: bool = False) -> Tensor:
        assert x.is_floating_point()
        return function(x)

    return call


class Lists(NamedTuple):
    mask_block_cnt: Tensor
    mask_block_idx: Tensor
    full_block_cnt: Tensor | None = None
    full_block_idx: Tensor | None = None
    block_size: tuple[int, int] | None = None


def attention(
    q: Any, k: Any, v: Any, qv: Any = None, softmax_scale: Any = None, causal: bool = False,
    window_size: Any = (None, None), learnable_sink: Any = None, softcap: float = 0.0,
    score_mod: Any = None, mask_mod: Any = None, aux_tensors: Any = None,
    block_sparse_tensors: Any = None, return_lse: bool = False,
) -> Any:  # fmt: skip
    """What `flash_attn_func` computes, by elements; blocks that no list names are left out."""
    (n_b, n_q, n_h, d), n_k = q.shape, k.shape[1]
    s = torch.einsum("bihd,bjhd->bhij", q.float(), k.float()) * (softmax_scale or d**-0.5)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    keep = torch.ones_like(s, dtype=torch.bool)
    left, right = (None, 0) if causal else window_size
    offset = torch.arange(n_k)[None, :] - torch.arange(n_q)[:, None] - (n_k - n_q)
    keep &= offset <= right if right is not None else True
    keep &= offset >= -left if left is not None else True
    aux = [Memory(t) for t in aux_tensors] if aux_tensors is not None else None
    one = [lambda n: torch.tensor([n], dtype=torch.int32)][0]
    if score_mod or mask_mod:
        for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (n_b, n_h, n_q, n_k))).tolist():
            at = [one(n) for n in (b, h, i, j)]
            if score_mod:
                s[b, h, i, j] = score_mod(
                    s[b, h, i, j][None], at[0], at[1], q_idx=at[2], kv_idx=at[3],
                    seqlen_info=None, aux_tensors=aux or (),
                )[0]  # fmt: skip
            if mask_mod:
                found = mask_mod(*at, None, aux)
                assert found.dtype == torch.bool
                keep[b, h, i, j] = found[0]
    if block_sparse_tensors is not None:
        keep &= visited(block_sparse_tensors, n_q, n_k)
    s = s.masked_fill(~keep, float("-inf"))
    if learnable_sink is not None:
        assert learnable_sink.dtype == torch.bfloat16 and learnable_sink.shape == (n_h,)
        column = learnable_sink.float().view(1, -1, 1, 1).expand(n_b, n_h, n_q, 1)
        s = torch.cat([s, column], -1)
    p = torch.softmax(s, -1).nan_to_num()[..., :n_k]
    return torch.einsum("bhij,bjhd->bihd", p, v.float()).to(q.dtype), None


def visited(lists: Lists, n_q: int, n_k: int) -> Tensor:
    """The pairs of the blocks that the lists name."""
    assert lists.block_size is not None
    assert lists.full_block_cnt is not None and lists.full_block_idx is not None
    rows, columns = lists.block_size
    shape = lists.mask_block_idx.shape
    out = torch.zeros(*shape[:2], n_q, n_k, dtype=torch.bool)
    for counts, indices in (lists[:2], lists[2:4]):
        for b, h, m in torch.cartesian_prod(*map(torch.arange, counts.shape)).tolist():  # type: ignore[union-attr]
            for n in indices[b, h, m, : counts[b, h, m]].tolist():  # type: ignore[index]
                out[b, h, m * rows : (m + 1) * rows, n * columns : (n + 1) * columns] = True
    return out


def install(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any] = attention) -> None:
    """Let `flash_attn.cute`, `cutlass` and `cutlass.cute` import as the stand-ins."""
    cutlass, cute = types.ModuleType("cutlass"), types.ModuleType("cutlass.cute")
    cutlass.Float32, cutlass.Int32 = torch.float32, torch.int32  # type: ignore[attr-defined]
    cutlass.cute = cute  # type: ignore[attr-defined]
    names = ("exp2", "log", "log2", "tanh", "sqrt", "rsqrt", "erf", "sin", "cos", "floor", "ceil")
    cute.math = types.SimpleNamespace(**{n: _math(getattr(torch, n)) for n in names})  # type: ignore[attr-defined]
    cute.jit = lambda f: f  # type: ignore[attr-defined]
    cute.where, cute.full_like = where, torch.full_like  # type: ignore[attr-defined]
    cute.make_rmem_tensor = lambda n, dtype: Memory(torch.zeros(n, dtype=dtype))  # type: ignore[attr-defined]
    package, module = types.ModuleType("flash_attn"), types.ModuleType("flash_attn.cute")
    blocks = types.ModuleType("flash_attn.cute.block_sparsity")
    module.flash_attn_func = function  # type: ignore[attr-defined]
    module.__version__ = "4.0"  # type: ignore[attr-defined]
    blocks.BlockSparseTensorsTorch = Lists  # type: ignore[attr-defined]
    for found in (cutlass, cute, package, module, blocks):
        monkeypatch.setitem(sys.modules, found.__name__, found)
