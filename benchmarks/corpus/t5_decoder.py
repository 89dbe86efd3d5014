"""Causal relative buckets and an additive mask; no scale.

After: transformers, models/t5, T5Attention of the decoder. Edits: score, mask, inputs.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


def attention(
    query: Float[Tensor, "B H N D"],
    key: Float[Tensor, "B H N D"],
    value: Float[Tensor, "B H N D"],
    weight: Float[Tensor, "32 H"],
    mask: Float[Tensor, "B 1 N N"],
) -> Float[Tensor, "B H N D"]:
    n = query.shape[2]
    position = torch.arange(n, device=query.device)
    relative = position[None, :] - position[:, None]
    relative = -torch.min(relative, torch.zeros_like(relative))
    large = 16 + (torch.log(relative.float() / 16) / math.log(128 / 16) * 16).to(torch.long)
    large = torch.min(large, torch.full_like(large, 31))
    bucket = torch.where(relative < 16, relative, large)
    bias = nn.functional.embedding(bucket, weight).permute([2, 0, 1]).unsqueeze(0)
    bias = bias + mask
    scores = torch.matmul(query, key.transpose(3, 2)) + bias
    weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
    return torch.matmul(weights, value)
