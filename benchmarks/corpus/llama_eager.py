"""Grouped heads, an additive mask, softmax in float32.

After: transformers, models/llama, eager_attention_forward. Edits: mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def repeat_kv(states: Tensor, n_rep: int) -> Tensor:
    batch, kv_heads, length, head_dim = states.shape
    if n_rep == 1:
        return states
    states = states[:, :, None, :, :].expand(batch, kv_heads, n_rep, length, head_dim)
    return states.reshape(batch, kv_heads * n_rep, length, head_dim)


def attention(
    query: Float[Tensor, "B Hq Nq D"],
    key: Float[Tensor, "B Hkv Nk D"],
    value: Float[Tensor, "B Hkv Nk D"],
    attention_mask: Float[Tensor, "B 1 Nq Nk"],
    dropout: float = 0.0,
    **kwargs,
) -> Float[Tensor, "B Nq Hq D"]:
    groups = query.shape[1] // key.shape[1]
    key_states = repeat_kv(key, groups)
    value_states = repeat_kv(value, groups)
    weights = torch.matmul(query, key_states.transpose(2, 3)) * query.shape[-1] ** -0.5
    if attention_mask is not None:
        weights = weights + attention_mask[:, :, :, : key_states.shape[-2]]
    weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=False)
    return torch.matmul(weights, value_states).transpose(1, 2).contiguous()
