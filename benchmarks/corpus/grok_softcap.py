"""Scores are capped at 30 by tanh, with a fixed multiplier, then masked.

After: xai-org/grok-1, MultiHeadAttention. Edits: score, mask.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    query: Float[Tensor, "b T Hq d"],
    key: Float[Tensor, "b S Hkv d"],
    value: Float[Tensor, "b S Hkv d"],
    mask: Bool[Tensor, "b 1 T S"],
) -> Float[Tensor, "b T Hq d"]:
    b, t, h, d = query.shape
    kv_h = key.shape[2]
    grouped = query.reshape(b, t, kv_h, h // kv_h, d)
    logits = torch.einsum("bthHd,bThd->bhHtT", grouped, key).float()
    logits = logits * 0.08838834764831845
    logits = 30.0 * torch.tanh(logits / 30.0)
    logits = torch.where(mask[:, :, None], logits, -1e30)
    weights = torch.softmax(logits, -1).to(query.dtype)
    return torch.einsum("bhHtT,bThd->bthHd", weights, value).reshape(b, t, h, -1)
