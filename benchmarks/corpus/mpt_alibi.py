"""ALiBi counted from the last key; slopes by arange and pow, interleaved for odd head counts.

After: transformers, models/mpt, build_mpt_alibi_tensor and MptAttention. Edits: score, mask.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


def build_alibi(num_heads: int, length: int, alibi_bias_max: int = 8) -> Tensor:
    alibi = torch.arange(1 - length, 1, dtype=torch.int32).view(1, 1, 1, length)
    power_of_two = 2 ** math.ceil(math.log2(num_heads))
    base = torch.arange(1, power_of_two + 1, dtype=torch.int64).float()
    base = base * (alibi_bias_max / power_of_two)
    slopes = 1.0 / torch.pow(2, base)
    slopes = slopes.view(1, power_of_two, 1, 1)
    if power_of_two != num_heads:
        slopes = torch.concat([slopes[:, 1::2, ...], slopes[:, ::2, ...]], dim=1)
        slopes = slopes[:, :num_heads, ...]
    return (alibi * slopes).squeeze(0)


def attention(
    query: Float[Tensor, "B H N D"],
    key: Float[Tensor, "B H N D"],
    value: Float[Tensor, "B H N D"],
    attention_mask: Bool[Tensor, "B 1 N N"],
) -> Float[Tensor, "B N H D"]:
    position_bias = build_alibi(query.shape[1], 2048)
    scores = torch.matmul(query, key.transpose(-1, -2)) * (1 / math.sqrt(query.shape[-1]))
    query_length, key_length = query.shape[2], key.shape[2]
    from_query = max(0, position_bias.size(1) - query_length)
    from_key = max(0, position_bias.size(2) - key_length)
    position_bias = position_bias[:, from_query:, from_key:]
    scores = scores + position_bias
    scores = scores.masked_fill(attention_mask, torch.finfo(query.dtype).min)
    weights = nn.functional.softmax(scores.float(), dim=-1).to(value.dtype)
    return torch.matmul(weights, value).permute(0, 2, 1, 3)
