"""Scores of [b, np, sq, sk], a Bool mask of what is left out, baddbmm with a norm factor.

After: NVIDIA/Megatron-LM, DotProductAttention. Edits: mask, inputs.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    query: Float[Tensor, "sq b np hn"],
    key: Float[Tensor, "sk b ng hn"],
    value: Float[Tensor, "sk b ng hn"],
    attention_mask: Bool[Tensor, "b 1 sq sk"],
) -> Float[Tensor, "sq b np hn"]:
    groups = query.size(2) // key.size(2)
    key = key.repeat_interleave(groups, dim=2)
    value = value.repeat_interleave(groups, dim=2)
    sq, b, np_, hn = query.shape
    sk = key.size(0)
    query = query.reshape(sq, b * np_, -1)
    key = key.view(sk, b * np_, -1)
    buffer = torch.empty(b * np_, sq, sk, dtype=query.dtype)
    scores = torch.baddbmm(
        buffer,
        query.transpose(0, 1),
        key.transpose(0, 1).transpose(1, 2),
        beta=0.0,
        alpha=1.0 / math.sqrt(hn),
    )
    scores = scores.view(b, np_, sq, sk).masked_fill(attention_mask, -10000.0)
    probs = torch.softmax(scores, dim=-1)
    value = value.view(sk, b * np_, -1)
    context = torch.bmm(probs.view(b * np_, sq, -1), value.transpose(0, 1))
    return context.view(b, np_, sq, hn).permute(2, 0, 1, 3)
