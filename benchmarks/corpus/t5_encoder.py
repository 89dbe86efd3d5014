"""Bidirectional relative buckets, logarithmic beyond the exact ones; no scale.

After: transformers, models/t5, T5Attention of the encoder. Edits: score.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


def bucket_of(relative: Tensor, num_buckets: int = 32, max_distance: int = 128) -> Tensor:
    buckets = 0
    num_buckets //= 2
    buckets += (relative > 0).to(torch.long) * num_buckets
    relative = torch.abs(relative)
    max_exact = num_buckets // 2
    is_small = relative < max_exact
    large = max_exact + (
        torch.log(relative.float() / max_exact)
        / math.log(max_distance / max_exact)
        * (num_buckets - max_exact)
    ).to(torch.long)
    large = torch.min(large, torch.full_like(large, num_buckets - 1))
    buckets += torch.where(is_small, relative, large)
    return buckets


def attention(
    query: Float[Tensor, "B H Nq D"],
    key: Float[Tensor, "B H Nk D"],
    value: Float[Tensor, "B H Nk D"],
    relative_attention_bias: Float[Tensor, "32 H"],
) -> Float[Tensor, "B H Nq D"]:
    context = torch.arange(query.shape[2], dtype=torch.long, device=query.device)[:, None]
    memory = torch.arange(key.shape[2], dtype=torch.long, device=query.device)[None, :]
    bucket = bucket_of(memory - context)
    bias = nn.functional.embedding(bucket, relative_attention_bias)
    bias = bias.permute([2, 0, 1]).unsqueeze(0)
    scores = torch.matmul(query, key.transpose(3, 2))
    scores += bias
    weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
    return torch.matmul(weights, value)
