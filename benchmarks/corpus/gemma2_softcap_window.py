"""Logit softcap, a sliding window with an additive mask, query_pre_attn_scalar as scale.

After: transformers, models/gemma2, eager_attention_forward. Edits: score, mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def repeat_kv(states: Tensor, n_rep: int) -> Tensor:
    batch, kv_heads, length, head_dim = states.shape
    states = states[:, :, None, :, :].expand(batch, kv_heads, n_rep, length, head_dim)
    return states.reshape(batch, kv_heads * n_rep, length, head_dim)


def attention(
    query: Float[Tensor, "B Hq Nq D"],
    key: Float[Tensor, "B Hkv Nk D"],
    value: Float[Tensor, "B Hkv Nk D"],
    query_pre_attn_scalar: int = 256,
    sliding_window: int = 4096,
    softcap: float = 50.0,
) -> Float[Tensor, "B Nq Hq D"]:
    groups = query.shape[1] // key.shape[1]
    n_q, n_k = query.shape[2], key.shape[2]
    lowest = torch.finfo(query.dtype).min
    mask = torch.full((n_q, n_k), lowest, dtype=query.dtype, device=query.device)
    mask = torch.triu(mask, diagonal=n_k - n_q + 1)[None, None]
    outside = torch.tril(
        torch.ones(n_q, n_k, dtype=torch.bool, device=query.device), n_k - n_q - sliding_window
    )
    mask = torch.where(outside, lowest, mask)
    key_states, value_states = repeat_kv(key, groups), repeat_kv(value, groups)
    weights = torch.matmul(query, key_states.transpose(2, 3)) * query_pre_attn_scalar**-0.5
    weights = weights / softcap
    weights = torch.tanh(weights)
    weights = weights * softcap
    weights = weights + mask[:, :, :, : key_states.shape[-2]]
    weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, value_states).transpose(1, 2).contiguous()
