"""One key head for all query heads, by baddbmm over rows of all heads.

After: transformers, models/gpt_bigcode, GPTBigCodeAttention with multi_query. Edits: mask.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def attention(
    query: Float[Tensor, "B Nq H D"],
    key: Float[Tensor, "B Nk D"],
    value: Float[Tensor, "B Nk D"],
    attention_mask: Bool[Tensor, "B Nq 1 Nk"],
) -> Float[Tensor, "B Nq H D"]:
    batch, length, heads, d = query.shape
    key_length = key.size(1)
    flat = query.reshape(batch, length * heads, d)
    weights = torch.empty((batch, length * heads, key_length), dtype=query.dtype)
    weights = torch.baddbmm(weights, flat, key.transpose(1, 2), beta=0, alpha=d**-0.5)
    weights = weights.view(batch, length, heads, key_length)
    lowest = torch.full([], torch.finfo(weights.dtype).min, dtype=weights.dtype)
    weights = torch.where(attention_mask, weights, lowest)
    weights = torch.softmax(weights.float(), dim=-1).to(value.dtype)
    return torch.bmm(weights.view(batch, -1, key_length), value).view(query.shape)
