"""Scores are divided by the layer's number too.

After: transformers, models/gpt2, scale_attn_by_inverse_layer_idx. Edits: score, mask.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def attention(
    query: Float[Tensor, "B H N D"],
    key: Float[Tensor, "B H N D"],
    value: Float[Tensor, "B H N D"],
    layer_idx: int = 7,
) -> Float[Tensor, "B H N D"]:
    weights = torch.matmul(query, key.transpose(-1, -2)) / value.size(-1) ** 0.5
    weights = weights / float(layer_idx + 1)
    n = query.size(-2)
    causal = torch.ones(n, n, dtype=torch.bool, device=query.device).tril()
    weights = torch.where(causal, weights, torch.finfo(weights.dtype).min)
    return torch.matmul(nn.functional.softmax(weights, dim=-1), value)
