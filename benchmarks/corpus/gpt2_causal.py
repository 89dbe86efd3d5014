"""A causal buffer and torch.where with the type's lowest number, scaled by the value's head size.

After: transformers, models/gpt2, eager_attention_forward. Edits: mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

BIAS = torch.tril(torch.ones((1024, 1024), dtype=torch.bool)).view(1, 1, 1024, 1024)


def attention(
    query: Float[Tensor, "B H Nq D"],
    key: Float[Tensor, "B H Nk D"],
    value: Float[Tensor, "B H Nk D"],
    attention_mask: Float[Tensor, "B 1 1 Nk"],
) -> Float[Tensor, "B Nq H D"]:
    weights = torch.matmul(query, key.transpose(-1, -2))
    weights = weights / torch.full(
        [], value.size(-1) ** 0.5, dtype=weights.dtype, device=weights.device
    )
    n_q, n_k = query.size(-2), key.size(-2)
    causal = BIAS[:, :, n_k - n_q : n_k, :n_k].to(weights.device)
    lowest = torch.full([], torch.finfo(weights.dtype).min, dtype=weights.dtype)
    weights = torch.where(causal, weights.to(weights.dtype), lowest)
    weights = weights + attention_mask
    weights = nn.functional.softmax(weights, dim=-1).type(value.dtype)
    return torch.matmul(weights, value).transpose(1, 2)
