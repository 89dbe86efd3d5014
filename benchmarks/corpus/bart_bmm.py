"""Batch and heads in one dimension, an additive mask that is viewed in and out.

After: transformers, models/bart, BartAttention (before 4.48). Edits: mask, inputs.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def attention(
    query: Float[Tensor, "B H Nq D"],
    key: Float[Tensor, "B H Nk D"],
    value: Float[Tensor, "B H Nk D"],
    attention_mask: Float[Tensor, "B 1 Nq Nk"],
) -> Float[Tensor, "B Nq H D"]:
    bsz, heads, tgt_len, d = query.shape
    src_len = key.size(2)
    query_states = (query * d**-0.5).reshape(bsz * heads, -1, d)
    key_states = key.reshape(bsz * heads, -1, d)
    value_states = value.reshape(bsz * heads, -1, d)
    weights = torch.bmm(query_states, key_states.transpose(1, 2))
    weights = weights.view(bsz, heads, tgt_len, src_len) + attention_mask
    weights = weights.view(bsz * heads, tgt_len, src_len)
    weights = nn.functional.softmax(weights, dim=-1)
    out = torch.bmm(weights, value_states)
    return out.view(bsz, heads, tgt_len, d).transpose(1, 2)
